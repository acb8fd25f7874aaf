"""A partition's state as plain values and back, for the rows of PARTITIONS; the same for queues. Pure.

A row starts with the version of its form, as does the checkpoint: rows of another version are worthless, and all is
folded from the journal anew. Equal states have equal rows, whatever order things came in: so rows can be compared with
what the journal says. In front of a partition's stands a summary, all that a start needs of most of them.
"""

import struct
from typing import Any, NamedTuple

from queen.actors.catalogue_state import Group, Queue, Slot, options_from, options_to
from queen.actors.partition_state import GroupView, Lease, Open, Partition
from queen.actors.ranges import RangeSet
from queen.errors import ChainBroken
from queen.figures import Counts
from queen.history import History
from queen.names import DEFAULT_GROUP
from queen.store.format import pack_row, unpack_row

VERSION = 5

CHECKPOINT = b"checkpoint"
"""META: the key of the checkpoint."""


class Checkpoint(NamedTuple):
    """The tables hold everything up to record `seq`, whose digest this is, in rows of this `version`."""

    seq: int
    digest: bytes
    version: int = VERSION


_SUMMARY = struct.Struct(">BqQQq16sQQQQQQH")
_UNKNOWN = -1


class Summary(NamedTuple):
    """What the catalogue and the router need of a partition with which nothing is going on.

    `head_at` is when the oldest pending message was pushed, 0 where none is pending. None where the state itself has to
    be asked: messages are leased or wait for something, or were deleted, or other groups than the default one exist.
    `seq` is the last record of the partition that the row knows."""

    head_at: int | None
    seq: int
    queue: int
    created_at: int
    id: bytes
    cursor: int
    counts: Counts
    name: str


def pack_partition(slot: Slot, state: Partition, seq: int, unrecorded: set[int], history: History) -> bytes:
    """The row of PARTITIONS."""
    view = state.groups[DEFAULT_GROUP]
    head_at = _UNKNOWN
    if (
        len(state.groups) - len(unrecorded) == 1
        and not view.open
        and not state.deleted
        and state.last_own_delay < view.cursor
    ):
        oldest = next(history.runs(view.cursor), None) if view.pending else None
        head_at = 0 if oldest is None else oldest.pushed_at
    name = slot.name.encode()
    fixed = head_at, seq, slot.queue.number, slot.created_at, slot.id, view.cursor, *view.counts, len(name)
    return _SUMMARY.pack(VERSION, *fixed) + name + pack_row(partition_row(slot, state, seq, unrecorded))


def read_summary(row: bytes) -> Summary:
    """The summary of a row that `pack_partition` made. Raises `ChainBroken` where it is none, or of another version."""
    head_at, seq, queue, created_at, id, cursor, *counts, length = _fixed(row)
    name = row[_SUMMARY.size : _SUMMARY.size + length].decode()
    head = None if head_at == _UNKNOWN else head_at
    return Summary(head, seq, queue, created_at, id, cursor, Counts(*counts), name)


def unpack_partition(number: int, row: bytes) -> tuple[int, int, bytes, str, int, Partition]:
    """All of such a row, see `read_partition`. Raises `ChainBroken`."""
    return read_partition(number, unpack_row(without_summary(row)))


def without_summary(row: bytes) -> bytes:
    """What is behind the summary: `partition_row`, packed. Raises `ChainBroken`."""
    *_, length = _fixed(row)
    return row[_SUMMARY.size + length :]


def _fixed(row: bytes) -> tuple[Any, ...]:
    if len(row) < _SUMMARY.size or row[0] != VERSION:
        raise ChainBroken("A partition's row has an unknown version; rebuild the projections.")
    return _SUMMARY.unpack_from(row)[1:]


def partition_row(slot: Slot, state: Partition, seq: int, unrecorded: set[int]) -> list[Any]:
    """Everything about a partition as of record `seq`; groups that no event tells of are left out."""
    groups = [[number, *_view_to(view)] for number, view in sorted(state.groups.items()) if number not in unrecorded]
    return [
        VERSION,
        seq,
        slot.queue.number,
        slot.id,
        slot.name,
        slot.created_at,
        state.next_position,
        state.latest_at,
        state.latest_shown,
        state.swept_seq,
        state.last_own_delay,
        [list(pair) for pair in state.deleted.ranges()],
        groups,
    ]


def read_partition(number: int, row: list[Any]) -> tuple[int, int, bytes, str, int, Partition]:
    """(seq, queue number, id, name, created_at, state) of a row."""
    _, seq, queue, id, name, created_at, *numbers, deleted, groups = row
    next_position, latest_at, latest_shown, swept, last_own_delay = numbers
    state = Partition(number, next_position, latest_at, latest_shown, swept, last_own_delay)
    state.deleted = RangeSet([(start, stop) for start, stop in deleted])
    state.groups = {group[0]: _view_from(group[1:]) for group in groups}
    return seq, queue, id, name, created_at, state


def queue_row(queue: Queue) -> list[Any]:
    """Everything about a queue but its partitions."""
    groups = sorted(
        [group.number, group.name, group.after_seq, group.from_at]
        for group in queue.groups.values()
        if group.recorded and group.number != DEFAULT_GROUP
    )
    return [
        VERSION,
        queue.seq,
        queue.id,
        queue.name,
        queue.namespace,
        queue.task,
        options_to(queue.options),
        queue.created_at,
        queue.next_group,
        groups,
    ]


def read_queue(number: int, row: list[Any]) -> Queue:
    """Undo `queue_row`."""
    _, seq, id, name, namespace, task, options, created_at, next_group, groups = row
    queue = Queue(number, id, name, namespace, task, options_from(options), created_at, seq=seq)
    queue.next_group = next_group
    for group, group_name, after_seq, from_at in groups:
        queue.groups[group_name] = Group(group, group_name, after_seq, from_at)
    return queue


def _view_to(view: GroupView) -> list[Any]:
    leases = [
        [lease.id, lease.expires_at, lease.leased_at, lease.worker, sorted(lease.positions)]
        for _, lease in sorted(view.leases.items())
    ]
    messages = [
        [
            position,
            message.pushed_at,
            message.retry_count,
            message.last_lease,
            message.available_at,
            message.because,
            message.error,
            message.failed_at,
        ]
        for position, message in sorted(view.open.items())
    ]
    return [view.cursor, view.pending, view.completed, view.failed, view.dead_letter, leases, messages]


def _view_from(row: list[Any]) -> GroupView:
    cursor, pending, completed, failed, dead_letter, leases, messages = row
    view = GroupView(cursor, pending, completed, failed, dead_letter)
    for position, pushed_at, retry_count, last_lease, available_at, because, error, failed_at in messages:
        view.open[position] = Open(pushed_at, retry_count, None, last_lease, available_at, because, error, failed_at)
    for id, expires_at, leased_at, worker, positions in leases:
        lease = view.leases[id] = Lease(id, expires_at, leased_at, worker, set(positions))
        for position in positions:
            view.open[position].lease = lease
    view.expiries = sorted((lease.expires_at, lease.id) for lease in view.leases.values())
    view.places = sorted(position for position, message in view.open.items() if message.lease is None)
    view.waiting = sorted(
        (message.available_at, position) for position, message in view.open.items() if message.lease is None
    )
    return view

"""The state of one partition, and `evolve`, the only code that changes it. Nothing here chooses or refuses.

Per consumer group: a cursor, and exceptions. Every message from the cursor on is pending; every message before
it is settled, unless it is deleted or stands in `open`. So a backlog of any size costs nothing here.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from queen.actors.ranges import RangeSet
from queen.events import (
    Event,
    GroupJoined,
    GroupMoved,
    LeaseExtended,
    MessagesDeleted,
    MessagesLeased,
    MessagesPushed,
    MessagesReturned,
    MessagesRevived,
    MessagesSetAside,
    MessagesSettled,
    PartitionCreated,
    Run,
)
from queen.figures import Counts
from queen.names import DEFAULT_GROUP

_SLACK = 16


@dataclass(slots=True)
class Lease:
    """A running lease. It ends with its last message: `positions` is never empty in a state."""

    id: bytes
    expires_at: int
    leased_at: int
    worker: str | None
    positions: set[int]


@dataclass(slots=True)
class Open:
    """A message before the cursor that is not settled: leased, or waiting at its old place.

    `because` says why it waits, None while it is leased; `last_lease` is the lease it was last under.
    """

    pushed_at: int
    retry_count: int = 0
    lease: Lease | None = None
    last_lease: bytes | None = None
    available_at: int = 0
    because: str | None = None
    error: str | None = None
    failed_at: int | None = None


@dataclass(slots=True)
class GroupView:
    """What one consumer group has done with the partition.

    `waiting` holds (available_at, position), sorted, and `places` the same positions alone, sorted. `expiries` is a
    heap of (expires_at, lease id): its first entry is true, and one is for each lease; others may be of the past.
    """

    cursor: int
    pending: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    open: dict[int, Open] = field(default_factory=dict)
    leases: dict[bytes, Lease] = field(default_factory=dict)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    expiries: list[tuple[int, bytes]] = field(default_factory=list, compare=False)

    @property
    def next_expiry(self) -> int | None:
        """When the first lease ends, None where there is none."""
        return self.expiries[0][0] if self.expiries else None

    @property
    def processing(self) -> int:
        """How many messages are leased."""
        return len(self.open) - len(self.waiting)

    @property
    def counts(self) -> Counts:
        """Messages by status (S1)."""
        return Counts(self.pending, len(self.open) - len(self.waiting), self.completed, self.failed, self.dead_letter)


@dataclass(slots=True)
class Partition:
    """One partition. `next_position` is the position that the next pushed message gets.

    Behind `last_own_delay` no message has a delay of its own (T2), so that there the first one is ready first.
    """

    number: int
    next_position: int = 1
    latest_at: int = 0
    latest_shown: int = 0
    swept_seq: int = 0
    last_own_delay: int = 0
    deleted: RangeSet = field(default_factory=RangeSet)
    groups: dict[int, GroupView] = field(default_factory=dict)

    def live_from(self, position: int) -> int:
        """How many stored messages stand at `position` or behind it."""
        return self.next_position - position - self.deleted.count_from(position)


def ended_leases(view: GroupView, now: int) -> Iterator[Lease]:
    """Leases that have ended by `now`, those first that ended first. Costs nothing for the others."""
    heap = view.expiries
    # The entries of a heap in order, without changing it: behind each come its two children.
    front = [(heap[0], 0)] if heap else []
    while front:
        entry, index = heappop(front)
        if entry[0] > now:
            return
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heappush(front, (heap[child], child))
        if _is_true(view, entry):
            yield view.leases[entry[1]]


def leases_touched(state: Partition, event: Event) -> list[tuple[int, bytes]]:
    """The leases (group and id) that the event may begin or end, found before it is applied; no others do."""
    match event:
        case MessagesLeased():
            return [(event.group, event.lease)]
        case MessagesSettled() if event.lease is not None:
            return [(event.group, event.lease)]
        case MessagesSettled():  # by a seek, say, which says nothing of the leases that it ends
            return [(event.group, lease) for lease in _held(state.groups[event.group], event.runs)]
        case MessagesReturned():
            held = state.groups[event.group].open
            leases = [held[position].lease for position in event.positions]
            return [(event.group, lease.id) for lease in leases if lease is not None]
        case MessagesDeleted():
            return [(group, lease) for group, view in state.groups.items() for lease in _held(view, event.runs)]
        case GroupMoved():
            return [(event.group, lease) for lease in state.groups[event.group].leases]
    return []


def evolve(state: Partition, event: Event, at: int, shift: int = 0) -> None:
    """Apply one event of this partition, recorded at `at` while the wall clock read `at + shift`."""
    _EVOLVE[type(event)](state, event, at, shift)


def _created(state: Partition, event: PartitionCreated, at: int, shift: int) -> None:
    state.groups[DEFAULT_GROUP] = GroupView(cursor=1)


def _pushed(state: Partition, event: MessagesPushed, at: int, shift: int) -> None:
    count = len(event.sizes)
    assert event.first == state.next_position, "pushed records leave a gap"
    state.next_position += count
    if event.delays_s:
        state.last_own_delay = state.next_position - 1
    state.latest_at = at
    state.latest_shown = at + shift
    for view in state.groups.values():
        view.pending += count


def _joined(state: Partition, event: GroupJoined, at: int, shift: int) -> None:
    state.groups[event.group] = GroupView(cursor=event.cursor, pending=state.live_from(event.cursor))


def _leased(state: Partition, event: MessagesLeased, at: int, shift: int) -> None:
    view = state.groups[event.group]
    lease = Lease(event.lease, event.expires_at, at, event.worker, set())
    for first, count, pushed_at in event.runs:
        for position in range(first, first + count):
            message = view.open.get(position)
            if message is None:
                view.open[position] = Open(pushed_at, 0, lease, event.lease)
            else:
                _stop_waiting(view, position, message)
                message.lease, message.last_lease, message.because = lease, event.lease, None
        lease.positions.update(range(first, first + count))
        view.cursor = max(view.cursor, first + count)
    view.pending -= len(lease.positions)
    view.leases[event.lease] = lease
    heappush(view.expiries, (event.expires_at, event.lease))


def _extended(state: Partition, event: LeaseExtended, at: int, shift: int) -> None:
    view = state.groups[event.group]
    view.leases[event.lease].expires_at = event.expires_at
    heappush(view.expiries, (event.expires_at, event.lease))
    _tidy(view)


def _settled(state: Partition, event: MessagesSettled, at: int, shift: int) -> None:
    view = state.groups[event.group]
    for first, count, _ in event.runs:
        if first >= view.cursor:  # never delivered, all of them: nothing is known of any
            view.cursor = first + count
            view.pending -= count
            continue
        for position in range(first, first + count):
            message = view.open.pop(position, None)
            if message is None:
                view.cursor = max(view.cursor, position + 1)
                view.pending -= 1
            elif message.lease is None:
                _stop_waiting(view, position, message)
                view.pending -= 1
            else:
                _leave(view, message.lease, position)
    _count(view, event.outcome, sum([run.length for run in event.runs]))


def _returned(state: Partition, event: MessagesReturned, at: int, shift: int) -> None:
    view = state.groups[event.group]
    for position, retry_count in zip(event.positions, event.retry_counts, strict=True):
        message = view.open[position]
        if message.lease is None:
            _stop_waiting(view, position, message)
        else:
            _leave(view, message.lease, position)
            message.lease = None
            view.pending += 1
        message.retry_count = retry_count
        message.error = event.error if event.error is not None else message.error
        message.failed_at = event.failed_at if event.failed_at is not None else message.failed_at
        _wait(view, position, message, event.available_at, event.because)


def _set_aside(state: Partition, event: MessagesSetAside, at: int, shift: int) -> None:
    view = state.groups[event.group]
    for (position, pushed_at), available_at in zip(_each(event.runs), event.available_at, strict=True):
        message = view.open[position] = Open(pushed_at)
        _wait(view, position, message, available_at, "delayed")
        view.cursor = max(view.cursor, position + 1)


def _revived(state: Partition, event: MessagesRevived, at: int, shift: int) -> None:
    view = state.groups[event.group]
    for position, pushed_at in _each(event.runs):
        message = view.open[position] = Open(pushed_at)
        _wait(view, position, message, at, "revived")
        view.pending += 1
    view.failed -= event.failed
    view.dead_letter -= event.dead_letter


def _deleted(state: Partition, event: MessagesDeleted, at: int, shift: int) -> None:
    state.swept_seq = max(state.swept_seq, event.swept_seq)
    for run in event.runs:
        start, stop = run.first, run.first + run.length
        state.deleted.add(start, stop)
        for view in state.groups.values():
            view.pending -= max(0, stop - max(start, view.cursor))
            for position in _open_between(view, start, stop):
                message = view.open.pop(position)
                if message.lease is None:
                    _stop_waiting(view, position, message)
                    view.pending -= 1
                else:
                    _leave(view, message.lease, position)
    for counted in event.settled:
        view = state.groups[counted.group]
        view.completed -= counted.completed
        view.failed -= counted.failed
        view.dead_letter -= counted.dead_letter


def _moved(state: Partition, event: GroupMoved, at: int, shift: int) -> None:
    state.groups[event.group] = GroupView(
        cursor=event.cursor,
        pending=state.live_from(event.cursor),
        completed=event.completed,
        failed=event.failed,
        dead_letter=event.dead_letter,
    )


def _each(runs: Iterable[Run]) -> Iterable[tuple[int, int]]:
    for first, count, pushed_at in runs:
        for position in range(first, first + count):
            yield position, pushed_at


def _count(view: GroupView, outcome: str, count: int) -> None:
    if outcome == "completed":
        view.completed += count
    elif outcome == "failed":
        view.failed += count
    else:
        view.dead_letter += count


def _wait(view: GroupView, position: int, message: Open, available_at: int, because: str) -> None:
    message.available_at, message.because = available_at, because
    insort(view.waiting, (available_at, position))
    insort(view.places, position)


def _stop_waiting(view: GroupView, position: int, message: Open) -> None:
    index = bisect_left(view.waiting, (message.available_at, position))
    assert view.waiting[index] == (message.available_at, position)
    del view.waiting[index]
    del view.places[bisect_left(view.places, position)]


def _leave(view: GroupView, lease: Lease, position: int) -> None:
    lease.positions.remove(position)
    if not lease.positions:
        del view.leases[lease.id]
        _tidy(view)


def _tidy(view: GroupView) -> None:
    """Keep the first entry of `expiries` true, and few that are not."""
    heap = view.expiries
    while heap and not _is_true(view, heap[0]):
        heappop(heap)
    if len(heap) > 2 * len(view.leases) + _SLACK:
        heap[:] = [(lease.expires_at, lease.id) for lease in view.leases.values()]
        heapify(heap)


def _is_true(view: GroupView, entry: tuple[int, bytes]) -> bool:
    lease = view.leases.get(entry[1])
    return lease is not None and lease.expires_at == entry[0]


def _held(view: GroupView, runs: Iterable[Run]) -> Iterator[bytes]:
    """The leases that hold messages of these runs, for each message once."""
    for first, length, _ in runs:
        for position in _open_between(view, first, first + length):
            lease = view.open[position].lease
            if lease is not None:
                yield lease.id


def _open_between(view: GroupView, start: int, stop: int) -> list[int]:
    if stop - start < len(view.open):
        return [position for position in range(start, stop) if position in view.open]
    return [position for position in view.open if start <= position < stop]


_EVOLVE: dict[type, Callable[[Partition, Any, int, int], None]] = {
    PartitionCreated: _created,
    MessagesPushed: _pushed,
    GroupJoined: _joined,
    MessagesLeased: _leased,
    LeaseExtended: _extended,
    MessagesSettled: _settled,
    MessagesReturned: _returned,
    MessagesSetAside: _set_aside,
    MessagesRevived: _revived,
    MessagesDeleted: _deleted,
    GroupMoved: _moved,
}

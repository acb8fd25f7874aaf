"""Choosing messages of the past: by where they are, when they were pushed, and how they were at an instant.

Reads the journal twice: how everything was at that instant, then the payloads of what is chosen.
"""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from queen.actors.catalogue_state import Slot
from queen.audit.gone import Gone
from queen.audit.happenings import transaction_ids
from queen.audit.reading import Past, records, shown
from queen.audit.restoring import Progress
from queen.audit.world import World
from queen.commands import Status
from queen.errors import NotFound
from queen.events import (
    GroupJoined,
    GroupMoved,
    MessagesPushed,
    MessagesRevived,
    MessagesSettled,
    PartitionCreated,
)
from queen.names import DEFAULT_GROUP
from queen.store.format import Record
from queen.store.keyring import KeyRing, open_payload

DELETED: Final = "it is deleted"
_EVERY = 1000


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for; None excludes nothing. `status` is that for `group` (None: the default group). The messages
    were pushed from `since` up to `until`, in µs as the wall clock showed them."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    group: str | None = None
    status: Status | None = None
    transaction_ids: Collection[str] = ()
    since: int | None = None
    until: int | None = None

    def takes(self, slot: Slot) -> bool:
        """Whether a partition's messages are looked at."""
        queue = slot.queue
        wanted = (self.queue, self.partition, self.namespace)
        found = (queue.name, slot.name, queue.namespace)
        return all(want in (None, name) for want, name in zip(wanted, found, strict=True))


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `payload` is its JSON text; without one, `missing` says why there is none."""

    seq: int
    at: int
    queue: str
    partition: str
    position: int
    transaction_id: str
    trace_id: str | None
    status: Status | None
    payload: bytes | None
    missing: str | None

    @property
    def deleted(self) -> bool:
        """Whether that is why there is no payload."""
        return self.missing == DELETED


def choose(past: Past, choice: Choice, seq: int, ring: KeyRing, progress: Progress) -> Iterator[Chosen]:
    """The messages as of record `seq`, in the order of their pushes. What is deleted by now comes without its payload.

    Raises `NotFound` where a queue, a group or a transactionId is named that was not there, `ChainBroken`."""
    then = _Then()
    for record in records(past, 0, seq):
        then.take(record)
        if record.seq % _EVERY == 0:
            progress(record.seq, seq)
    then.world.sum_up()
    slots = {number: slot for number, slot in then.world.catalogue.slots.items() if choice.takes(slot)}
    _refuse_unknown(choice, then.world)
    return _chosen(past, choice, seq, ring, then, slots)


def _chosen(
    past: Past, choice: Choice, seq: int, ring: KeyRing, then: "_Then", slots: dict[int, Slot]
) -> Iterator[Chosen]:
    gone = Gone(past)
    named = set(choice.transaction_ids)
    unseen = set(named)
    for record in records(past, 0, seq):
        pushed, slot = record.pushed, slots.get(record.partition)
        if pushed is None or slot is None or not _within(choice, shown(record)):
            continue
        for index, name in enumerate(transaction_ids(pushed)):
            if named and name not in named:
                continue
            unseen.discard(name)
            position = pushed.first + index
            group = _group(choice, slot)
            status = None if group is None else then.status(record.partition, group, position)
            if choice.status not in (None, status):
                continue
            deleted = gone(record.partition, position)
            yield _message(record, pushed, index, name, slot, status, ring, deleted=deleted)
    if unseen:
        raise NotFound(f"There is no message of transactionId {min(unseen)!r} among those.")


def _message(
    record: Record,
    pushed: MessagesPushed,
    index: int,
    name: str,
    slot: Slot,
    status: Status | None,
    ring: KeyRing,
    *,
    deleted: bool,
) -> Chosen:
    payload, missing = (None, DELETED) if deleted else open_payload(record, index, ring)
    return Chosen(
        seq=record.seq,
        at=shown(record),
        queue=slot.queue.name,
        partition=slot.name,
        position=pushed.first + index,
        transaction_id=name,
        trace_id=pushed.trace_ids[index] if pushed.trace_ids else None,
        status=status,
        payload=payload,
        missing=DELETED if payload is None and missing is None else missing,
    )


def _refuse_unknown(choice: Choice, world: World) -> None:
    queues = world.catalogue.queues
    if choice.queue is not None and choice.queue not in queues:
        raise NotFound(f"There is no queue {choice.queue!r} then.")
    if choice.group is not None and not any(choice.group in queue.groups for queue in queues.values()):
        raise NotFound(f"There is no consumer group {choice.group!r} then.")


def _within(choice: Choice, at: int) -> bool:
    return (choice.since is None or at >= choice.since) and (choice.until is None or at <= choice.until)


def _group(choice: Choice, slot: Slot) -> int | None:
    """The group's number in that queue, None where it has not met it."""
    if choice.group is None:
        return DEFAULT_GROUP
    found = slot.queue.groups.get(choice.group)
    return None if found is None else found.number


class _Then:
    """How everything was behind the last record taken, down to single messages."""

    def __init__(self) -> None:
        self.world = World()
        self._given_up: dict[tuple[int, int], dict[int, Status]] = {}
        self._begins: dict[tuple[int, int], int] = {}

    def take(self, record: Record) -> None:
        """The next record."""
        self.world.apply(record)
        for event in record.events:
            match event:
                case PartitionCreated():
                    self._begins[record.partition, DEFAULT_GROUP] = 1
                case GroupJoined() | GroupMoved():
                    key = record.partition, event.group
                    self._begins[key] = min(self._begins.get(key, event.cursor), event.cursor)
                case MessagesSettled() | MessagesRevived():
                    self._note(record.partition, event)

    def _note(self, partition: int, event: MessagesSettled | MessagesRevived) -> None:
        ends = self._given_up.setdefault((partition, event.group), {})
        outcome = event.outcome if isinstance(event, MessagesSettled) else "completed"
        for first, length, _ in event.runs:
            for position in range(first, first + length) if ends or outcome != "completed" else ():
                if outcome == "completed":
                    ends.pop(position, None)
                else:
                    ends[position] = outcome

    def status(self, partition: int, group: int, position: int) -> Status | None:
        """How a message was for a group; None where it was deleted, or never meant for the group."""
        state = self.world.states[partition]
        view = state.groups.get(group)
        if view is None or position in state.deleted:
            return None
        if position >= view.cursor:
            return "pending"
        message = view.open.get(position)
        if message is not None:
            return "pending" if message.lease is None else "processing"
        if position < self._begins.get((partition, group), 1):
            return None
        return self._given_up.get((partition, group), {}).get(position, "completed")

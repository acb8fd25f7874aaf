"""Questions about messages put to the engine: one message, a page of a list, what is related to a message.

Which messages there are is read from projections and asked of partitions; how they are, of partitions alone; what
they hold, of their durable records. Nothing here changes anything.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.engine import Engine
from queen.actors.mailbox import Part
from queen.actors.newest import Found, newest_pushed, newest_with
from queen.commands import Census, Look, Status
from queen.errors import NotFound
from queen.history import Place, PushedRun
from queen.messages import StoredMessage
from queen.names import DEFAULT_GROUP, SECOND, generated_transaction_id, message_id, uuid_text
from queen.replies import Glance
from queen.store.keyring import open_payload

RELATED = 3600 * SECOND
"""How far apart related messages may have been pushed."""


class Filter(NamedTuple):
    """Which messages a list is of; None excludes nothing."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    status: Status | None = None


def slots_of(engine: Engine, wanted: Filter) -> list[Slot]:
    """The partitions that the filter lets through."""
    found: list[Slot] = []
    for queue in queues_of(engine, wanted):
        if wanted.partition is None:
            found += queue.slots.values()
        elif wanted.partition in queue.slots:
            found.append(queue.slots[wanted.partition])
    return found


def queues_of(engine: Engine, wanted: Filter) -> list[Queue]:
    """The queues that the filter lets through."""
    queues = engine.core.catalogue.queues
    if wanted.queue is not None:
        named = queues.get(wanted.queue)
        candidates = [] if named is None else [named]
    else:
        candidates = list(queues.values())
    return [
        queue
        for queue in candidates
        if wanted.namespace in (None, queue.namespace) and wanted.task in (None, queue.task)
    ]


async def page(
    engine: Engine, slots: Sequence[Slot], status: Status | None, limit: int, offset: int, group: int = DEFAULT_GROUP
) -> list[StoredMessage]:
    """Messages newest first (S5), those at `offset` and the following ones."""
    if status is None:
        found = await newest_pushed(engine.core, slots, limit, offset)
    else:
        found = await newest_with(engine, slots, status, group, limit, offset)
    return await read(engine, found, group, status)


async def dead_letters(
    engine: Engine, queue: str | None, group: str | None, limit: int, offset: int
) -> tuple[list[StoredMessage], int]:
    """A group's dead letters, newest first, and how many there are in all. Numbers of groups are a queue's own, so a
    named group is looked at queue by queue."""
    if group is None:
        slots = slots_of(engine, Filter(queue))
        found = await newest_with(engine, slots, "dead_letter", DEFAULT_GROUP, limit, offset)
        messages = await read(engine, found, DEFAULT_GROUP, "dead_letter")
        return messages, sum(slot.counts.dead_letter for slot in slots)
    total = 0
    gathered: list[tuple[Found, int]] = []
    for owner in queues_of(engine, Filter(queue)):
        met = owner.groups.get(group)
        if met is not None:
            slots = [slot for slot in owner.slots.values() if _gave_up(engine, slot, met.number)]
            for progress in await engine.question([Part(slot, Census()) for slot in slots]):
                total += progress[met.number].dead_letter if progress is not None else 0
            found = await newest_with(engine, slots, "dead_letter", met.number, offset + limit, 0)
            gathered += [(each, met.number) for each in found]
    gathered.sort(reverse=True)
    chosen = gathered[offset : offset + limit]
    read_so_far: dict[tuple[Slot, int], StoredMessage] = {}
    for number in {number for _, number in chosen}:
        found = [each for each, its_number in chosen if its_number == number]
        for each, message in zip(found, await _read_each(engine, found, number, "dead_letter"), strict=True):
            if message is not None:
                read_so_far[each.slot, each.position] = message
    places = [(each.slot, each.position) for each, _ in chosen]
    return [read_so_far[place] for place in places if place in read_so_far], total


def _gave_up(engine: Engine, slot: Slot, group: int) -> bool:
    return next(engine.core.projections.given_up(slot.number, group, "dead_letter", 2**62), None) is not None


async def one(engine: Engine, transaction_id: str) -> tuple[StoredMessage, Queue]:
    """The message of that transactionId, and its queue. Raises `NotFound`."""
    slot, place = await locate(engine, transaction_id)
    found = await read(engine, _placed(engine, slot, [place.position]), DEFAULT_GROUP, None)
    if not found:
        raise NotFound(unknown(transaction_id))
    return found[0], slot.queue


async def related(engine: Engine, transaction_id: str, limit: int, offset: int) -> list[StoredMessage]:
    """Other messages of its partition, pushed at most an hour before or after it, newest first (Z13)."""
    slot, place = await locate(engine, transaction_id)
    own = engine.core.projections.run_of(slot.number, place.position)
    if own is None:
        raise NotFound(unknown(transaction_id))
    first = position_at(engine, slot, own.shown_at - RELATED)
    position = position_at(engine, slot, own.shown_at + RELATED + 1) - 1
    positions: list[int] = []
    while len(positions) < limit and (position := slot.deleted.last_before(position + 1)) >= first:
        if position != place.position:
            if offset:
                offset -= 1
            else:
                positions.append(position)
        position -= 1
    return await read(engine, _placed(engine, slot, positions), DEFAULT_GROUP, None)


async def read(engine: Engine, found: Sequence[Found], group: int, status: Status | None) -> list[StoredMessage]:
    """How these messages are and what they hold, in the same order. Left out is what is gone by now, or has another
    status than `status`."""
    return [message for message in await _read_each(engine, found, group, status) if message is not None]


async def _read_each(
    engine: Engine, found: Sequence[Found], group: int, status: Status | None
) -> list[StoredMessage | None]:
    by_slot: dict[Slot, list[int]] = {}
    for _, position, slot, _ in found:
        by_slot.setdefault(slot, []).append(position)
    replies = await engine.question([Part(slot, Look(group, tuple(places))) for slot, places in by_slot.items()])
    glances: dict[tuple[Slot, int], Glance] = {}
    for (slot, places), reply in zip(by_slot.items(), replies, strict=True):
        if reply is not None:
            glances.update(
                ((slot, place), glance) for place, glance in zip(places, reply, strict=True) if glance is not None
            )
    await engine.durable(None)
    shift = engine.core.clock.shift()
    messages: list[StoredMessage | None] = []
    for _, position, slot, run in found:
        glance = glances.get((slot, position))
        fits = glance is not None and status in (None, glance.status)
        messages.append(_message(engine, slot, position, run, glance, shift) if glance and fits else None)
    return messages


async def locate(engine: Engine, transaction_id: str) -> tuple[Slot, Place]:
    """Where the message is. Raises `NotFound`, once that is durable (law 3): who deletes it again is to rely on it."""
    place = engine.core.projections.find(transaction_id)
    if place is None:
        raise await engine.durable(NotFound(unknown(transaction_id)))
    return engine.core.catalogue.slots[place.partition], place


def holds_messages(engine: Engine, slot: Slot) -> bool:
    """Whether the partition has messages that are not deleted; those still on their way to the disk count."""
    newest = engine.core.projections.newest_run(slot.number)
    return newest is not None and slot.deleted.last_before(newest.first + newest.length) > 0


def holds_any(engine: Engine, slot: Slot) -> bool:
    """Whether anything was ever pushed to the partition."""
    return engine.core.projections.newest_run(slot.number) is not None


def unknown(transaction_id: str) -> str:
    """The sentence for a message that isn't there."""
    return f"there is no message of transactionId {transaction_id!r}"


def position_at(engine: Engine, slot: Slot, shown_at: int) -> int:
    """The first position of the partition whose message shows that time of creation or a later one; the one behind
    the last where there is none. By bisection: times of creation don't run backwards in a partition (N4)."""
    newest = engine.core.projections.newest_run(slot.number)
    if newest is None:
        return 1
    low, high = 1, newest.first + newest.length
    while low < high:
        middle = (low + high) // 2
        run = engine.core.projections.run_of(slot.number, middle)
        if run is None or run.shown_at >= shown_at:
            high = middle if run is None else max(low, run.first)
        else:
            low = run.first + run.length
    return low


def _placed(engine: Engine, slot: Slot, positions: Iterable[int]) -> list[Found]:
    found: list[Found] = []
    run: PushedRun | None = None
    for position in positions:
        if run is None or not run.first <= position < run.first + run.length:
            run = engine.core.projections.run_of(slot.number, position)
        if run is not None:
            found.append(Found.at(slot, position, run))
    return found


def _message(
    engine: Engine, slot: Slot, position: int, run: PushedRun, glance: Glance, shift: int
) -> StoredMessage | None:
    record = engine.core.records.read(run.seq)
    pushed = record.pushed
    assert pushed is not None, "a run points at its record"
    index = position - run.first
    shown, fault = open_payload(record, index, engine.core.ring)  # C4: listed all the same
    if shown is None and fault is None:
        return None
    base = int.from_bytes(pushed.base)
    given = pushed.transaction_ids[index] if pushed.transaction_ids else None
    queue = slot.queue
    ended_at = _shown(glance.ended_at, shift)
    return StoredMessage(
        id=uuid_text(message_id(base, index)),
        transaction_id=uuid_text(generated_transaction_id(base, index)) if given is None else given,
        queue=queue.name,
        partition=slot.name,
        namespace=queue.namespace,
        task=queue.task,
        payload=shown,
        encryption_error=fault,
        status=glance.status,
        worker=glance.worker,
        created_at=run.shown_at,
        locked_at=_shown(glance.leased_at, shift),
        completed_at=ended_at if glance.status == "completed" else None,
        failed_at=_shown(glance.failed_at, shift),
        error=glance.error,
        retry_count=glance.retry_count,
        lease_expires_at=_shown(glance.expires_at, shift),
        trace_id=pushed.trace_ids[index] if pushed.trace_ids else None,
        partition_id=uuid_text(int.from_bytes(slot.id)),
    )


def _shown(at: int | None, shift: int) -> int | None:
    return None if at is None else at + shift

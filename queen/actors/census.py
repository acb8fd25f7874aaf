"""How far consumer groups have got, counted over partitions, and moving them.

Partitions that are awake are asked; what the others hold is read as it lies, so that nobody is woken for a count.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import trio

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.engine import Engine
from queen.actors.inquiry import holds_any, position_at
from queen.actors.mailbox import Part
from queen.actors.partition import first_position
from queen.actors.partition_state import GroupView, Partition
from queen.actors.question_rules import progress
from queen.commands import Census, Seek
from queen.errors import NotFound
from queen.messages import Caller, GroupPlace, GroupStatus
from queen.names import SECOND
from queen.replies import Progress

READ_AT_ONCE = 100
"""Partitions that are read between two checkpoints."""
_END = 2**62


class _Sum(NamedTuple):
    position: int = 0
    end: int = 0
    pending: int = 0
    processing: int = 0
    oldest_at: int | None = None

    def plus(self, one: Progress) -> "_Sum":
        oldest = one.oldest_at if self.oldest_at is None else min(self.oldest_at, one.oldest_at or self.oldest_at)
        return _Sum(
            self.position + one.cursor - 1,
            self.end + one.end - 1,
            self.pending + one.pending,
            self.processing + one.processing,
            oldest,
        )


async def groups(engine: Engine, queue: str | None) -> list[GroupStatus]:
    """Every group, in every queue or in one; the default group first, the others by name."""
    queues = engine.core.catalogue.queues
    wanted = list(queues.values()) if queue is None else [queues[queue]] if queue in queues else []
    places: dict[str | None, list[GroupPlace]] = {}
    for owner in wanted:
        sums = await _sums(engine, owner)
        now = engine.core.clock.now()
        for name, found in sums.items():
            lag = 0.0 if found.oldest_at is None else max(0, now - found.oldest_at) / SECOND
            place = GroupPlace(
                queue=owner.name,
                position=found.position,
                end=found.end,
                pending=found.pending,
                processing=found.processing,
                lag_seconds=lag,
            )
            places.setdefault(name, []).append(place)
    await engine.durable(None)
    return [GroupStatus(name=name, queues=tuple(places[name])) for name in sorted(places, key=_order)]


async def _sums(engine: Engine, queue: Queue) -> dict[str | None, _Sum]:
    sums = {name: _Sum() for name in queue.groups}
    asked: list[Slot] = []
    for index, slot in enumerate([slot for slot in queue.slots.values() if holds_any(engine, slot)]):
        state = engine.house.resting(slot)
        if state is None:
            asked.append(slot)
        else:
            for name, found in _at_rest(engine, slot, state):
                sums[name] = sums.get(name, _Sum()).plus(found)
        if index % READ_AT_ONCE == READ_AT_ONCE - 1:
            await trio.lowlevel.checkpoint()
    replies: list[Any] = await engine.question([Part(slot, Census()) for slot in asked])
    for reply in replies:
        for name, group in queue.groups.items():
            if reply is not None and group.number in reply:
                sums[name] = sums.get(name, _Sum()).plus(reply[group.number])
    return sums


def _at_rest(engine: Engine, slot: Slot, state: Partition) -> Iterator[tuple[str | None, Progress]]:
    """What the partition would say if it were awake: groups that it has not met would begin then (G2)."""
    history = engine.core.projections.history(slot.number)
    for name, group in slot.queue.groups.items():
        view = state.groups.get(group.number)
        if view is None:
            first = first_position(state, history, group)
            view = GroupView(cursor=first, pending=state.live_from(first))
        yield name, progress(state, view, slot.queue.options, history)


async def seek(engine: Engine, group: str | None, queue: str, shown_at: int | None, caller: Caller) -> int:
    """G3: all partitions in one commit; returns the sum of their positions."""
    found = engine.core.catalogue.queues.get(queue)
    if found is None:
        raise await engine.durable(NotFound(f"there is no queue '{queue}'"))
    if group not in found.groups:
        raise await engine.durable(NotFound(f"queue '{queue}' has no consumer group '{group}'"))
    number = found.groups[group].number
    slots = [slot for slot in found.slots.values() if holds_any(engine, slot)]
    parts = [
        Part(slot, Seek(number, _END if shown_at is None else position_at(engine, slot, shown_at))) for slot in slots
    ]
    targets: list[int] = await engine.carry(parts, caller)
    return sum(target - 1 for target in targets)


def _order(name: str | None) -> tuple[bool, str]:
    return name is not None, name or ""

"""The newest messages of many partitions, without asking more of them than need be.

A record belongs to one partition, so newest first is: by the number of the record that pushed a message, descending,
and within it by position. Where only the order of pushing counts, projections know it all. Where a status counts,
partitions are asked, those first whose newest candidates are youngest, and no more once nothing newer can come.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple, Self

import trio

from queen.actors.catalogue_state import Slot
from queen.actors.core import Core
from queen.actors.engine import Engine
from queen.actors.mailbox import Part
from queen.commands import Status, Survey
from queen.history import PushedRun
from queen.replies import Surveyed

ASKED_AT_LEAST, ASKED_AT_ONCE = 32, 256
"""Partitions that one round of questions goes to."""
FIRST_COUNT, LAST_COUNT = 8, 512
"""Messages that a partition is asked for at first, and at last: twice as many each time."""
STEPS = 500
"""Steps between two checkpoints."""


class Found(NamedTuple):
    """A message, and the record that pushed it. In their natural order the newest is the greatest."""

    seq: int
    position: int
    slot: Slot
    run: PushedRun

    @classmethod
    def at(cls, slot: Slot, position: int, run: PushedRun) -> Self:
        """The message of that partition and position."""
        return cls(run.seq, position, slot, run)


class _Pushed:
    """One partition's messages, from the newest downwards; `position` is 0 behind the last one."""

    __slots__ = ("position", "run", "slot")

    def __init__(self, slot: Slot, run: PushedRun) -> None:
        self.slot = slot
        self.run = run
        self.position = run.first + run.length

    def step(self, core: Core, to: int) -> bool:
        """Go down to the nearest message at `to` or below; whether there is one."""
        self.position = max(0, self.slot.deleted.last_before(to + 1))
        if self.position and self.position < self.run.first:
            run = core.projections.run_of(self.slot.number, self.position)
            assert run is not None, "every position belongs to a record"
            self.run = run
        return self.position > 0


async def newest_pushed(core: Core, slots: Sequence[Slot], limit: int, offset: int) -> list[Found]:
    """Whatever their status. Costs a lookup per partition, and a step per record that is passed over."""
    heap: list[tuple[int, int, _Pushed]] = []
    for index, slot in enumerate(slots):
        run = core.projections.newest_run(slot.number)
        if run is not None:
            line = _Pushed(slot, run)
            if line.step(core, line.position - 1):
                heap.append((-line.run.seq, slot.number, line))
        if index % STEPS == STEPS - 1:
            await trio.lowlevel.checkpoint()
    heapify(heap)
    found: list[Found] = []
    steps = 0
    while heap and len(found) < limit:
        line = heap[0][2]
        left = line.position - line.run.first + 1
        if offset >= left and not line.slot.deleted:
            offset -= left
            more = line.step(core, line.run.first - 1)
        else:
            if offset:
                offset -= 1
            else:
                found.append(Found.at(line.slot, line.position, line.run))
            more = line.step(core, line.position - 1)
        if more:
            heapreplace(heap, (-line.run.seq, line.slot.number, line))
        else:
            heappop(heap)
        steps += 1
        if steps % STEPS == 0:
            await trio.lowlevel.checkpoint()
    return found


class _Source:
    """One partition's messages of a status: `bound` is the record above which there are none left to ask for."""

    __slots__ = ("below", "bound", "count", "slot")

    def __init__(self, slot: Slot, bound: int) -> None:
        self.slot = slot
        self.bound = bound
        self.below = 2**62
        self.count = FIRST_COUNT


async def newest_with(
    engine: Engine, slots: Sequence[Slot], status: Status, group: int, limit: int, offset: int
) -> list[Found]:
    """Those of one status for the group. Costs a lookup per partition that has any, a question for each that may have
    one of the wanted, and a step per message up to the wanted ones."""
    core = engine.core
    sources = []
    for index, slot in enumerate(slots):
        bound = _bound(core, slot, status, group)
        if bound:
            sources.append(_Source(slot, bound))
        if index % STEPS == STEPS - 1:
            await trio.lowlevel.checkpoint()
    wanted = offset + limit
    found: list[Found] = []
    while True:
        enough = found[wanted - 1].seq if len(found) >= wanted else 0
        left = [source for source in sources if source.bound and source.bound >= enough]
        sources = sorted(left, key=_bound_of, reverse=True)
        if not sources:
            return found[offset:wanted]
        asked = sources[: min(ASKED_AT_ONCE, max(ASKED_AT_LEAST, wanted - len(found)))]
        replies = await engine.question(
            [Part(source.slot, Survey(group, status, source.below, source.count)) for source in asked]
        )
        for source, reply in zip(asked, replies, strict=True):
            surveyed = reply or Surveyed((), 1)
            found += _placed(core, source.slot, surveyed)
            source.below = surveyed.below
            source.count = min(2 * source.count, LAST_COUNT)
            source.bound = _bound_below(core, source)
        found.sort(reverse=True)
        del found[wanted:]


def _bound(core: Core, slot: Slot, status: Status, group: int) -> int:
    """The newest record that can hold a message of that status; 0 where the partition has none."""
    past, counts = core.projections, slot.counts
    if status in ("failed", "dead_letter"):
        position = next(past.given_up(slot.number, group, status, 2**62), None)
        run = None if position is None else past.run_of(slot.number, position)
    elif group or status == "pending":
        run = None if not group and not counts.pending else past.newest_run(slot.number)
    else:
        counted = counts.processing if status == "processing" else counts.completed
        run = past.run_of(slot.number, slot.cursor - 1) if counted else None
    return 0 if run is None else run.seq


def _bound_below(core: Core, source: _Source) -> int:
    if source.below <= 1:
        return 0
    run = core.projections.run_of(source.slot.number, source.below - 1)
    return 0 if run is None else run.seq


def _placed(core: Core, slot: Slot, surveyed: Surveyed) -> list[Found]:
    found = []
    run: PushedRun | None = None
    for position in surveyed.positions:
        if run is None or not run.first <= position < run.first + run.length:
            run = core.projections.run_of(slot.number, position)
        if run is not None:
            found.append(Found.at(slot, position, run))
    return found


def _bound_of(source: _Source) -> int:
    return source.bound

"""The figures of a broker, as its `statistics`: asked for, never waited for longer than a commit takes.

All of them are kept up to date by events, so that a question costs what its answer has lines, however many messages
there are (S2). They are about what is durable: each answer waits for the commit of what it has counted.

Where `at` is given, an instant in µs or a text ("2026-11-30T10:04", "-5m", "#123" for a record's number), the answer is
about that instant instead. It is made from the journal, in a second or two at most, beside the event loop.
"""

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.core import Core
from queen.actors.engine import Engine
from queen.actors.sketch import Sketch
from queen.actors.tally import grouped, matching, overview, queue_figures, slots_of
from queen.audit.figures_then import namespaces_then, overview_then, queue_then, queues_then, tasks_then
from queen.errors import NotFound
from queen.figures import (
    Counts,
    GroupFigures,
    LagFigures,
    MinuteFigures,
    Overview,
    QueueFigures,
    QueueLag,
)
from queen.hindsight import Hindsight
from queen.names import check_name

ENOUGH = 5
"""A queue that has completed fewer messages has no lag to speak of (S4, Z6)."""
_SLICE = 256


class Reports:
    """See the module. Raises what every method of a broker does; a cancellation leaves nothing behind."""

    def __init__(self, running: Callable[[], Engine], hindsight: Hindsight) -> None:
        self._running = running
        self._hindsight = hindsight

    async def queues(
        self,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
        partitions: bool = True,
        at: int | str | None = None,
    ) -> list[QueueFigures]:
        """The queues that match all that is given, oldest first; with `partitions`, each with its partitions."""
        if at is not None:
            asked = partial(queues_then, queue=queue, namespace=namespace, task=task, partitions=partitions)
            return await self._hindsight.at(at, lambda past, world, moment: asked(world))
        engine = self._running()
        found = [queue_figures(each, partitions) for each in matching(engine.core.catalogue, queue, namespace, task)]
        return await engine.durable(found)

    async def queue(self, name: str, *, ages: bool = True, at: int | str | None = None) -> QueueFigures:
        """One queue, its partitions with their oldest and newest message if `ages`. Raises `NotFound` (Z11)."""
        if at is not None:
            return await self._hindsight.at(at, lambda past, world, moment: queue_then(past, world, name))
        check_name(name, "queue")
        engine = self._running()
        queue = engine.core.catalogue.queues.get(name)
        if queue is None:
            raise await engine.durable(NotFound(f"there is no queue {name!r}"))
        figures = queue_figures(queue, True)
        if not ages:
            return await engine.durable(figures)
        partitions = []
        for index, (slot, partition) in enumerate(zip(slots_of(queue), figures.partitions, strict=True)):
            oldest, newest = _ages(engine.core, slot)
            partitions.append(partition._replace(oldest=oldest, newest=newest))
            if index % _SLICE == _SLICE - 1:
                await trio.lowlevel.checkpoint()
        return await engine.durable(msgspec.structs.replace(figures, partitions=tuple(partitions)))

    async def throughput(self) -> list[MinuteFigures]:
        """The last 60 minutes, newest first, the one that runs included (S3)."""
        engine = self._running()
        clock = engine.core.clock
        return await engine.durable(engine.core.statistics.minutes(clock.now() + clock.shift()))

    async def lag(
        self, *, queue: str | None = None, namespace: str | None = None, task: str | None = None
    ) -> list[QueueLag]:
        """Queues that have completed at least 5 messages in the last 24 hours, and those of their partitions that
        completed any (S4, Z6)."""
        engine = self._running()
        lines: dict[Queue, list[tuple[Slot, Sketch]]] = {
            each: [] for each in matching(engine.core.catalogue, queue, namespace, task)
        }
        for number, lateness in sorted(engine.core.statistics.windows.items()):
            slot = engine.core.catalogue.slots.get(number)
            if slot is not None and slot.queue in lines:
                lines[slot.queue].append((slot, lateness.window))
        found = [
            _queue_lag(each, of_queue)
            for each, of_queue in lines.items()
            if sum([window.count for _, window in of_queue]) >= ENOUGH
        ]
        return await engine.durable(found)

    async def namespaces(self, *, at: int | str | None = None) -> list[GroupFigures]:
        """Every namespace, by name; queues without one count nowhere."""
        if at is not None:
            return await self._hindsight.at(at, lambda past, world, moment: namespaces_then(world))
        engine = self._running()
        return await engine.durable(grouped(engine.core.catalogue, lambda queue: queue.namespace))

    async def tasks(self, *, at: int | str | None = None) -> list[GroupFigures]:
        """Every task, by name; queues without one count nowhere."""
        if at is not None:
            return await self._hindsight.at(at, lambda past, world, moment: tasks_then(world))
        engine = self._running()
        return await engine.durable(grouped(engine.core.catalogue, lambda queue: queue.task))

    async def overview(self, *, at: int | str | None = None) -> Overview:
        """The sums over everything."""
        if at is not None:
            return await self._hindsight.at(at, lambda past, world, moment: overview_then(world, moment.at))
        engine = self._running()
        clock = engine.core.clock
        return await engine.durable(overview(engine.core.catalogue, clock.now() + clock.shift()))


def _ages(core: Core, slot: Slot) -> tuple[int | None, int | None]:
    """When the oldest and the newest message that still exist were created: looked up once, and again when one goes
    or comes. Every position that is not deleted has one of the five statuses, which gives the last one."""
    total = slot.counts.total
    if not total:
        return None, None
    first = slot.deleted.skip(1)
    last = slot.deleted.last_before(1 + total + slot.deleted.count_from(1))
    if slot.span is None or slot.span[:2] != (first, last):
        oldest = next(core.projections.runs(slot.number, first), None)
        newest = next(core.projections.runs(slot.number, last), None)
        if oldest is None or newest is None:
            return None, None  # the partition is being rebuilt
        slot.span = first, last, oldest.shown_at, newest.shown_at
    return slot.span[2:]


def _queue_lag(queue: Queue, lines: list[tuple[Slot, Sketch]]) -> QueueLag:
    together = Sketch()
    together.merge(*[window for _, window in lines])
    partitions = [(slot.name, _lag_figures(slot.counts, window)) for slot, window in lines]
    totals = _lag_figures(queue.counts, together)
    return QueueLag(queue.name, queue.namespace, queue.task, tuple(partitions), totals)


def _lag_figures(counts: Counts, window: Sketch) -> LagFigures:
    median, p95 = window.quantiles(0.5, 0.95)
    average = round(window.average)
    return LagFigures(counts.pending, counts.processing, window.count, average, round(median), round(p95))

"""The figures of a broker, as its `statistics`: asked for, never waited for longer than a commit takes.

All of them are kept up to date by events, so that a question costs what its answer has lines, however many messages
there are (S2). They are about what is durable: each answer waits for the commit of what it has counted.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec
import trio

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.core import Core
from queen.actors.engine import Engine
from queen.actors.sketch import Sketch
from queen.errors import NotFound
from queen.figures import (
    Counts,
    GroupFigures,
    LagFigures,
    MinuteFigures,
    Overview,
    PartitionFigures,
    QueueFigures,
    QueueLag,
    sum_of,
)
from queen.names import check_name, uuid_text

ENOUGH = 5
"""A queue that has completed fewer messages has no lag to speak of (S4, Z6)."""
_SLICE = 256


class Reports:
    """See the module. Raises what every method of a broker does; a cancellation leaves nothing behind."""

    def __init__(self, running: Callable[[], Engine]) -> None:
        self._running = running

    async def queues(
        self,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
        partitions: bool = True,
    ) -> list[QueueFigures]:
        """The queues that match all that is given, oldest first; with `partitions`, each with its partitions."""
        engine = self._running()
        found = [_queue_figures(each, partitions) for each in _matching(engine.core, queue, namespace, task)]
        return await engine.durable(found)

    async def queue(self, name: str, *, ages: bool = True) -> QueueFigures:
        """One queue, its partitions with their oldest and newest message if `ages`. Raises `NotFound` (Z11)."""
        check_name(name, "queue")
        engine = self._running()
        queue = engine.core.catalogue.queues.get(name)
        if queue is None:
            raise await engine.durable(NotFound(f"there is no queue {name!r}"))
        figures = _queue_figures(queue, True)
        if not ages:
            return await engine.durable(figures)
        partitions = []
        for index, (slot, partition) in enumerate(zip(_slots(queue), figures.partitions, strict=True)):
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
            each: [] for each in _matching(engine.core, queue, namespace, task)
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

    async def namespaces(self) -> list[GroupFigures]:
        """Every namespace, by name; queues without one count nowhere."""
        engine = self._running()
        return await engine.durable(_grouped(engine.core, lambda queue: queue.namespace))

    async def tasks(self) -> list[GroupFigures]:
        """Every task, by name; queues without one count nowhere."""
        engine = self._running()
        return await engine.durable(_grouped(engine.core, lambda queue: queue.task))

    async def overview(self) -> Overview:
        """The sums over everything."""
        engine = self._running()
        clock, queues = engine.core.clock, engine.core.catalogue.queues.values()
        return await engine.durable(
            Overview(
                len(queues),
                sum(len(queue.slots) for queue in queues),
                len({queue.namespace for queue in queues if queue.namespace is not None}),
                len({queue.task for queue in queues if queue.task is not None}),
                sum_of(queue.counts for queue in queues),
                clock.now() + clock.shift(),
            )
        )


def _matching(core: Core, queue: str | None, namespace: str | None, task: str | None) -> Iterator[Queue]:
    for where, name in (("queue", queue), ("namespace", namespace), ("task", task)):
        if name is not None:
            check_name(name, where)
    queues: Iterable[Queue]
    if queue is None:
        queues = core.catalogue.queues.values()
    else:
        found = core.catalogue.queues.get(queue)
        queues = [] if found is None else [found]
    for each in queues:
        if namespace in (None, each.namespace) and task in (None, each.task):
            yield each


def _slots(queue: Queue) -> list[Slot]:
    """The partitions in the order of their creation, which a restart does not keep in the catalogue."""
    return sorted(queue.slots.values(), key=lambda slot: slot.number)


def _queue_figures(queue: Queue, partitions: bool) -> QueueFigures:
    return QueueFigures(
        id=_id_text(queue.id),
        name=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        created_at=queue.created_at,
        options=queue.options,
        counts=queue.counts,
        partition_count=len(queue.slots),
        partitions=tuple(
            [PartitionFigures(_id_text(slot.id), slot.name, slot.created_at, slot.counts) for slot in _slots(queue)]
            if partitions
            else ()
        ),
    )


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


def _grouped(core: Core, key: Callable[[Queue], str | None]) -> list[GroupFigures]:
    groups: dict[str, list[Queue]] = {}
    for queue in core.catalogue.queues.values():
        name = key(queue)
        if name is not None:
            groups.setdefault(name, []).append(queue)
    return [
        GroupFigures(
            name,
            len(queues),
            sum(len(queue.slots) for queue in queues),
            sum_of(queue.counts for queue in queues),
        )
        for name, queues in sorted(groups.items())
    ]


def _id_text(id: bytes) -> str:
    return uuid_text(int.from_bytes(id))

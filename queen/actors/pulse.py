"""The pulse: while somebody listens, every few seconds, how much there is where (W1). Reads what partitions have told
the catalogue; the figures go out once what they rest on is durable.
"""

from itertools import islice

import trio

from queen.actors.catalogue_state import Queue
from queen.actors.core import Core
from queen.actors.telling import Told
from queen.notices import Notice, PartitionDepth, QueueDepth, SystemStatistics

EVERY_S = 5.0
"""Depths come this often, system statistics every second time."""
PARTITIONS = 1_000
"""A queue's first partitions are told one by one; its sums are of all."""
BUDGET = 2_000
"""Partitions told in one beat, about 3 ms of work; where there are more, queues take turns."""


class Pulse:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._feed = core.feed
        self._turn = 0

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await self._feed.wait_wanted()
            await trio.sleep(EVERY_S)
            self._tell_depths()
            await self._feed.wait_wanted()
            await trio.sleep(EVERY_S)
            self._tell_depths()
            self._tell_system()

    def _tell_depths(self) -> None:
        wanted = self._feed.queues_wanted()
        queues = [queue for name, queue in self._core.catalogue.queues.items() if wanted is None or name in wanted]
        left = BUDGET
        start = self._turn % len(queues) if queues else 0
        at = self._feed.now()
        for told, queue in enumerate(queues[start:] + queues[:start]):
            left -= min(len(queue.slots), PARTITIONS)
            if left < 0:
                self._turn = start + told
                return
            self._feed.observed(self._core, _depth_told(depth_of(queue, at)))
        self._turn = 0

    def _tell_system(self) -> None:
        notice = system_of(self._core, self._feed.now())
        self._feed.observed(self._core, Told(None, 1, lambda: (notice,), ("system",)))


def depth_of(queue: Queue, at: int) -> QueueDepth:
    """The queue's figures as they are now."""
    return QueueDepth(
        at=at,
        queue=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        counts=queue.counts,
        partitions=tuple(
            [
                PartitionDepth(at=at, queue=queue.name, partition=slot.name, counts=slot.counts)
                for slot in islice(queue.slots.values(), PARTITIONS)
            ]
        ),
    )


def system_of(core: Core, at: int) -> SystemStatistics:
    """All queues' figures as they are now."""
    pending = processing = 0
    for queue in core.catalogue.queues.values():
        pending += queue.counts.pending
        processing += queue.counts.processing
    flow = core.meter.recent.minute(core.clock.now())
    return SystemStatistics(
        at=at, pending=pending, processing=processing, created=flow.created, completed=flow.completed
    )


def _depth_told(depth: QueueDepth) -> Told:
    def notices() -> tuple[Notice, ...]:
        return (depth, *depth.partitions)

    return Told(depth.queue, 1 + len(depth.partitions), notices, ("depth", depth.queue))

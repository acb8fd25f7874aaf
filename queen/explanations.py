"""`broker.explain_pop`: why each partition of a queue would deliver now, or would not."""

from collections.abc import Callable, Sequence

import trio

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.engine import Engine
from queen.actors.explaining import NO_GROUP, explain
from queen.actors.mailbox import Part
from queen.checks import check_page
from queen.commands import Explain
from queen.errors import NotFound
from queen.figures import PopExplanation, QueueExplanation
from queen.names import check_name

_SLICE = 64


class Explanations:
    """Asks partitions that are awake, and reads those that sleep without waking them."""

    def __init__(self, running: Callable[[], Engine]) -> None:
        self._running = running

    async def pop(
        self,
        queue: str,
        partition: str | None = None,
        *,
        group: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> QueueExplanation:
        """Why each partition of a queue would deliver to a pop now, or would not: leased by whom until when, delayed,
        buffered, waiting for a retry, empty, quarantined, or sealed with a key that is not here. Changes nothing and
        wakes nobody. Those with pending messages come first. Raises `NotFound`."""
        check_name(queue, "queue")
        for where, name in (("partition", partition), ("consumerGroup", group)):
            if name is not None:
                check_name(name, where)
        check_page(limit, offset)
        engine = self._running()
        found = engine.core.catalogue.queues.get(queue)
        if found is None:
            raise NotFound(f"there is no queue '{queue}'")
        if partition is not None and partition not in found.slots:
            raise NotFound(f"queue '{queue}' has no partition '{partition}'")
        slots = _in_order(found) if partition is None else [found.slots[partition]]
        page = slots[offset : offset + limit]
        met = found.groups.get(group)
        number = NO_GROUP if met is None else met.number
        explained = await self._explained(engine, found, page, number)
        options = found.options
        shift = engine.core.clock.shift()
        return await engine.durable(
            QueueExplanation(queue, group, options.ordering, met is not None, len(slots), shift, tuple(explained))
        )

    async def _explained(self, engine: Engine, queue: Queue, page: Sequence[Slot], group: int) -> list[PopExplanation]:
        told: dict[Slot, PopExplanation] = {}
        asked: list[Slot] = []
        core = engine.core
        for index, slot in enumerate(page):
            if index % _SLICE == _SLICE - 1:
                await trio.lowlevel.checkpoint()
            if engine.house.is_quarantined(slot):
                told[slot] = PopExplanation(slot.name, "quarantined")
                continue
            state = engine.house.resting(slot) if slot.number in core.catalogue.slots else None
            if state is None:
                asked.append(slot)
            else:
                history, now = core.projections.history(slot.number), core.clock.now()
                told[slot] = explain(state, group, slot.name, now, queue.options, history, core.keys_lost)
        lost = tuple(sorted(core.keys_lost))
        parts = [Part(slot, Explain(group, slot.name, lost)) for slot in asked]
        told.update(zip(asked, await engine.question(parts), strict=True))
        return [told[slot] for slot in page if told[slot] is not None]


def _in_order(queue: Queue) -> list[Slot]:
    """Those that hold pending messages of the default group first, then by age; a look at the catalogue alone."""
    return sorted(queue.slots.values(), key=lambda slot: (not slot.counts.pending, slot.number))

"""Making queues and partitions: the asked-for ones, and those that a push finds missing (P5)."""

from queen.actors import catalogue_rules as rules
from queen.actors.admission import Plan, queue_full
from queen.actors.catalogue_state import Queue, Slot
from queen.actors.core import Core
from queen.actors.partition_state import Partition, evolve
from queen.actors.residents import Residents
from queen.messages import Caller
from queen.names import DEFAULT_PARTITION
from queen.options import DEFAULTS, QueueOptions


class Creation:
    """See the module. Each event is its own, in front of what needs it."""

    def __init__(self, core: Core, house: Residents) -> None:
        self._core = core
        self._house = house

    def slots(self, plan: Plan, caller: Caller) -> list[Slot]:
        """The partitions of a push, made where they are missing (P5)."""
        known = [self._core.catalogue.slot(*place) for place in plan.places]
        found_all = [slot for slot in known if slot is not None]
        if len(found_all) == len(known):
            return found_all
        find = self._core.projections.find
        missing = [place for place, slot in zip(plan.places, known, strict=True) if slot is None]
        missing = [place for place in missing if not plan.settle(place, find)]
        for queue in {queue for queue, _ in missing}:
            found = self._core.catalogue.queues.get(queue)
            if found is not None:
                queue_full(found, plan.count_new(queue, find))
        for queue, partition in missing:
            found = self._core.catalogue.queues.get(queue)
            if found is None:
                found = self.queue(queue, *plan.grouping(queue), DEFAULTS, caller)
            if partition not in found.slots:
                self._partition(found, partition, caller)
        return [self._core.catalogue.queues[queue].slots[partition] for queue, partition in plan.places]

    def queue(self, name: str, namespace: str | None, task: str | None, options: QueueOptions, caller: Caller) -> Queue:
        catalogue = self._core.catalogue
        event = rules.create_queue(catalogue, name, self._core.ids.block(), namespace, task, options)
        self._core.record_catalogue(event, caller)
        queue = catalogue.queues[name]
        self._partition(queue, DEFAULT_PARTITION, caller)  # Z12
        return queue

    def _partition(self, queue: Queue, name: str, caller: Caller) -> None:
        number = self._core.catalogue.next_partition
        event = rules.create_partition(queue, name, self._core.ids.block())
        seq = self._core.record_catalogue(event, caller, number)
        state = Partition(number)
        evolve(state, event, 0)
        slot = queue.slots[name]
        slot.deleted = state.deleted
        self._house.keep(slot, state, seq)

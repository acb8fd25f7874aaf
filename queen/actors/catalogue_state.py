"""Queues, their options, partitions and consumer groups, and `evolve`, the only code that changes them.

A `Slot` stands for a partition whether it is awake or not, so it is kept small: there may be a million. What a
slot holds beyond its name is told by its partition after each command, so that questions about whole queues cost
no look into any partition.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from queen.actors.ranges import NO_RANGES, RangeSet
from queen.events import (
    AnyEvent,
    ClockShifted,
    GroupDeleted,
    GroupStarted,
    PartitionCreated,
    QueueConfigured,
    QueueCreated,
    QueueDeleted,
)
from queen.figures import NONE, Counts
from queen.names import DEFAULT_GROUP
from queen.options import QueueOptions, changed


@dataclass(slots=True, eq=False)
class Group:
    """A consumer group of one queue and where it starts (G2), see `events.GroupStarted`.

    `recorded` is False until an event tells of it: a group that starts at the beginning writes nothing before
    it gets something."""

    number: int
    name: str | None
    after_seq: int = 0
    from_at: int = 0
    recorded: bool = True


class Groups(dict[str | None, Group]):
    """The consumer groups of one queue by name, and by number: partitions know them by their numbers alone."""

    def __init__(self) -> None:
        self._numbered: dict[int, Group] = {}
        self[None] = Group(DEFAULT_GROUP, None)

    def numbered(self, number: int) -> Group | None:
        """The group of that number, or None."""
        return self._numbered.get(number)

    def __setitem__(self, name: str | None, group: Group) -> None:
        if name in self:
            del self._numbered[self[name].number]
        super().__setitem__(name, group)
        self._numbered[group.number] = group

    def __delitem__(self, name: str | None) -> None:
        del self._numbered[self[name].number]
        super().__delitem__(name)


@dataclass(slots=True, eq=False)
class Queue:
    """One queue. `counts` are the sums over all partitions."""

    number: int
    id: bytes
    name: str
    namespace: str | None
    task: str | None
    options: QueueOptions
    created_at: int
    slots: dict[str, "Slot"] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
    next_group: int = DEFAULT_GROUP + 1
    counts: Counts = NONE
    seq: int = 0

    @property
    def depth(self) -> int:
        """What `maxSize` bounds (P6): pending + processing of the default group."""
        return self.counts.pending + self.counts.processing


@dataclass(slots=True, eq=False)
class Slot:
    """One partition's entry. `deleted` is the set of its state, or as that was when it fell asleep; `counts` are its
    messages by status (S1), `cursor` is the first position that the default group was never given.

    `span` is known once somebody has asked: first and last position that still exist, and when those were created."""

    number: int
    queue: Queue
    id: bytes
    name: str
    created_at: int
    deleted: RangeSet = field(default_factory=lambda: NO_RANGES)
    counts: Counts = NONE
    cursor: int = 1
    span: tuple[int, int, int, int] | None = None

    def tell(self, counts: Counts, cursor: int) -> None:
        """These are the partition's counts now, and part of its queue's; `cursor` is the default group's."""
        self.cursor = cursor
        if counts != self.counts:
            self.queue.counts = self.queue.counts.moved(self.counts, counts)
            self.counts = counts

    def rest(self) -> None:
        """Nobody is awake for the partition: hold in common with others what is mostly the same."""
        if not self.deleted:
            self.deleted = NO_RANGES
        self.counts = _shared(self.counts)


@lru_cache(maxsize=1024)
def _shared(counts: Counts) -> Counts:
    return counts


class Catalogue:
    """Everything that has a name."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.numbers: dict[int, Queue] = {}
        self.slots: dict[int, Slot] = {}
        self.next_queue = 1
        self.next_partition = 1

    def stored(self, partition: int, position: int) -> bool:
        """Whether the partition exists and the position is not deleted."""
        slot = self.slots.get(partition)
        return slot is not None and position not in slot.deleted

    def last_stored(self, partition: int, position: int) -> int:
        """The nearest position from `position` downwards that is not deleted; 0 where there is none."""
        slot = self.slots.get(partition)
        return 0 if slot is None else max(0, slot.deleted.last_before(position + 1))

    def slot(self, queue: str, partition: str) -> Slot | None:
        """The partition of that name, or None."""
        found = self.queues.get(queue)
        return None if found is None else found.slots.get(partition)

    def add(self, queue: Queue) -> None:
        """Take in a queue as a snapshot holds it."""
        self.queues[queue.name] = self.numbers[queue.number] = queue
        self.next_queue = max(self.next_queue, queue.number + 1)

    def count(self, event: AnyEvent, partition: int) -> None:
        """Never give a number twice, whatever has become of what an event of the past gave it to."""
        if isinstance(event, QueueCreated):
            self.next_queue = max(self.next_queue, event.queue + 1)
        elif isinstance(event, PartitionCreated):
            self.next_partition = max(self.next_partition, partition + 1)

    def add_slot(self, slot: Slot) -> None:
        """Take in a partition as a snapshot holds it."""
        self.slots[slot.number] = slot.queue.slots[slot.name] = slot
        self.next_partition = max(self.next_partition, slot.number + 1)


def queue_of(event: AnyEvent) -> int | None:
    """The queue that an event of the catalogue changes, None for other events."""
    match event:
        case QueueCreated() | QueueConfigured() | QueueDeleted() | PartitionCreated() | GroupStarted() | GroupDeleted():
            return event.queue
    return None


def replayed(catalogue: Catalogue, event: AnyEvent, partition: int) -> bool:
    """Whether the event changes nothing here: a newer snapshot has it already, or it is none of the catalogue's."""
    match event:
        case QueueCreated():
            return event.queue in catalogue.numbers
        case PartitionCreated():
            return partition in catalogue.slots or event.queue not in catalogue.numbers
        case QueueConfigured() | QueueDeleted() | GroupStarted() | GroupDeleted():
            return event.queue not in catalogue.numbers
    return True


def evolve(catalogue: Catalogue, seq: int, partition: int, event: AnyEvent, at: int, shift: int) -> None:
    """Apply one event; those that name nothing are passed over. `at + shift` is shown as the time of creation."""
    match event:
        case QueueCreated():
            options = options_from(event.options)
            queue = Queue(event.queue, event.id, event.name, event.namespace, event.task, options, at + shift, seq=seq)
            catalogue.add(queue)
        case QueueConfigured():
            queue = catalogue.numbers[event.queue]
            queue.namespace, queue.task = event.namespace, event.task
            queue.options = options_from(event.options)
            queue.seq = seq
        case QueueDeleted():
            queue = catalogue.numbers.pop(event.queue)
            del catalogue.queues[queue.name]
            for slot in queue.slots.values():
                del catalogue.slots[slot.number]
        case PartitionCreated():
            slot = Slot(partition, catalogue.numbers[event.queue], event.id, event.name, at + shift)
            catalogue.add_slot(slot)
        case GroupStarted():
            queue = catalogue.numbers[event.queue]
            queue.groups[event.name] = Group(event.group, event.name, event.after_seq, event.from_at)
            queue.next_group = max(queue.next_group, event.group + 1)
            queue.seq = seq
        case GroupDeleted():
            queue = catalogue.numbers[event.queue]
            group = queue.groups.numbered(event.group)
            if group is not None:
                del queue.groups[group.name]
            queue.seq = seq
        case ClockShifted():
            pass


def options_from(stored: dict[str, object]) -> QueueOptions:
    """Options as events and snapshots hold them."""
    return msgspec.convert(stored, QueueOptions)


def options_to(options: QueueOptions) -> dict[str, object]:
    """Undo `options_from`."""
    return changed(options)

"""Queues, their options, partitions and consumer groups, and `evolve`, the only code that changes them.

A `Slot` stands for a partition whether it is awake or not, so it is kept small: there may be a million. What a
slot holds beyond its name is told by its partition after each command, so that questions about whole queues cost
no look into any partition.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from queen.actors.ranges import RangeSet
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


@dataclass(slots=True, eq=False)
class Queue:
    """One queue. `depth` is pending + processing of the default group over all partitions (P6)."""

    number: int
    id: bytes
    name: str
    namespace: str | None
    task: str | None
    options: QueueOptions
    created_at: int
    slots: dict[str, "Slot"] = field(default_factory=dict)
    groups: dict[str | None, Group] = field(default_factory=lambda: {None: Group(DEFAULT_GROUP, None)})
    next_group: int = DEFAULT_GROUP + 1
    depth: int = 0
    seq: int = 0


class Standing(NamedTuple):
    """Where the default group stands in a partition, as the partition has told: its cursor and its counts."""

    cursor: int = 1
    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0


NOWHERE = Standing()


@dataclass(slots=True, eq=False)
class Slot:
    """One partition's entry. `deleted` is the partition's own set; `depth` its share of the queue's."""

    number: int
    queue: Queue
    id: bytes
    name: str
    created_at: int
    deleted: RangeSet = field(default_factory=RangeSet)
    depth: int = 0
    standing: Standing = NOWHERE


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
        return 0 if slot is None else max(0, slot.deleted.skip_back(position))

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
            queue.groups = {name: group for name, group in queue.groups.items() if group.number != event.group}
            queue.seq = seq
        case ClockShifted():
            pass


def options_from(stored: dict[str, object]) -> QueueOptions:
    """Options as events and snapshots hold them."""
    return msgspec.convert(stored, QueueOptions)


def options_to(options: QueueOptions) -> dict[str, object]:
    """Undo `options_from`."""
    return changed(options)

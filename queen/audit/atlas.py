"""Every name that ever was: queues, partitions and consumer groups by the numbers under which records speak of them.

Numbers are never given twice, not even once what had them is deleted, so one map does for all of the past.
"""

from typing import NamedTuple

from queen.audit.index import checkpoint, first_record, whole_records
from queen.audit.reading import Past
from queen.events import GroupStarted, PartitionCreated, QueueCreated, QueueDeleted
from queen.names import DEFAULT_GROUP
from queen.store.format import Record, partition_of, unpack


class PartitionName(NamedTuple):
    """A partition: the number of its queue, and its own name."""

    queue: int
    name: str


class Atlas:
    """See the module. `deleted` says which record deleted a queue.

    With projections, names of partitions are looked up as they are asked for; without, the journal is read once."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self.queues: dict[int, str] = {}
        self.groups: dict[tuple[int, int], str] = {}
        self.deleted: dict[int, int] = {}
        self._partitions: dict[int, PartitionName | None] = {}
        self._known = checkpoint(past)
        self._tail_read = False
        if self._known:
            for record in whole_records(past, 0):
                self.note(record)
        else:
            self._read_tail()

    def note(self, record: Record) -> None:
        """Take in one record, of the journal's end as it grows; twice does no harm."""
        for event in record.events:
            match event:
                case QueueCreated():
                    self.queues[event.queue] = event.name
                case QueueDeleted():
                    self.deleted[event.queue] = record.seq
                case PartitionCreated():
                    self._partitions[record.partition] = PartitionName(event.queue, event.name)
                case GroupStarted():
                    self.groups[event.queue, event.group] = event.name

    def partition(self, number: int) -> PartitionName | None:
        """A partition's name and queue, None where no record tells of it."""
        if number not in self._partitions and number:
            first = first_record(self._past, number)
            if first is not None:
                self.note(first)
            elif not self._tail_read:
                self._read_tail()
            self._partitions.setdefault(number, None)
        return self._partitions.get(number)

    def queue_of(self, partition: int) -> int | None:
        """The number of a partition's queue, or None."""
        found = self.partition(partition)
        return None if found is None else found.queue

    def group(self, queue: int | None, number: int) -> str | None:
        """A group's name, None for the default group."""
        if number == DEFAULT_GROUP or queue is None:
            return None
        return self.groups.get((queue, number), f"#{number}")

    def _read_tail(self) -> None:
        """What the projections don't hold. A partition's first record says its name, the catalogue's are of number 0:
        others are not taken apart."""
        for seq, frame in self._past.frames(self._known):
            number = partition_of(frame)
            if not number or number not in self._partitions:
                self.note(unpack(seq, frame))
        self._tail_read = True

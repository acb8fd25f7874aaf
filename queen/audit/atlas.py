"""Every name that ever was: queues, partitions and consumer groups by the numbers under which records speak of them.

Numbers are never given twice, not even once what had them is deleted, so one map does for all of the past.
"""

from typing import NamedTuple

from queen.audit.index import checkpoint, first_record, queue_records
from queen.audit.reading import Past
from queen.events import GroupStarted, PartitionCreated, QueueCreated
from queen.names import DEFAULT_GROUP
from queen.store.format import Record, partition_of, unpack


class PartitionName(NamedTuple):
    """A partition: the number of its queue, and its own name."""

    queue: int
    name: str


class Atlas:
    """See the module. Names are looked up as they are asked for; without projections, the journal is read once."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._known = checkpoint(past)
        self._tail_read = False
        self._queues: dict[int, str | None] = {}
        self._groups: dict[tuple[int, int], str] = {}
        self._partitions: dict[int, PartitionName | None] = {}

    def note(self, record: Record) -> None:
        """Take in one record, of the journal's end as it grows; twice does no harm."""
        for event in record.events:
            match event:
                case QueueCreated():
                    self._queues[event.queue] = event.name
                case PartitionCreated():
                    self._partitions[record.partition] = PartitionName(event.queue, event.name)
                case GroupStarted():
                    self._groups[event.queue, event.group] = event.name

    def queue(self, number: int) -> str | None:
        """A queue's name, None where no record tells of it."""
        if number not in self._queues:
            self._look(queue_records(self._past, number) if self._known else [])
            self._queues.setdefault(number, None)
        return self._queues[number]

    def partition(self, number: int) -> PartitionName | None:
        """A partition's name and queue, None where no record tells of it."""
        if number not in self._partitions and number:
            first = first_record(self._past, number)
            self._look([] if first is None else [first])
            self._partitions.setdefault(number, None)
        return self._partitions.get(number)

    def group(self, queue: int | None, number: int) -> str | None:
        """A group's name, None for the default group."""
        if number == DEFAULT_GROUP or queue is None:
            return None
        if (queue, number) not in self._groups:
            self._look(queue_records(self._past, queue) if self._known else [])
            self._groups.setdefault((queue, number), f"#{number}")
        return self._groups[queue, number]

    def _look(self, records: list[Record]) -> None:
        for record in records:
            self.note(record)
        if not records and not self._tail_read:
            self._read_tail()

    def _read_tail(self) -> None:
        """What the projections don't hold. A partition's first record says its name, the catalogue's are of number 0:
        others are not taken apart."""
        for seq, frame in self._past.frames(self._known):
            number = partition_of(frame)
            if not number or number not in self._partitions:
                self.note(unpack(seq, frame))
        self._tail_read = True

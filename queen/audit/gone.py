"""Which messages are deleted by now: their payloads are shown by no tool, also before they are erased (R5)."""

from queen.actors.ranges import RangeSet
from queen.actors.snapshots import unpack_partition
from queen.audit.index import checkpoint
from queen.audit.reading import Past
from queen.events import MessagesDeleted, PartitionCreated, QueueDeleted
from queen.store.format import Record, unpack
from queen.store.journal import Table
from queen.store.keys import u64


class Gone:
    """What is deleted as of when this is made; a snapshot tells of a partition, the newest records of the rest."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._known = checkpoint(past)
        self._queues: dict[int, int] = {}
        self._deleted: dict[int, RangeSet | None] = {}
        self._deleted_queues: set[int] = set()
        self._newer: dict[int, list[tuple[int, int]]] = {}
        for seq, frame in past.frames(self._known):
            self._note(unpack(seq, frame))

    def __call__(self, partition: int, position: int) -> bool:
        """Whether the message at that position is deleted, or its queue is."""
        deleted = self._of(partition)
        if deleted is None or self._queues[partition] in self._deleted_queues or position in deleted:
            return True
        return any(start <= position < stop for start, stop in self._newer.get(partition, ()))

    def _of(self, partition: int) -> RangeSet | None:
        """What the snapshot says: None where there is none any more."""
        if partition not in self._deleted:
            row = self._past.get(Table.PARTITIONS, u64(partition)) if self._known else None
            if row is None:
                self._deleted[partition] = None
            else:
                _, queue, _, _, _, state = unpack_partition(partition, row)
                self._queues[partition] = queue
                self._deleted[partition] = state.deleted
        return self._deleted[partition]

    def _note(self, record: Record) -> None:
        for event in record.events:
            match event:
                case PartitionCreated():
                    self._queues[record.partition] = event.queue
                    self._deleted[record.partition] = RangeSet()
                case QueueDeleted():
                    self._deleted_queues.add(event.queue)
                case MessagesDeleted():
                    spans = [(run.first, run.first + run.length) for run in event.runs]
                    self._newer.setdefault(record.partition, []).extend(spans)

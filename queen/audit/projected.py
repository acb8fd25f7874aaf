"""Whether the projections say what the records say, up to their checkpoint: row by row, as the journal is walked."""

from collections.abc import Iterator
from typing import Any, Final

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.partition_state import Partition
from queen.actors.snapshots import (
    CHECKPOINT,
    VERSION,
    Checkpoint,
    Summary,
    partition_row,
    queue_row,
    read_summary,
    without_summary,
)
from queen.audit.index import pushed_run
from queen.audit.reading import records
from queen.audit.tables import Tables, unpacked
from queen.audit.world import World
from queen.errors import Corrupt
from queen.events import QueueDeleted
from queen.names import DEFAULT_GROUP
from queen.store import keys
from queen.store.format import Record
from queen.store.journal import Change, Table
from queen.store.moments import read_row_key, row_key
from queen.store.projections import TAIL_LIMIT
from queen.store.tail import Tail
from queen.store.touches import read_touch

_COUNTED: Final = (Table.RUNS, Table.IDS, Table.SETTLEMENTS, Table.TOUCHES)
"""Tables whose rows name the record that they come from, so that rows too many can be told from newer ones."""


class Comparison:
    """Give it every record with the world behind it, in order, and then `finish`.

    A server that runs goes on writing meanwhile: a row may say what is newer than the checkpoint, never what is older.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._tail = Tail()
        self._settled: dict[bytes, bytes] = {}
        self._given_up: set[bytes] = set()
        self._expected: dict[Table, int] = dict.fromkeys(_COUNTED, 0)
        self._first: dict[int, int] = {}
        self._compared: set[int] = set()
        self._kept = 0
        self._snapshots = {keys.number(key): found.seq for key, found in self._summaries()}

    def _check_checkpoint(self) -> None:
        """A young store has none yet, and that of another Queen is no fault: its next start makes the tables anew."""
        value = self._tables.get(Table.META, CHECKPOINT)
        if value is None or self._tables.checkpoint:
            return
        row = unpacked(value)
        if row is None or len(row) < len(Checkpoint._fields) or row[-1] == VERSION:
            self._tables.fault(Table.META, "has a checkpoint that is not this journal's")

    def take(self, record: Record, world: World) -> None:
        """Look at what the tables should hold of a record."""
        if record.seq > self._tables.checkpoint:
            return
        self._tail.add(record.seq, record.partition, record.at, record.shift, record.events)
        if self._tail.size >= TAIL_LIMIT:
            self._compare_tail()
        self._first.setdefault(record.partition, record.seq)
        slot = world.catalogue.slots.get(record.partition)
        if slot is not None:
            self._compare_snapshots(slot, world.states[record.partition], record.seq)

    def finish(self, world: World) -> None:
        """Everything that can only be known in the end, and of a journal that is whole."""
        self._check_checkpoint()
        if not self._tables.checkpoint:
            return
        self._compare_tail()
        for key, expected in self._settled.items():
            self._compare_settled(key, expected)
        for key in self._given_up:
            if self._tables.get(Table.GIVEN_UP, key) is None:
                what = f"lacks a message that was given up at position {keys.read_given_up(key)}"
                self._tables.fault(Table.GIVEN_UP, what)
        for table in _COUNTED:
            found = sum(
                1 for key, value in self._tables.all(table) if _seq_of(table, key, value) <= self._tables.checkpoint
            )
            self._tables.rows += found
            if found > self._expected[table]:
                self._tables.fault(table, f"has {found - self._expected[table]} rows too many")
        self._finish_snapshots(world)
        self._finish_moments()
        self._finish_queues(world)

    def _finish_queues(self, world: World) -> None:
        for key, row in self._tables.unpacked(Table.QUEUES):
            queue = world.catalogue.numbers.get(keys.number(key))
            if queue is not None and row[1] == queue.seq and queue_row(queue) != _recorded(row, queue):
                self._tables.fault(Table.QUEUES, f"says something else of queue {queue.name!r} than the records do")
        for queue in world.catalogue.queues.values():
            missing = self._tables.get(Table.QUEUES, keys.u64(queue.number)) is None
            if missing and queue.seq <= self._tables.checkpoint and not self._deleted_since(queue, world):
                self._tables.fault(Table.QUEUES, f"lacks queue {queue.name!r}")

    def _deleted_since(self, queue: Queue, world: World) -> bool:
        """Whether a server that runs has deleted it meanwhile. To be asked when its rows are found to be gone."""
        later = records(self._tables.past, world.seq)
        return any(event == QueueDeleted(queue.number) for record in later for event in record.events)

    def _finish_snapshots(self, world: World) -> None:
        """Those that no record has led to: missing, or of some other partition."""
        for number, slot in world.catalogue.slots.items():
            if (
                number not in self._compared
                and self._first.get(number, self._tables.checkpoint + 1) <= self._tables.checkpoint
            ):
                where = f"{slot.queue.name}/{slot.name}"
                summary = _summary(self._tables.get(Table.PARTITIONS, keys.u64(number)))
                if summary is None:
                    if not self._deleted_since(slot.queue, world):
                        self._tables.fault(Table.PARTITIONS, f"lacks {where}")
                elif summary.seq <= self._tables.checkpoint:
                    self._tables.fault(
                        Table.PARTITIONS, f"says of {where} what none of its records says", seq=summary.seq
                    )

    def _finish_moments(self) -> None:
        rows = map(read_row_key, (key for key, _ in self._tables.all(Table.MOMENTS)))
        found = sum(1 for partition, seq in rows if partition and seq <= self._tables.checkpoint)
        if found > self._kept:
            self._tables.fault(Table.MOMENTS, f"has {found - self._kept} rows too many")

    def _compare_tail(self) -> None:
        tail, self._tail = self._tail, Tail()
        known = {key: self._settled.get(key) for key in tail.settled_keys()}
        for change in tail.changes(known):
            if change.table is Table.SETTLED:
                assert change.value is not None, "a row of SETTLED is never removed"
                self._settled[change.key] = change.value
            elif change.table is Table.GIVEN_UP:
                (self._given_up.discard if change.value is None else self._given_up.add)(change.key)
            elif change.table in self._expected:
                self._expected[change.table] += 1
                self._compare_row(change)

    def _compare_row(self, change: Change) -> None:
        found = self._tables.get(change.table, change.key)
        if found != change.value:
            seq = _seq_of(change.table, change.key, change.value or b"")
            self._tables.fault(change.table, "lacks a row" if found is None else "has a wrong row", seq=seq)

    def _compare_settled(self, key: bytes, expected: bytes) -> None:
        found = self._tables.get(Table.SETTLED, key)
        if found == expected:
            return
        if found is None:
            self._tables.fault(Table.SETTLED, "lacks a row")
            return
        for cell in range(0, len(expected), 8):
            seq, known = keys.number(expected[cell : cell + 8]), keys.number(found[cell : cell + 8])
            # 0: pending again, which a record behind the checkpoint may have brought.
            if seq != known and 0 < known <= self._tables.checkpoint:
                self._tables.fault(
                    Table.SETTLED, f"says that record {known} settled a message that record {seq} did", seq=seq
                )
                return

    def _compare_snapshots(self, slot: Slot, state: Partition, seq: int) -> None:
        """The partition's row, if it goes up to this very record, and one that was kept of this record."""
        kept = self._tables.get(Table.MOMENTS, row_key(slot.number, seq))
        if kept is not None:
            self._kept += 1
            self._compare_state(Table.MOMENTS, kept, slot, state, seq)
        if self._snapshots.get(slot.number) == seq:
            value = self._tables.get(Table.PARTITIONS, keys.u64(slot.number))
            summary = _summary(value)
            if value is not None and summary is not None:
                self._snapshots[slot.number] = summary.seq  # it may have been written anew since
                if summary.seq == seq:
                    self._compared.add(slot.number)
                    self._compare_summary(summary, slot, state)
                    self._compare_state(Table.PARTITIONS, without_summary(value), slot, state, seq)

    def _compare_summary(self, summary: Summary, slot: Slot, state: Partition) -> None:
        view = state.groups[DEFAULT_GROUP]
        said = (summary.queue, summary.id, summary.name, summary.created_at, summary.cursor, summary.counts)
        head = self._head_at(slot, state) if summary.head_at is not None else None
        if (*said, summary.head_at) != (
            *(slot.queue.number, slot.id, slot.name, slot.created_at, view.cursor, view.counts),
            head,
        ):
            where = f"{slot.queue.name}/{slot.name}"
            self._tables.fault(Table.PARTITIONS, f"sums up {where} otherwise than the records do", seq=summary.seq)

    def _head_at(self, slot: Slot, state: Partition) -> int:
        """When the oldest pending message was pushed, of a partition in which none waits or is deleted."""
        view = state.groups[DEFAULT_GROUP]
        run = pushed_run(self._tables.past, slot.number, view.cursor) if view.pending else None
        return 0 if run is None else run.pushed_at

    def _compare_state(self, table: Table, value: bytes, slot: Slot, state: Partition, seq: int) -> None:
        self._tables.rows += 1
        row = unpacked(value)
        expected = partition_row(slot, state, seq, set())
        known = {group[0] for group in expected[-1]}
        if row is not None:
            # A group that was deleted is dropped from a snapshot when its partition is next awake.
            row[-1] = [group for group in row[-1] if group[0] in known]
        if row != expected:
            self._tables.fault(
                table, f"says something else of {slot.queue.name}/{slot.name} than the records do", seq=seq
            )

    def _summaries(self) -> Iterator[tuple[bytes, Summary]]:
        for key, value in self._tables.all(Table.PARTITIONS):
            summary = _summary(value)
            if summary is None:
                self._tables.fault(Table.PARTITIONS, "has a row that can't be read")
            else:
                yield key, summary


def _seq_of(table: Table, key: bytes, value: bytes) -> int:
    """The record that a row comes from."""
    if table is Table.RUNS:
        return keys.read_run(key, value)[1].seq
    if table is Table.TOUCHES:
        return read_touch(key).seq
    if table is Table.SETTLEMENTS:
        return keys.read_settlement((key, value))[1]
    generated = keys.read_generated((key, value))
    return keys.read_named(key)[0] if generated is None else generated[1]


def _summary(value: bytes | None) -> Summary | None:
    try:
        return None if value is None else read_summary(value)
    except (Corrupt, ValueError):
        return None


def _recorded(row: list[Any], queue: Queue) -> list[Any]:
    """A queue's row without the numbers that groups have taken of whom no record tells yet (W5)."""
    *others, next_group, groups = row
    return [*others, queue.next_group if next_group > queue.next_group else next_group, groups]

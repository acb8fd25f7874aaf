"""The start: tables up to their checkpoint, then every record behind it through the same `evolve`s as live.

Derived data that does not fit the journal is no evidence: it is dropped and folded anew, and said. What is in the
journal is never dropped.
"""

from collections.abc import Iterator
from typing import Any

import structlog
import trio

from queen.actors import catalogue_state
from queen.actors.availability import timeless
from queen.actors.catalogue_state import Slot
from queen.actors.core import Core
from queen.actors.keeper import KEYS, NUMBERS, SLICE
from queen.actors.partition import forget_groups
from queen.actors.partition_state import Partition, evolve
from queen.actors.residents import Residents
from queen.actors.snapshots import (
    CHECKPOINT,
    VERSION,
    Checkpoint,
    partition_row,
    read_queue,
    read_summary,
    unpack_partition,
)
from queen.actors.statistics import MINUTES
from queen.errors import ChainBroken
from queen.events import PartitionCreated, QueueDeleted
from queen.names import DEFAULT_GROUP
from queen.store.chain import follow
from queen.store.format import ORIGIN, Record, digest_of, pack_row, partition_of, unpack, unpack_row
from queen.store.journal import Change, Table
from queen.store.keys import number, u64
from queen.store.moments import EVERY, Kept, moment_row, read_moment, row_key
from queen.store.projections import TAIL_LIMIT

log = structlog.get_logger()

_PAGE = 1000
_BREATH = 256
"""Records or rows between two moments for others: a server says meanwhile that it is starting."""


class Recovery:
    """Brings one incarnation from nothing to the state that the journal tells of."""

    def __init__(self, core: Core, house: Residents) -> None:
        self._core = core
        self._house = house
        self._states: dict[int, tuple[Partition, int]] = {}

    async def run(self) -> None:
        """Fold everything; afterwards the house, the catalogue and the router's lines are complete. Cancelled, the
        next start begins anew."""
        checkpoint = self._checkpoint()
        self._core.catalogue.next_queue, self._core.catalogue.next_partition = self._numbers()
        row = self._core.journal.get(Table.META, KEYS)
        self._core.keys_used.update(unpack_row(row) if row is not None else ())
        latest = read_moment(self._core.journal.floor(Table.MOMENTS, row_key(0, 2**64 - 1)))
        self._core.moment = 0 if latest is None else latest.seq
        self._read_queues()
        self._resume()
        self._read_statistics()
        self._read_touched({partition_of(frame) for _, frame in self._core.journal.frames(checkpoint.seq)})
        await self._fold(checkpoint)
        self._note_keys()
        self._house.checkpoint = checkpoint.seq
        # Only now, with the time and every option as they are: what the others have depends on both (T5).
        await self._read_others()
        for partition, (state, seq) in self._states.items():
            slot = self._core.catalogue.slots.get(partition)
            if slot is not None:
                slot.deleted = state.deleted
                self._house.keep(slot, state, seq)
                self._announce(slot, state)

    def _checkpoint(self) -> Checkpoint:
        row = self._core.journal.get(Table.META, CHECKPOINT)
        if row is not None:
            checkpoint = Checkpoint(*unpack_row(row))
            if checkpoint.version == VERSION and self._fits(checkpoint):
                return checkpoint
            log.warning("the projections are not this journal's or this Queen's; they are made anew", found=checkpoint)
        for table in Table:
            if table is not Table.META:
                self._core.journal.clear(table)
        return Checkpoint(0, ORIGIN)

    def _fits(self, checkpoint: Checkpoint) -> bool:
        if not checkpoint.seq:
            return True
        frame = self._core.journal.frame(checkpoint.seq)
        return frame is not None and digest_of(unpack(checkpoint.seq, frame)) == checkpoint.digest

    def _numbers(self) -> tuple[int, int]:
        row = self._core.journal.get(Table.META, NUMBERS)
        if row is None:
            return 1, 1
        queue, partition = unpack_row(row)
        return queue, partition

    def _read_queues(self) -> None:
        for key, values in self._rows(Table.QUEUES):
            self._core.catalogue.add(read_queue(key, values))

    def _resume(self) -> None:
        head = self._core.journal.head
        if head:
            last = self._core.records.read(head)
            self._core.clock.resume(last.at, last.shift)

    def _read_statistics(self) -> None:
        statistics = self._core.statistics
        start, stop = statistics.begin(self._core.clock.now())
        statistics.load(self._core.journal.get(Table.STATISTICS, MINUTES), self._scan(Table.STATISTICS, start, stop))

    def _read_touched(self, touched: set[int]) -> None:
        """Slots and states of the partitions that the records behind the checkpoint concern."""
        for partition in sorted(touched):
            row = self._core.journal.get(Table.PARTITIONS, u64(partition))
            if row is not None:
                self._read_partition(partition, row)

    async def _read_others(self) -> None:
        """Slots of all the other partitions; their states stay on disk, and most are not even looked at."""
        catalogue = self._core.catalogue
        for count, (key, row) in enumerate(self._scan(Table.PARTITIONS)):
            if count % _BREATH == 0:
                await trio.lowlevel.checkpoint()
            partition = number(key)
            if partition in catalogue.slots:
                continue
            summary = read_summary(row)
            if summary.seq > self._core.moment:
                self._core.changed_partitions.add(partition)
            queue = catalogue.numbers.get(summary.queue)
            if queue is None:
                self._core.gone_partitions.add(partition)  # its queue's deletion was cut off half way
            elif summary.head_at is None or not timeless(queue.options):
                slot = self._read_partition(partition, row)
                if slot is not None:
                    state, _ = self._states.pop(partition)
                    self._announce(slot, state)
                    slot.rest()
            else:
                slot = Slot(partition, queue, summary.id, summary.name, summary.created_at)
                catalogue.add_slot(slot)
                slot.tell(summary.counts, summary.cursor)
                slot.rest()
                if summary.head_at:
                    self._house.router.begin_with(slot, summary.head_at)

    def _read_partition(self, key: int, row: bytes) -> Slot | None:
        seq, queue_number, id, name, created_at, state = unpack_partition(key, row)
        queue = self._core.catalogue.numbers.get(queue_number)
        if queue is None:
            return None
        slot = Slot(key, queue, id, name, created_at, state.deleted)
        self._core.catalogue.add_slot(slot)
        self._states[key] = state, seq
        if seq > self._core.moment:
            self._core.changed_partitions.add(key)
        return slot

    def _rows(self, table: Table) -> Iterator[tuple[int, list[Any]]]:
        for key, value in self._scan(table):
            yield number(key), _checked(table, value)

    def _scan(self, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        while rows := self._core.journal.scan(table, start, stop, _PAGE):
            yield from rows
            start = rows[-1][0] + b"\0"

    async def _fold(self, checkpoint: Checkpoint) -> None:
        """Apply what the checkpoint does not cover."""
        for record, _ in follow(self._core.journal.frames(checkpoint.seq), checkpoint.seq, checkpoint.digest):
            if record.seq % _BREATH == 0:
                await trio.lowlevel.checkpoint()
            self._apply(record)
            if self._core.projections.size >= TAIL_LIMIT:
                self._write_tail()
            if record.seq - self._core.moment >= EVERY:
                self._write_moment(record.seq)

    def _apply(self, record: Record) -> None:
        catalogue = self._core.catalogue
        for event in record.events:
            queue = catalogue_state.queue_of(event)
            catalogue.count(event, record.partition)
            if isinstance(event, PartitionCreated) and event.queue not in catalogue.numbers:
                self._core.gone_partitions.add(record.partition)  # the queue's row went in a flush that was cut off
            if queue is not None and not catalogue_state.replayed(catalogue, event, record.partition):
                if isinstance(event, QueueDeleted):
                    self._core.gone_partitions.update(slot.number for slot in catalogue.numbers[queue].slots.values())
                catalogue_state.evolve(catalogue, record.seq, record.partition, event, record.at, record.shift)
                self._core.dirty_queues.add(queue)
        if record.pushed is not None and record.pushed.key is not None:
            self._core.keys_used.add(record.pushed.key)
        self._core.projections.add(record.seq, record.partition, record.at, record.shift, record.events)
        self._core.statistics.add(record.seq, record.partition, record.at, record.shift, record.events)
        if record.partition and record.partition in catalogue.slots:
            state, seq = self._states.get(record.partition) or (Partition(record.partition), 0)
            if record.seq > seq:
                for event in record.events:
                    evolve(state, event, record.at, record.shift)
                self._states[record.partition] = state, record.seq
                self._core.changed_partitions.add(record.partition)

    def _note_keys(self) -> None:
        core = self._core
        core.keys_lost = frozenset(core.keys_used) - core.ring.names
        if core.keys_lost:
            log.warning("messages may be encrypted with keys that are not here", keys=sorted(core.keys_lost))

    def _write_tail(self) -> None:
        """Keep memory bounded while a long journal is folded."""
        tail = self._core.projections.freeze()
        self._write(tail.changes(dict(self._core.projections.settled_rows(tail))))
        self._core.projections.written(tail)
        self._write_statistics()

    def _write_moment(self, seq: int) -> None:
        """Keep how everything is at this record, as the keeper does."""
        core = self._core
        rows = []
        for partition in sorted(core.changed_partitions & core.catalogue.slots.keys()):
            state, last = self._states[partition]
            row = partition_row(core.catalogue.slots[partition], state, last, set())
            rows.append(Change(Table.MOMENTS, row_key(partition, last), pack_row(row)))
        self._write([*rows, moment_row(Kept(seq, max([seq, *[self._states[each][1] for each in self._states]])))])
        core.moment = seq
        core.changed_partitions.clear()

    def _write_statistics(self) -> None:
        self._write(self._core.statistics.rows())
        self._core.statistics.written(self._core.statistics.seq)

    def _write(self, rows: list[Change]) -> None:
        for start in range(0, len(rows), SLICE):
            self._core.journal.commit(self._core.journal.head, (), rows[start : start + SLICE])

    def _announce(self, slot: Slot, state: Partition) -> None:
        forget_groups(state, slot.queue)
        view = state.groups[DEFAULT_GROUP]
        slot.tell(view.counts, view.cursor)
        self._house.speak_for(slot, state, DEFAULT_GROUP)
        for view in state.groups.values():
            for lease in view.leases:
                self._house.leases[lease] = slot


def _checked(table: Table, row: bytes) -> list[Any]:
    values = unpack_row(row)
    if values[0] != VERSION:
        raise ChainBroken(f"A row of {table} has an unknown version; rebuild the projections.")
    return values

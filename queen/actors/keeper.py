"""The keeper: writes what records have changed into the projections, in the background.

A checkpoint says: everything up to record S is in the tables. Snapshots may be newer than S; each says up to which
record it goes. So a partition's snapshot is made while others go on, and a start folds the records behind S,
leaving out what a snapshot has already.
"""

import structlog
import trio

from queen.actors.catalogue_state import Slot
from queen.actors.core import Core
from queen.actors.residents import Residents
from queen.actors.snapshots import CHECKPOINT, Checkpoint, queue_row, read_summary, without_summary
from queen.errors import StoreFull
from queen.events import ClockShifted
from queen.messages import Caller
from queen.store import moments
from queen.store.format import pack_row
from queen.store.journal import Change, Table
from queen.store.keys import erasure_key, erasure_value, u64
from queen.store.projections import TAIL_LIMIT
from queen.store.tail import Tail
from queen.store.writer import Runner

EVERY_S = 1.0
"""How long what is recorded may wait to be in the tables, in seconds."""
FULL_PAUSE_S = 5.0
"""How long the keeper leaves a full disk alone, in seconds."""
SLICE = 1024
"""Rows per commit, so that no push waits long for one."""
PACKED = 128
"""Rows of hours that are made in one go, some 20 µs each."""
SNAPSHOTS_AT_ONCE = 16
"""Snapshots made before others may run: one costs about 0.1 ms, and a thousand partitions may have changed."""
DIRTY_LIMIT = 2000
"""Changed partitions that are not left waiting for the interval."""

log = structlog.get_logger()

_SERVER = Caller("server")

NUMBERS = b"numbers"
KEYS = b"keys"


class Keeper:
    """See the module. `compute` runs what takes long away from the event loop."""

    def __init__(self, core: Core, house: Residents, compute: Runner) -> None:
        self._core = core
        self._house = house
        self._compute = compute
        self._shift = core.clock.shift()
        self._flushed = 0
        self._turn = trio.Lock()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            with trio.move_on_after(EVERY_S):
                while self._core.projections.size < TAIL_LIMIT and self._house.dirty < DIRTY_LIMIT:
                    await self._core.progress.wait()
                    self._core.progress = trio.Event()
            self._note_shift()
            try:
                await self.flush(everything=False)
                await self._forget_hours()
            except StoreFull as error:
                log.warning("no room for the projections; they are written when there is", reason=str(error))
                await trio.sleep(FULL_PAUSE_S)

    def _note_shift(self) -> None:
        """T6: after a jump of the wall clock, the next start must know how far it is off, whatever else happens."""
        shift = self._core.clock.shift()
        if shift != self._shift:
            self._shift = shift
            self._core.record_catalogue(ClockShifted(shift), _SERVER)

    async def flush(self, *, everything: bool = True) -> None:
        """Bring the tables up to now; of states that are dear to write, only those whose time has come, unless
        `everything` is wanted. Cancelled or failed half way, the checkpoint stays where it was, and all that was to be
        written then is written by the next one."""
        async with self._turn:
            await self._flush(everything)

    async def _flush(self, everything: bool) -> None:
        core = self._core
        if core.writer.seq == self._house.checkpoint:
            return
        everything = everything or core.writer.seq == self._flushed  # nobody is held up where nothing happens
        self._flushed = core.writer.seq
        checkpoint = Checkpoint(core.writer.seq, core.writer.digest)
        core.projections.freeze()
        slots, queues = self._house.take_dirty(everything=everything), sorted(core.dirty_queues)
        core.dirty_queues.clear()
        gone, core.gone_partitions = core.gone_partitions, set()
        done = False
        try:
            await self._write_tails()
            await self._write_statistics()
            complete = await self._write_states(slots, queues, gone, checkpoint)
            core.changed_partitions.update([slot.number for slot in slots])
            if complete and checkpoint.seq - core.moment >= moments.EVERY:
                await self._write_moment(checkpoint.seq)
            done = True
        finally:
            if not done:
                self._house.still_dirty(slots)
                core.dirty_queues.update(queues)
                core.gone_partitions |= gone
        self._house.retire(slots)
        if complete:
            self._house.checkpoint = checkpoint.seq

    async def _write_tails(self) -> None:
        """Oldest first, one after another: each completes rows that the one before it has written."""
        core = self._core
        for tail in core.projections.frozen():
            # Read here and not where the rows are made: the journal has one reading thread, which may move its map.
            settled: dict[bytes, bytes | None] = {}
            for key, row in core.projections.settled_rows(tail):
                settled[key] = row
                if len(settled) % SLICE == 0:
                    await trio.lowlevel.checkpoint()
            rows: list[Change] = []

            def compute(
                tail: Tail = tail, settled: dict[bytes, bytes | None] = settled, rows: list[Change] = rows
            ) -> None:
                rows.extend(tail.changes(settled))

            await self._compute(compute)
            await self._write_all(rows)
            core.projections.written(tail)
            if tail.erases:
                core.erasable.set()

    async def _write_statistics(self) -> None:
        statistics = self._core.statistics
        places, seq = statistics.unwritten(), statistics.seq
        rows: list[Change] = []
        for place in places:
            rows.append(statistics.row(place))
            if len(rows) % PACKED == 0:
                await trio.lowlevel.checkpoint()
        await self._write_all([*rows, statistics.minutes_row()])
        statistics.written(seq)

    async def _forget_hours(self) -> None:
        """S4: some of the hours that have left the window, if there are any; right behind a `flush`, which has written
        all that is not of the running hour or the one before."""
        statistics = self._core.statistics
        rows = self._core.journal.scan(Table.STATISTICS, *statistics.ended(self._core.clock.now()), SLICE)
        if rows:
            await self._write_all([Change(Table.STATISTICS, key, None) for key, _ in rows])
            statistics.forget(rows)

    async def _write_states(self, slots: list[Slot], queues: list[int], gone: set[int], checkpoint: Checkpoint) -> bool:
        """Snapshots, and behind them the checkpoint, unless a state is missing: says so."""
        core = self._core
        rows: list[Change] = [Change(Table.QUEUES, u64(number), _queue_value(core, number)) for number in queues]
        for number in sorted(gone):
            rows += _removal(core, number)
        complete = self._house.complete
        for index, slot in enumerate(slots):
            if slot.number not in core.catalogue.slots:
                rows += _removal(core, slot.number)  # deleted since; a start from here could not know of it
                continue
            snapshot = self._house.snapshot(slot)
            complete = complete and snapshot is not None
            rows += [snapshot] if snapshot is not None else []
            if index % SNAPSHOTS_AT_ONCE == SNAPSHOTS_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
        numbers = pack_row([core.catalogue.next_queue, core.catalogue.next_partition])
        rows.append(Change(Table.META, NUMBERS, numbers))
        if core.keys_used:
            rows.append(Change(Table.META, KEYS, pack_row(sorted(core.keys_used))))
        if complete:
            rows.append(Change(Table.META, CHECKPOINT, pack_row(list(checkpoint))))
        await self._write_all(rows)
        if gone:
            core.erasable.set()
        return complete

    async def _write_moment(self, seq: int) -> None:
        """Keep the rows as they are now: for the past's sake alone, no start looks at them."""
        core = self._core
        rows: list[Change] = []
        last = seq
        for index, partition in enumerate(sorted(core.changed_partitions)):
            value = core.journal.get(Table.PARTITIONS, u64(partition))
            if value is not None:
                row_seq = read_summary(value).seq
                last = max(last, row_seq)
                rows.append(Change(Table.MOMENTS, moments.row_key(partition, row_seq), without_summary(value)))
            if index % PACKED == PACKED - 1:
                await trio.lowlevel.checkpoint()
        await self._write_all([*rows, moments.moment_row(moments.Kept(seq, last))])
        core.moment = seq
        core.changed_partitions.clear()

    async def _write_all(self, rows: list[Change]) -> None:
        for start in range(0, len(rows), SLICE):
            async with self._core.turn:
                await self._core.writer.save(rows[start : start + SLICE])


def _removal(core: Core, partition: int) -> list[Change]:
    """The partition's queue was deleted: its payloads are to be erased (R5), and its row goes. Where its messages lie
    stays known, for the eraser."""
    rows = [Change(Table.PARTITIONS, u64(partition), None)]
    newest = core.projections.newest_run(partition)
    if newest is not None:
        # Positions begin at 1: no other row has this key.
        rows.insert(0, Change(Table.ERASURES, erasure_key(partition, 0), erasure_value(newest.first + newest.length)))
    return rows


def _queue_value(core: Core, number: int) -> bytes | None:
    queue = core.catalogue.numbers.get(number)
    return None if queue is None else pack_row(queue_row(queue))

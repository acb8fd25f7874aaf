"""The eraser: takes the payloads of deleted messages out of their records (R5, T4), in the background.

What is to be erased stands in the table ERASURES, which is written with the deletions' own rows and emptied as the
work is done; so it goes on after a crash, and doing a part of it twice does no harm. A record keeps its facts and
its digest: the chain stays whole, and what is gone has left its tombstone.
"""

from typing import NamedTuple

import structlog
import trio

from queen.actors.core import Core
from queen.errors import ChainBroken, StoreFull
from queen.store import keys
from queen.store.format import erase, unpack
from queen.store.journal import Change, Edit, Replacement, Table
from queen.store.writer import Runner

log = structlog.get_logger()

GATHER_S = 5.0
"""How long a deletion waits for others: a record is written anew once for all its messages that go together."""
RECORDS = 64
BYTES = 256 * 1024
"""Records, and bytes of them, per commit, so that no push waits long for one. One record may be longer by itself."""
FULL_PAUSE_S = 5.0
"""Between attempts while the disk is full."""
_ROWS = 256


class Step(NamedTuple):
    """What one commit erases: payloads by record and index, their frames as they are, and what becomes of the rows."""

    wanted: dict[int, set[int]]
    frames: dict[int, bytes]
    rows: list[Change]


class Eraser:
    """See the module. `compute` runs what takes long away from the event loop."""

    def __init__(self, core: Core, compute: Runner) -> None:
        self._core = core
        self._compute = compute
        self._turn = trio.Lock()

    async def run(self) -> None:
        """Erase until cancelled."""
        while True:
            try:
                await self.sweep(pausing=True)
            except StoreFull as error:
                log.warning("no room to erase deleted payloads; they are erased when there is", reason=str(error))
                await trio.sleep(FULL_PAUSE_S)
                continue
            await self._core.erasable.wait()
            self._core.erasable = trio.Event()
            await trio.sleep(GATHER_S)

    async def sweep(self, *, pausing: bool = False) -> None:
        """Erase all that is in the table, `pausing` as long as each step took, so that others get half of the disk.
        Cancelled or failed half way, what is left is left for the next one."""
        async with self._turn:
            while (step := self._plan()) is not None:
                began = trio.current_time()
                await self._carry_out(step)
                if pausing:
                    await trio.sleep(trio.current_time() - began)

    def _plan(self) -> Step | None:
        """The next step, from the first rows of the table; None where there are none."""
        step = Step({}, {}, [])
        rows = self._core.journal.scan(Table.ERASURES, b"", None, _ROWS)
        size = 0
        for key, value in rows:
            partition, first, stop = keys.read_erasure(key, value)
            step.rows.append(Change(Table.ERASURES, key, None))
            for run in self._core.projections.runs(partition, first):
                if run.first >= stop:
                    break
                if run.seq not in step.frames:
                    if size >= BYTES or len(step.frames) >= RECORDS:
                        # The rest of the row, under the key of what is left of it.
                        rest = max(first, run.first)
                        row = keys.erasure_key(partition, rest), keys.erasure_value(stop - rest)
                        step.rows.append(Change(Table.ERASURES, *row))
                        return step
                    frame = self._core.journal.frame(run.seq)
                    if frame is None:
                        raise ChainBroken(f"Record {run.seq} is missing.")
                    step.frames[run.seq] = frame
                    size += len(frame)
                indexes = range(max(first, run.first) - run.first, min(stop, run.first + run.length) - run.first)
                step.wanted.setdefault(run.seq, set()).update(indexes)
        return step if rows else None

    async def _carry_out(self, step: Step) -> None:
        edits: list[Edit] = list(step.rows)

        def compute() -> None:
            edits.extend(erased(step.wanted, step.frames))

        await self._compute(compute)
        async with self._core.turn:
            await self._core.writer.save(edits)
        for seq in step.wanted:
            self._core.records.forget(seq)


def erased(wanted: dict[int, set[int]], frames: dict[int, bytes]) -> list[Replacement]:
    """The frames without the wanted payloads; those that have none of them any more are left out."""
    replaced = []
    for seq, indexes in wanted.items():
        record = unpack(seq, frames[seq])
        if any(record.payload(index) is not None for index in indexes):
            replaced.append(Replacement(seq, erase(seq, frames[seq], indexes)))
    return replaced

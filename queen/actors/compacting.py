"""Compaction from an asker's side: what is deleted is erased, then the journal's file is made anew. Knows no LMDB."""

import trio

from queen.errors import QueenError
from queen.replies import Compacted
from queen.store.journal import Compaction, Journal
from queen.store.writer import Runner


async def compacted(journal: Journal, runner: Runner) -> Compacted:
    """Make the journal's file anew, the long part of it through `runner`. Raises what `Compaction` raises. Cancelled,
    it ends soon; the file is the old one then, or the new one if it was there already."""
    compaction = journal.compaction()
    failure: QueenError | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_when_cancelled, compaction)
            try:
                await runner(compaction.prepare)
            except QueenError as error:
                failure = error
            nursery.cancel_scope.cancel()
    finally:
        # Whatever happened: after a `prepare` that came through, commits wait for this.
        done = compaction.finish()
        with trio.CancelScope(shield=True):
            await runner(compaction.dispose)
    if failure is not None:
        raise failure
    return done


async def _stop_when_cancelled(compaction: Compaction) -> None:
    try:
        await trio.sleep_forever()
    finally:
        compaction.stop()

"""Opening a broker: the data folder, the journal, and the supervisor that runs one engine after another.

A broker outlives its engine: where a commit fails with nothing written, the engine is started anew from the
journal; where a commit's outcome is unknown, the broker takes no more work, since nobody knows what the disk holds.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf
from pathlib import Path
from typing import Any

import structlog
import trio

from queen.actors.engine import Engine
from queen.actors.snapshots import CHECKPOINT
from queen.broker import Broker
from queen.clock import Clock, Ids, SystemClock
from queen.errors import QueenError, StoreFailed, StoreFull, Unavailable, leaves, traced
from queen.store.data_dir import DataFolder
from queen.store.journal import Change, Journal, Table
from queen.store.keyring import NO_KEYS, KeyRing
from queen.store.lmdb_journal import MAP_SIZE, RESERVE, LmdbJournal
from queen.store.memory_journal import MemoryJournal
from queen.store.writer import CommitThread, Runner

log = structlog.get_logger()

_DRAIN_S = 3.0
"""How long work that is under way may take when the broker closes."""
_PAUSE_S = 0.2
"""Between an engine's end and the next one's start."""
_TOLD_EVERY_S = 60.0
"""How often the log says that the disk is full."""


@asynccontextmanager
async def open_broker(
    path: "str | os.PathLike[str] | None",
    *,
    map_size: int = MAP_SIZE,
    reserve: int = RESERVE,
    keys: KeyRing = NO_KEYS,
    clock: Clock | None = None,
    ids: Ids | None = None,
    journal: Journal | None = None,
    runner: Runner | None = None,
    wait: bool = True,
) -> AsyncIterator[Broker]:
    """A broker over the data folder `path`, made if there is none; None keeps everything in memory, for tests.

    `map_size` (bytes) is how much of the file is mapped at first; `reserve` (bytes) is what pushes leave free on
    the disk for acknowledgements and deletions. `keys` seal and open the messages of queues with `encryptionEnabled`
    (C4). `clock`, `ids`, `journal` and `runner` are for simulations. Without `wait`, the broker is given before it has
    read the journal, and refuses work until it has; a failure to start then ends the block.

    Raises `FolderLocked`, `FormatUnknown`, `ChainBroken`, `OSError`. On leaving, work that is under way is
    finished and snapshots are written.
    """
    clock = clock or SystemClock()
    with _journal(path, journal, map_size, reserve) as opened, CommitThread() as thread:
        in_memory = not isinstance(opened, LmdbJournal)
        runner = runner or (inline if in_memory else thread.run)
        compute = inline if in_memory else background
        numbers = ids or Ids(clock)
        broker = Broker(clock, numbers)

        def start() -> Engine:
            return Engine(opened, clock, numbers, runner, compute, broker.feed, keys)

        # What the body raises is raised as it is, not as part of the nursery's group.
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.renewals.run)
            try:
                if wait:
                    await nursery.start(supervise, broker, start, opened)
                else:
                    nursery.start_soon(supervise, broker, start, opened)
                yield broker
            except Exception as error:
                failure = error
            finally:
                with trio.move_on_after(_DRAIN_S, shield=True):
                    await broker.drain()
                broker.stop()
                if not broker.started:
                    nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure


async def supervise(
    broker: Broker, start: Any, journal: Journal, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED
) -> None:
    """Run one engine after another until the broker closes. The first one's failure to start is raised."""
    started = False
    told_at = -inf
    while True:
        engine = start()
        failure: QueenError | None = None
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(engine.run)
                broker.attach(engine)
                if not started:
                    started = True
                    task_status.started()
        except* Exception as group:
            failure = _cause(group)
            if isinstance(failure, StoreFull):
                # Nothing is wrong but the room, and as long as that is so, each try ends like this.
                if trio.current_time() - told_at >= _TOLD_EVERY_S:
                    told_at = trio.current_time()
                    log.warning("a commit found no room; going on from what is stored", reason=str(failure))
            elif started:
                log.error("the engine has failed", exception=traced(group))
        broker.detach(failure)
        if failure is None or broker.closed:
            return
        if not started:
            raise failure
        if isinstance(failure, StoreFailed):
            await broker.wait_stopped()
            return
        with trio.move_on_after(_PAUSE_S):
            await broker.wait_stopped()
            return
        journal.maintain()


async def inline(call: Any) -> None:
    """A runner for journals in memory: no thread, so that simulated time stands still meanwhile."""
    await trio.lowlevel.checkpoint()
    call()


async def background(call: Any) -> None:
    """A runner beside the writer's."""
    await trio.to_thread.run_sync(call, abandon_on_cancel=False)


@contextmanager
def _journal(path: Any, journal: Journal | None, map_size: int, reserve: int) -> Iterator[Journal]:
    if journal is not None:
        yield journal
    elif path is None:
        yield MemoryJournal()
    else:
        with DataFolder.open(Path(path)) as folder:
            opened = LmdbJournal.open(folder.journal, map_size=map_size, reserve=reserve)
            try:
                yield opened
            finally:
                opened.close()


def forget_projections(path: "str | os.PathLike[str]") -> None:
    """Let the next opening of this data folder make all projections anew from the journal. Raises `FolderLocked`."""
    with _journal(path, None, MAP_SIZE, RESERVE) as journal:
        journal.commit(journal.head, (), [Change(Table.META, CHECKPOINT, None)])


def _cause(group: BaseExceptionGroup[Exception]) -> QueenError:
    """The gravest error of a group of groups, else the first; what is none of ours becomes one."""
    errors = list(leaves(group))
    for kind in (StoreFailed, QueenError):
        found = next((error for error in errors if isinstance(error, kind)), None)
        if found is not None:
            return found
    wrapped = Unavailable("the engine has failed and is started anew")
    wrapped.__cause__ = errors[0]
    return wrapped

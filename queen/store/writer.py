"""The one writer: numbers and chains records, gathers what arrives while a commit runs into the next one, and
calls back in order once it is synced. Nobody is told anything that is not durable, because every answer goes
through `then`, also one that rests on nothing newer than what has been handed in.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, Self

import trio

from queen.errors import Conflict, QueenError, StoreFailed, StoreFull
from queen.events import AnyEvent
from queen.meter import Meter
from queen.store.format import ORIGIN, digest_of, pack, unpack
from queen.store.journal import Edit, Journal

PENDING_BYTES = 64 * 1024 * 1024
"""Frames that may wait for the disk; past it, pushes are told to come back."""

Then = Callable[[QueenError | None], None]
Job = Callable[[], Sequence[Edit]]


class Runner(Protocol):
    """Runs a blocking call away from the event loop: a thread, or (in simulations) a pause of simulated time."""

    async def __call__(self, call: Callable[[], Any]) -> None: ...


class CommitThread:
    """A thread for nothing but commits: to hand one over costs half of what a thread from a pool takes, which is much
    of what a lone commit costs. A context manager; it starts when it is first needed."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Callable[[], None], list[BaseException]] | None]
        self._calls = SimpleQueue()
        self._thread: Thread | None = None

    async def run(self, call: Callable[[], Any]) -> None:
        """A `Runner`: waits for the end of the call, whatever is cancelled meanwhile."""
        if self._thread is None:
            self._thread = Thread(target=self._serve, name="commits", daemon=True)
            self._thread.start()
        token, task = trio.lowlevel.current_trio_token(), trio.lowlevel.current_task()
        errors: list[BaseException] = []
        self._calls.put((call, partial(token.run_sync_soon, trio.lowlevel.reschedule, task), errors))
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        if errors:
            raise errors.pop()

    def _serve(self) -> None:
        while (handed := self._calls.get()) is not None:
            call, done, errors = handed
            try:
                call()
            except BaseException as error:
                errors.append(error)
            with suppress(trio.RunFinishedError):
                done()
            del handed, call, done, errors  # what was written is not to be kept until the next commit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()


class _Group:
    """What one commit holds."""

    __slots__ = ("frames", "size", "thens")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.size = 0
        self.thens: list[Then] = []


class Writer:
    """Group commit over one journal. Everything but `run` is synchronous."""

    def __init__(self, journal: Journal, runner: Runner, meter: Meter | None = None) -> None:
        self._journal = journal
        self._runner = runner
        self._meter = meter or Meter()
        self._group = _Group()
        self._running: _Group | None = None
        self._jobs: list[tuple[Job, Then]] = []
        self._wake = trio.Event()
        self._failure: QueenError | None = None
        self._durable = journal.head
        self._seq = journal.head
        self._digest = _digest_at(journal, journal.head)
        self._began = 0.0
        self.commits = 0

    @property
    def seq(self) -> int:
        """The number of the last record handed in."""
        return self._seq

    @property
    def digest(self) -> bytes:
        """The digest of the last record handed in."""
        return self._digest

    @property
    def durable(self) -> int:
        """The number of the last record that is synced."""
        return self._durable

    @property
    def busy(self) -> bool:
        """Whether a commit is running."""
        return self._running is not None

    @property
    def busy_s(self) -> float:
        """How long the commit has been running that is running, in seconds."""
        return trio.current_time() - self._began if self._running is not None else 0.0

    @property
    def waiting(self) -> int:
        """How many callbacks wait for a commit."""
        return len(self._group.thens) + (len(self._running.thens) if self._running is not None else 0)

    @property
    def pending_bytes(self) -> int:
        """Bytes of frames that wait for the disk or are being written."""
        return self._group.size + (self._running.size if self._running is not None else 0)

    @property
    def crowded(self) -> bool:
        """Whether more waits for the disk than should."""
        return self._group.size > PENDING_BYTES

    @property
    def failure(self) -> QueenError | None:
        """Why this writer has stopped, None while it works."""
        return self._failure

    def append(
        self,
        partition: int,
        at: int,
        shift: int,
        who: str,
        request: bytes,
        events: Sequence[AnyEvent],
        payloads: Sequence[bytes] = (),
    ) -> int:
        """Hand in a record and return its number. What is appended without a checkpoint in between, and its
        `then`, is in one commit. Raises the writer's failure once it has stopped."""
        if self._failure is not None:
            raise self._failure
        seq = self._seq + 1
        frame, digest = pack(seq, self._digest, at, partition, shift, who, request, events, payloads)
        self._seq, self._digest = seq, digest
        self._group.frames.append(frame)
        self._group.size += len(frame)
        self._wake.set()
        return seq

    def then(self, callback: Then) -> None:
        """Call back once everything handed in so far is durable (None), or has failed (the error)."""
        if self._failure is not None:
            callback(self._failure)
        elif self._group.frames:
            self._group.thens.append(callback)
        elif self._running is not None:
            self._running.thens.append(callback)
        else:
            callback(None)

    def write(self, job: Job, callback: Then) -> None:
        """Make edits behind everything handed in so far. The job computes them in the writer's thread.

        Called back with `StoreFull`, nothing of it was written, and the writer goes on."""
        self._jobs.append((job, callback))
        self._wake.set()

    async def flushed(self) -> None:
        """Wait until everything handed in so far is durable; raises the failure. Cancelling changes nothing."""
        await _outcome(self.then)

    async def save(self, edits: Sequence[Edit]) -> None:
        """`write`, and wait until it is durable; raises the failure. Cancelled, it may be written all the same."""
        await _outcome(partial(self.write, lambda: edits))

    async def run(self) -> None:
        """Commit until cancelled, or until the first failure, which is raised after everyone was told."""
        while True:
            if self._failure is not None:
                raise self._failure
            if not self._group.frames and not self._jobs:
                self._wake = trio.Event()
                await self._wake.wait()
            await self._commit()

    async def drain(self) -> None:
        """Commit everything that waits; for the end, when `run` has been cancelled."""
        while self._failure is None and (self._group.frames or self._jobs):
            await self._commit()

    async def _commit(self) -> None:
        group, self._group = self._group, _Group()
        job, told = self._jobs.pop(0) if self._jobs else (None, None)
        self._running = group
        self._began = began = trio.current_time()
        try:
            with trio.CancelScope(shield=True):
                if job is not None and told is not None and not await self._fits(group, job, told):
                    job = told = None
                elif job is None:
                    await self._runner(partial(self._write, group.frames, ()))
        except Conflict as error:
            failure = StoreFailed(f"The journal is not this writer's any more: {error}")
            self._fail(failure, group, told)
            raise failure from error
        except QueenError as error:
            self._fail(error, group, told)
            raise
        except Exception as error:
            # Whatever this is, nobody knows what it left on the disk.
            failure = StoreFailed(f"The journal failed: {error!r}")
            self._fail(failure, group, told)
            raise failure from error
        self._running = None
        self.commits += 1
        self._durable += len(group.frames)
        self._meter.committed(trio.current_time() - began, len(group.frames))
        self._journal.maintain()
        for callback in group.thens:
            callback(None)
        if told is not None:
            told(None)

    def stop(self, error: QueenError) -> None:
        """Take nothing more: what waits is dropped and told so; what a commit is writing now is told the truth."""
        if self._failure is None:
            running = self._running
            self._fail(error, _Group(), None)
            self._running = running
            self._wake.set()

    async def _fits(self, group: _Group, job: Job, told: Then) -> bool:
        """Commit the group with a job's changes. Where there is no room for both, the records go alone: they may be
        the acknowledgements that the reserve is for, and tables can be written later (W4)."""
        try:
            await self._runner(lambda: self._write(group.frames, job()))
        except StoreFull as error:
            told(error)
            if group.frames:
                await self._runner(partial(self._write, group.frames, ()))
            return False
        return True

    def _write(self, frames: list[bytes], edits: Sequence[Edit]) -> None:
        self._journal.commit(self._durable, frames, edits)

    def _fail(self, error: QueenError, group: _Group, told: Then | None) -> None:
        """Nothing after a failed commit is known to be good: everybody who waits is told, then and later."""
        self._failure = error
        self._running = None
        thens = [*group.thens, *self._group.thens, *([told] if told else []), *(then for _, then in self._jobs)]
        self._group = _Group()
        self._jobs = []
        for callback in thens:
            callback(error)


def _digest_at(journal: Journal, seq: int) -> bytes:
    if seq == 0:
        return ORIGIN
    frame = journal.frame(seq)
    assert frame is not None, "a journal holds its head"
    return digest_of(unpack(seq, frame))


async def _outcome(ask: Callable[[Then], None]) -> None:
    """Wait for a callback; raises the error that it is called with."""
    done = trio.Event()
    failures: list[QueenError] = []

    def tell(failure: QueenError | None) -> None:
        if failure is not None:
            failures.append(failure)
        done.set()

    ask(tell)
    await done.wait()
    if failures:
        raise failures[0]

"""The machine below a simulated broker: a disk that takes simulated time and fails on order, clocks, and ways to let a
task crash wherever it waits.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

import trio

from queen.actors import partition, partition_rules, partition_state
from queen.errors import StoreFailed, StoreFull
from queen.store.journal import Edit
from queen.store.memory_journal import MemoryJournal, _Content

RESERVE = 1 << 20
"""Bytes that pushes leave free on the disk."""
_SECOND_NS = 1_000_000_000
_EPOCH_NS = 1_750_000_000 * _SECOND_NS


class Injected(Exception):
    """A fault of the plan, and none of ours."""


class InjectedFull(StoreFull):
    """The same, from the disk."""


class InjectedFailed(StoreFailed):
    """The same, from the disk."""


class Died(Exception):
    """The process that asks has been killed."""


class Platter:
    """What was ever committed, as it was committed: later erasures don't show. `commits` are the heads after each."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.commits: list[int] = [0]
        self.synced = 0
        """The last record that the process may know to be durable."""


class WatchedJournal(MemoryJournal):
    """A journal in memory that leaves a copy of each frame on the platter."""

    def __init__(self, platter: Platter, content: _Content | None = None) -> None:
        super().__init__(capacity=1 << 40, reserve=RESERVE, _content=content)
        self.platter = platter

    def reopened(self) -> "WatchedJournal":
        return WatchedJournal(self.platter, self._content)

    def commit(self, expected: int, frames: Sequence[bytes], edits: Sequence[Edit] = ()) -> None:
        before = self.head
        try:
            super().commit(expected, frames, edits)
        finally:
            if self.head > before:
                self.platter.frames += self._content.frames[before:]
                self.platter.commits.append(self.head)

    def fill(self) -> None:
        """No room for pushes; acknowledgements go on from the reserve."""
        self.set_capacity(self._content.used + RESERVE - 1)

    def clear_up(self) -> None:
        """Room again, and no fault to come."""
        self.set_capacity(1 << 40)
        self._next_fault = None


class Disk:
    """A `Runner`: commits take up to `commit_s` simulated seconds, half of it before and half behind the writing."""

    def __init__(self, journal: WatchedJournal, chance: random.Random, commit_s: float) -> None:
        self.journal = journal
        self.commit_s = commit_s
        self._chance = chance
        self._dead = trio.Event()

    async def run(self, call: Callable[[], Any]) -> None:
        await trio.lowlevel.checkpoint()
        await self._take()
        call()
        await self._take()
        self.journal.platter.synced = self.journal.head

    def kill(self) -> None:
        """Nothing is written any more; what is being written now is written or not."""
        self._dead.set()

    async def _take(self) -> None:
        with trio.move_on_after(self.commit_s / 2 * self._chance.random()):
            await self._dead.wait()
        if self._dead.is_set():
            raise Died


class Machine:
    """Stands for the module `time` below `queen.clock`. `wall_s` is how far the wall clock has been moved."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.boot_s = 1000.0

    def monotonic_ns(self) -> int:
        return round((trio.current_time() + self.boot_s) * _SECOND_NS)

    def time_ns(self) -> int:
        return _EPOCH_NS + round((trio.current_time() + self.wall_s) * _SECOND_NS)


class Traps:
    """Crashes in the rules, on order: the decision, or half-done change, after so many others fails."""

    def __init__(self, sprung: Callable[[], None]) -> None:
        self._armed: dict[str, int] = {}
        self._count = 0
        self._sprung = sprung

    def arm(self, where: str, after: int) -> None:
        """Let `where` fail once, after so many calls."""
        self._armed[where] = after

    def disarm(self) -> None:
        """Nothing fails any more."""
        self._armed.clear()

    def _step(self, where: str) -> None:
        left = self._armed.get(where)
        if left == 0:
            del self._armed[where]
            self._count += 1  # never the same crash three times in a row: nothing is quarantined
            self._sprung()
            raise Injected(f"{where} {self._count}")
        if left is not None:
            self._armed[where] = left - 1

    @contextmanager
    def set(self) -> Iterator[None]:
        """Put them where partitions decide and change."""
        decide, evolve = partition_rules.decide, partition_state.evolve

        def trapped_decide(*given: Any) -> Any:
            if self._armed:
                self._step("decide")
            return decide(*given)

        def trapped_evolve(*given: Any) -> Any:
            if self._armed:
                self._step("evolve")
            return evolve(*given)

        with patch.object(partition, "decide", trapped_decide), patch.object(partition, "evolve", trapped_evolve):
            yield


def crash_task(root: trio.lowlevel.Task, name: str, which: int, error: Exception) -> str | None:
    """Let a task below `root` whose name begins so fail with `error` at the await where it is; returns its full name.

    None where there is none, or where it is not waiting. Goes by the way on which Trio delivers a cancellation."""
    found = sorted(_below(root, name), key=lambda task: (task.name, task._counter))
    task = found[which % len(found)] if found else None
    if task is None or task._abort_func is None:
        return None

    def fail() -> NoReturn:
        raise error

    task._attempt_abort(fail)
    return task.name


def _below(task: trio.lowlevel.Task, name: str) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            if child.name.startswith(name):
                yield child
            yield from _below(child, name)

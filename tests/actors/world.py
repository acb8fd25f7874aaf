"""A broker in simulated time over a journal in memory, disks that take their time, and looks into what it holds.

No fixture yields a broker: each test opens its own under `autojump_clock`, so that it can crash and reopen it. A world
that deadlocks ends with `TooSlowError`, one that spins without time passing with `AssertionError`.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

import trio

from queen import Broker, Delivery, open_broker
from queen.actors.engine import Engine
from queen.actors.mailbox import Part, Work
from queen.actors.snapshots import partition_row, queue_row
from queen.clock import Clock, Ids, TrioClock
from queen.commands import PartitionCommand
from queen.messages import Caller
from queen.opening import inline, supervise
from queen.reply import Reply
from queen.store.keyring import NO_KEYS, KeyRing
from queen.store.memory_journal import MemoryJournal
from queen.store.writer import Runner

LIMIT_S = 5_000
STEPS = 300_000


class _Patience(trio.abc.Instrument):
    """Gives up where so many steps bring no progress of time."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.steps = 0
        self.at = -1.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps % 1000 == 0:
            now = trio.current_time()
            if now != self.at:
                self.at, self.steps = now, 0
            elif self.steps > STEPS:
                self.scope.cancel()


@asynccontextmanager
async def patience(limit_s: float = LIMIT_S) -> AsyncIterator[None]:
    """Bounds simulated time and steps."""
    watch = _Patience()
    trio.lowlevel.add_instrument(watch)
    try:
        with trio.fail_after(limit_s), watch.scope:
            yield
        assert not watch.scope.cancelled_caught, "the world spins without time passing"
    finally:
        trio.lowlevel.remove_instrument(watch)


@asynccontextmanager
async def opened(
    journal: MemoryJournal | None = None,
    *,
    runner: Runner | None = None,
    clock: Clock | None = None,
    keys: KeyRing = NO_KEYS,
    limit_s: float = LIMIT_S,
) -> AsyncIterator[Broker]:
    """A broker that is closed in good order."""
    async with (
        patience(limit_s),
        open_broker(
            None, journal=journal or MemoryJournal(), runner=runner, clock=clock or TrioClock(), keys=keys
        ) as queen,
    ):
        yield queen


@asynccontextmanager
async def doomed(
    journal: MemoryJournal, *, runner: Runner = inline, clock: Clock | None = None
) -> AsyncIterator[Broker]:
    """A broker whose process is killed at the end of the block: no drain, no last snapshot."""
    now = clock or TrioClock()
    ids = Ids(now)
    queen = Broker(now, ids)

    def start() -> Engine:
        return Engine(journal, now, ids, runner, inline, queen.feed)

    async with patience(), trio.open_nursery() as nursery:
        await nursery.start(supervise, queen, start, journal)
        yield queen
        nursery.cancel_scope.cancel()


def slow(seconds: float = 0.01) -> Runner:
    """A disk that takes simulated time for each commit."""

    async def run(call: Callable[[], Any]) -> None:
        await trio.sleep(seconds)
        call()

    return run


class Gate:
    """A disk that commits only while it is open, and counts what has been asked of it."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self.asked = 0

    def open(self) -> None:
        self._event.set()

    def close(self) -> None:
        self._event = trio.Event()

    async def run(self, call: Callable[[], Any]) -> None:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        await self._event.wait()
        call()


def engine_of(queen: Broker) -> Engine:
    """What runs below the broker."""
    engine = queen._engine
    assert engine is not None
    return engine


async def carried(queen: Broker, command: PartitionCommand, partition: str = "Default") -> None:
    """One command for a partition of queue q, until it is durable."""
    engine, reply = engine_of(queen), Reply[None]()
    slot = engine.core.catalogue.queues["q"].slots[partition]

    def told(_: Any, error: BaseException | None) -> None:
        if error is None:
            reply.set(None)
        else:
            reply.fail(error)

    engine._put(Work((Part(slot, command),), Caller("test"), told=told))
    await reply.wait()


async def parked(queen: Broker, count: int) -> None:
    """Until so many pops wait; no time passes."""
    while queen.health().parked != count:
        await trio.lowlevel.checkpoint()


async def steps(count: int = 50) -> None:
    """Let everybody run for a while; no time passes."""
    for _ in range(count):
        await trio.lowlevel.checkpoint()


class Waiters:
    """Pops that run beside the test, and what came of them in which order: (name, delivery, at)."""

    def __init__(self, queen: Broker, nursery: trio.Nursery) -> None:
        self._queen = queen
        self._nursery = nursery
        self.served: list[tuple[Any, Delivery, float]] = []
        self.scopes: dict[Any, trio.CancelScope] = {}

    async def add(self, name: Any, *args: Any, **options: Any) -> None:
        """Start one and wait until it is parked."""
        before = self._queen.health().parked
        self.scopes[name] = trio.CancelScope()
        self._nursery.start_soon(self._run, name, args, options)
        await parked(self._queen, before + 1)

    async def _run(self, name: Any, args: Any, options: Any) -> None:
        with self.scopes[name]:
            delivery = await self._queen.pop(*args, **{"wait": True, "timeout": 60, **options})
            self.served.append((name, delivery, trio.current_time()))

    @property
    def names(self) -> list[Any]:
        """Who has been answered, in order."""
        return [name for name, _, _ in self.served]


async def cancelled_after(count: int, call: Callable[[], Awaitable[Any]]) -> Any:
    """What `call` returns, or None where it was cancelled after so many checkpoints of a sibling."""
    result = None
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await steps(count)
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        result = await call()
        nursery.cancel_scope.cancel()
    return result


def payloads(delivery: Delivery) -> list[Any]:
    """The payloads, decoded."""
    return [message.data for message in delivery]


def picture(queen: Broker) -> dict[str, Any]:
    """Everything that a restart must keep, as plain values; rows as they are, which have one order."""
    engine = engine_of(queen)
    queues = {}
    for name, queue in engine.core.catalogue.queues.items():
        partitions = {}
        for slot in list(queue.slots.values()):
            actor = engine.house.awake(slot)
            partitions[slot.name] = partition_row(slot, actor.state, actor.recorded_seq, set(actor.unrecorded))
        *rest, _, groups = queue_row(queue)
        queues[name] = rest, groups, queue.depth, partitions
    return {"queues": queues, "leases": {lease: slot.number for lease, slot in engine.house.leases.items()}}


@contextmanager
def scheduled_by(seed: int) -> Iterator[None]:
    """Let Trio pick the order of tasks from a seed, by the private switch that its Hypothesis plug-in sets."""
    run = trio._core._run
    with patch.object(run, "_ALLOW_DETERMINISTIC_SCHEDULING", True), patch.object(run, "_r", random.Random(seed)):
        yield

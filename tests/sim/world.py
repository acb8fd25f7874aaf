"""A simulated world: one broker after another over one journal, its clients, and the faults of the plan, in simulated
time. Everything that chance decides comes from the plan's seed, so the same plan runs the same way.
"""

import random
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import structlog
import trio
import trio.testing

from queen import Broker
from queen.actors.engine import Engine
from queen.clock import Clock, Ids, SystemClock
from queen.errors import QueenError
from queen.figures import MinuteFigures
from queen.notices import Notice
from queen.opening import inline, supervise
from queen.store import keyring
from queen.store.keyring import KeyRing
from tests.actors.world import patience, scheduled_by
from tests.sim.clients import Client
from tests.sim.finish import Finish, same_after_restart
from tests.sim.history import Attempt, Epoch, History, Stamp
from tests.sim.machine import (
    Disk,
    Injected,
    InjectedFailed,
    InjectedFull,
    Machine,
    Platter,
    Traps,
    WatchedJournal,
    crash_task,
)
from tests.sim.plan import CLIENTS, Fault, Plan
from tests.sim.violation import Violation

DRAIN_S = 3.0
AFTERMATH_S = 1.0
"""How long a crash of the plan explains errors that don't name it: a writer that was told to stop, say."""
KEYS = KeyRing([b"k" * 32])


class WatchedBroker(Broker):
    """A broker that says when an engine takes over."""

    def __init__(self, world: "World", clock: Clock, ids: Ids) -> None:
        super().__init__(clock, ids)
        self._world = world

    def attach(self, engine: Engine) -> None:
        super().attach(engine)
        self._world.engine_began()

    def detach(self, failure: QueenError | None = None) -> None:
        self._world.engine_ended()
        super().detach(failure)


class Life:
    """One process, from its start to its stop or its killing. `clients` are the requests that are under way."""

    def __init__(self, world: "World", journal: WatchedJournal) -> None:
        self.world = world
        self.journal = journal
        self.disk = Disk(journal, world.chance_of("disk"), world.plan.commit_s)
        self.clock = SystemClock()
        self.ids = Ids(self.clock, world.chance_of("ids"))
        self.broker = WatchedBroker(world, self.clock, self.ids)
        self.scope = trio.CancelScope()
        self.clients: dict[trio.CancelScope, None] = {}
        self.stopping = trio.Event()
        self.gone = trio.Event()

    def start_engine(self) -> Engine:
        """One engine after another, as `open_broker` does it."""
        self.world.head = self.journal.head
        return Engine(self.journal, self.clock, self.ids, self.disk.run, inline, self.broker.feed, KEYS)

    @property
    def engine(self) -> Engine:
        """The engine that runs now."""
        engine = self.broker._engine
        assert engine is not None
        return engine


_OF_THE_PLAN = re.compile(
    r"^[ |+-]*(?:\w+\.)*(?:Injected|InjectedFailed|InjectedFull|Died|StoreFull)(?::|$)", re.MULTILINE
)
"""A line with which the traceback of such an error ends."""


class World:
    """See the module. `run` once; afterwards `history` and `platter` hold all that there is to judge."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.history = History()
        self.platter = Platter()
        self.machine = Machine()
        self.traps = Traps(self._crashed)
        self.unexpected: list[str] = []
        self._names: list[str] = []
        self._failed: list[str] = []
        self.listed: dict[str, tuple[str, int]] = {}
        self.minutes: list[MinuteFigures] = []
        self.head = 0
        self._root: trio.lowlevel.Task
        self._nursery: trio.Nursery
        self._lives = 0
        self._epoch = 0
        self._life: Life | None = None
        self._alive = trio.Event()
        self._journal = WatchedJournal(self.platter)
        self._quiet = trio.Event()

    def chance_of(self, subject: str) -> random.Random:
        """The chance of one subject in one life, which others don't draw from."""
        return random.Random(f"{subject} {self.plan.seed} {self._lives}")

    def run(self) -> None:
        """Live through the whole plan. Raises what no world may raise; rules are checked elsewhere."""
        with self._surroundings():
            clock = trio.testing.MockClock(autojump_threshold=0)
            trio.run(self._main, clock=clock, strict_exception_groups=True)

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        config = structlog.get_config()
        noise = SimpleNamespace(urandom=random.Random(self.plan.seed).randbytes)
        with ExitStack() as stack:
            stack.callback(structlog.configure, **config)
            structlog.configure(processors=[self._listen], cache_logger_on_first_use=False)
            stack.enter_context(patch("queen.clock.time", self.machine))
            stack.enter_context(patch.object(keyring, "os", noise))
            stack.enter_context(scheduled_by(self.plan.seed))
            stack.enter_context(self.traps.set())
            yield

    def _crashed(self) -> None:
        self.history.crashes.append(self.stamp())

    def _listen(self, logger: Any, method: str, event: Any) -> Any:
        """What the server logs as an error must be of our doing."""
        error = event.get("exception", "")
        behind = self.history.crashes and trio.current_time() - self.history.crashes[-1].time < AFTERMATH_S
        if method in ("error", "exception", "critical") and not behind and not _injected(error):
            self.unexpected.append(f"{event['event']}: {error}")
        raise structlog.DropEvent

    async def _main(self) -> None:
        self._root = trio.lowlevel.current_task()
        async with patience(10**6), trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._start()
            await self._prepare()
            async with trio.open_nursery() as acting:
                acting.start_soon(self._break)
                for number in range(CLIENTS):
                    steps = [step for step in self.plan.steps if step.client == number]
                    acting.start_soon(Client(self, f"c{number}").run, steps)
            await Finish(self).run()
            await self._stop()
            nursery.cancel_scope.cancel()
        if self.unexpected:
            raise Violation("crash", f"something failed that nobody has broken: {self.unexpected[0]}")

    async def _prepare(self) -> None:
        client = Client(self, "c-")
        for queue, options in self.plan.options.items():
            await client.configure(queue, options, namespace="n", task="t")

    # -- for clients ----------------------------------------------------------------------------------------

    async def alive(self) -> Life:
        """The process, once there is one."""
        while self._life is None:
            await self._alive.wait()
        return self._life

    def begin(self, who: str, what: str, asked: dict[str, Any]) -> Attempt:
        """Note that a client asks for something."""
        attempt = Attempt(len(self.history.attempts), who, what, asked, self.stamp())
        self.history.attempts.append(attempt)
        return attempt

    def end(self, attempt: Attempt) -> None:
        """Note that it has its answer, or waits no more."""
        attempt.ended = self.stamp()
        self._names += [item.transaction_id for item in attempt.asked.get("items", ()) if item.transaction_id]
        if attempt.answered and attempt.what == "push":
            self._names += [receipt.transaction_id for receipt in attempt.result]
        if attempt.answered and attempt.what == "ack":
            for entry, settlement in zip(attempt.asked["entries"], attempt.result, strict=True):
                if settlement.status in ("retry_scheduled", "failed", "dead_letter"):
                    self._failed.append(entry.transaction_id)

    def name_of(self, number: int, failed: bool) -> str | None:
        """One of the transactionIds that clients have come across, of those that have failed where there are any."""
        names = self._failed if failed and self._failed else self._names
        return names[number % len(names)] if names else None

    def shown(self) -> int:
        """What the wall clock shows."""
        return self.machine.time_ns() // 1000

    def stamp(self) -> Stamp:
        """Now."""
        engine = self._life.broker._engine if self._life is not None else None
        seq = engine.core.writer.seq if engine is not None else self.platter.synced
        clock = self._life.clock if self._life is not None else None
        now, shift = (clock.now(), clock.shift()) if clock is not None else (0, 0)
        return Stamp(trio.current_time(), self._epoch, seq, self.platter.synced, now, shift, self._lives)

    # -- engines and processes --------------------------------------------------------------------------------

    def engine_began(self) -> None:
        """For `WatchedBroker`."""
        self._epoch += 1
        stamp = self.stamp()
        self.history.epochs.append(Epoch(self._epoch, stamp, self.head))

    def engine_ended(self) -> None:
        """For `WatchedBroker`."""
        if self._life is not None and self._epoch not in self.history.ends:
            self.history.ends[self._epoch] = self.stamp()

    async def _start(self) -> None:
        self._lives += 1
        self._journal = self._journal.reopened()
        self.platter.synced = self._journal.head
        life = self._life = Life(self, self._journal)
        await self._nursery.start(self._live, life)
        self._alive.set()

    async def _live(self, life: Life, task_status: "trio.TaskStatus[None]") -> None:
        with life.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(supervise, life.broker, life.start_engine, life.journal)
                task_status.started()
                nursery.start_soon(self._hear, life)
                await life.stopping.wait()
                with trio.move_on_after(DRAIN_S):
                    await life.broker.drain()
                life.broker.stop()
        life.gone.set()

    async def _hear(self, life: Life) -> None:
        async with life.broker.feed.subscribe() as notices:
            heard: list[tuple[Stamp, Notice]] = []
            self.history.heard.append((self.stamp(), heard))
            async for notice in notices:
                heard.append((self.stamp(), notice))  # noqa: PERF401  # it is read while it grows

    def _down(self) -> Life | None:
        life = self._life
        if life is not None:
            self.engine_ended()
            self._life = None
            self._alive = trio.Event()
        return life

    async def _kill(self) -> None:
        """At once: nothing is finished, nobody is answered."""
        life = self._down()
        if life is not None:
            life.disk.kill()
            for scope in list(life.clients):
                scope.cancel()
            life.scope.cancel()
            await life.gone.wait()

    async def _stop(self) -> None:
        """In good order."""
        life = self._life
        if life is not None:
            life.stopping.set()
            await life.gone.wait()
            self._down()
            for scope in list(life.clients):
                scope.cancel()

    async def _restart(self, args: dict[str, Any]) -> None:
        await trio.sleep(args["down"])
        self.machine.wall_s += args["wall"]
        self.machine.boot_s += 77.7
        await self._start()

    # -- faults -----------------------------------------------------------------------------------------------

    async def _break(self) -> None:
        for fault in self.plan.faults:
            await trio.sleep(max(0.0, fault.at - trio.current_time()))
            self.history.faults.append((self.stamp(), str(fault)))
            await getattr(self, f"_fault_{fault.kind}")(fault)

    async def heal(self) -> Life:
        """Nothing breaks any more; returns a process that works."""
        self.traps.disarm()
        life = await self.alive()
        life.journal.clear_up()
        life.disk.commit_s = min(life.disk.commit_s, 0.004)
        await trio.sleep(3)  # what broke last is over
        while not life.broker.ready:  # noqa: ASYNC110  # the broker has no event to tell of it
            await trio.sleep(0.1)
        return life

    async def _fault_kill(self, fault: Fault) -> None:
        await self._kill()
        await self._restart(fault.args)

    async def _fault_stop(self, fault: Fault) -> None:
        await self._stop()
        await self._restart(fault.args)

    async def _fault_unknown(self, fault: Fault) -> None:
        """A sync fails: the process takes no more work, and somebody starts it anew."""
        life = await self.alive()
        life.journal.fail_next(InjectedFailed("the sync failed"), written=fault.args["written"])
        with trio.move_on_after(5):
            while life.broker.readiness().status != "failed":  # noqa: ASYNC110  # as an operator would
                await trio.sleep(0.05)
        await self._kill()
        await self._restart(fault.args)

    async def _fault_full(self, fault: Fault) -> None:
        life = await self.alive()
        life.journal.fail_next(InjectedFull("the disk is full"))

    async def _fault_crowd(self, fault: Fault) -> None:
        """No room for pushes for a while."""
        life = await self.alive()
        life.journal.fill()
        await trio.sleep(2)
        life.journal.clear_up()

    async def _fault_crash_task(self, fault: Fault) -> None:
        found = crash_task(self._root, fault.args["task"], fault.args["which"], Injected(f"crash {fault.number}"))
        self.history.faults.append((self.stamp(), f"crashed: {found}"))
        self._crashed()

    async def _fault_crash_decide(self, fault: Fault) -> None:
        self.traps.arm("decide", fault.args["after"])

    async def _fault_crash_evolve(self, fault: Fault) -> None:
        self.traps.arm("evolve", fault.args["after"])

    async def _fault_wall(self, fault: Fault) -> None:
        self.machine.wall_s += fault.args["by"]

    async def _fault_slow(self, fault: Fault) -> None:
        life = await self.alive()
        life.disk.commit_s = fault.args["commit_s"]
        await trio.sleep(fault.args["for"])
        life.disk.commit_s = self.plan.commit_s

    async def _fault_refold(self, fault: Fault) -> None:
        """Nothing breaks: in the middle of it all, the live state is what a restart would read."""
        await same_after_restart(await self.alive())


def _injected(traceback: str) -> bool:
    """Whether a fault of the plan is among the errors that a traceback names."""
    return _OF_THE_PLAN.search(traceback) is not None

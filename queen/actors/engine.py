"""One incarnation of the engine: its actors, writer and keeper, from recovery to the last snapshot.

The methods that askers call prepare a command, hand it to the actors and wait for the answer. Each says what a
cancellation leaves behind. When an incarnation ends, nobody is left waiting: whatever is open fails.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import trio
from msgspec import UnsetType

from queen.actors import catalogue_rules as rules
from queen.actors.admission import Plan, admit_pushes
from queen.actors.asks import Asks
from queen.actors.catalogue_state import Queue
from queen.actors.compacting import compacted
from queen.actors.core import Core
from queen.actors.creation import Creation
from queen.actors.eraser import Eraser
from queen.actors.feed import Feed
from queen.actors.keeper import Keeper
from queen.actors.mailbox import Granted, Part, PopRequest, Work
from queen.actors.patience import Patience
from queen.actors.pulse import Pulse
from queen.actors.recovery import Recovery
from queen.actors.residents import Residents
from queen.actors.router import Router
from queen.actors.settling import AckPlan
from queen.actors.ticker import Ticker
from queen.clock import Clock, Ids
from queen.commands import Extend, Push
from queen.errors import NotFound, QueueGone, ShuttingDown, StoreFull, Unavailable
from queen.messages import Acknowledgement, Caller, NewMessage
from queen.meter import Meter
from queen.options import DEFAULTS, merge
from queen.replies import Compacted, Nothing, Receipt, Settlement
from queen.reply import Reply
from queen.store.journal import Journal
from queen.store.keyring import NO_KEYS, KeyRing
from queen.store.writer import Runner

T = TypeVar("T")

_SERVER = Caller("server")
_ENDED = "the engine has been restarted; the request's outcome was not recorded by this one"


class Engine:
    """See the module. `run` first; the other methods work while it runs."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        ids: Ids,
        runner: Runner,
        compute: Runner,
        feed: Feed | None = None,
        ring: KeyRing = NO_KEYS,
    ) -> None:
        self.core = Core(journal, clock, ids, runner, feed or Feed(clock, Meter()), ring)
        self._compute = compute
        self._asks = Asks(self.core)
        self._stop = trio.Event()
        self.accepting = False
        self._running = False
        self._draining = False
        self.keeper: Keeper
        self.eraser: Eraser
        self.house: Residents
        self.router: Router
        self.patience: Patience
        self._creation: Creation

    async def run(self, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Recover, then serve until `stop`. Raises what ended it otherwise, alone in an exception group."""
        try:
            async with trio.open_nursery() as writing:
                async with trio.open_nursery() as acting:
                    self.house = self._asks.house = Residents(self.core, acting)
                    self._creation = Creation(self.core, self.house)
                    ticker = self.house.ticker = Ticker(self.core, self.house)
                    self.router = self.house.router = Router(self.core, self.house, ticker)
                    await Recovery(self.core, self.house).run()
                    keeper = self.keeper = Keeper(self.core, self.house, self._compute)
                    eraser = self.eraser = Eraser(self.core, self._compute)
                    self.patience = Patience(self.router.expire)
                    writing.start_soon(self.core.writer.run)
                    acting.start_soon(self.router.run)
                    acting.start_soon(self.patience.run)
                    acting.start_soon(ticker.run)
                    acting.start_soon(ticker.sweep)
                    acting.start_soon(self.house.run)
                    acting.start_soon(keeper.run)
                    acting.start_soon(Pulse(self.core).run)
                    acting.start_soon(eraser.run)
                    self._running = self.accepting = True
                    task_status.started()
                    try:
                        await self._stop.wait()
                    finally:
                        self._running = self.accepting = False
                    acting.cancel_scope.cancel()
                with suppress(StoreFull):  # the journal holds all of it; the next start folds a little more
                    await keeper.flush()
                writing.cancel_scope.cancel()
        finally:
            self._asks.fail(self.core.writer.failure or Unavailable(_ENDED))

    async def drain(self) -> None:
        """Take nothing new, answer parked pops with nothing, and wait for what is under way."""
        self.accepting = False
        self._draining = True
        self.router.close()
        await self._asks.wait_none()
        await trio.lowlevel.checkpoint()  # those who were answered last hear of it first

    def stop(self) -> None:
        """Let `run` write its snapshots and return."""
        self._stop.set()

    # -- commands -----------------------------------------------------------------------------------------

    def push(self, items: Sequence[tuple[NewMessage, bytes]], caller: Caller) -> Reply[list[Receipt]]:
        """Store messages (P1): `items` are checked messages and their payloads as JSON text. Nothing but the commit is
        still to come on return; whoever does not wait for it can't know whether the push, as a whole, has happened."""
        self.check_open()
        plan = Plan(items, self.core.ids.block())
        parts = self.push_parts(plan, caller)

        def receipts(replies: list[Any]) -> list[Receipt]:
            made = plan.receipts(replies)
            self.core.meter.receipts(made)
            return made

        return self._asks.begin(parts, caller, receipts, partial(admit_pushes, parts))

    def ack(self, entries: Sequence[Acknowledgement], caller: Caller) -> Reply[list[Settlement]]:
        """Settle messages, all in one commit (A5); refusals are values. Not waited for: as for a push."""
        self.check_open()
        plan = AckPlan(self.core, entries)
        return self._asks.begin(plan.parts(), caller, plan.settlements)

    def pop(self, request: PopRequest, timeout: float) -> Reply[list[Granted] | Nothing]:
        """Serve a pop; a waiting one for up to `timeout` seconds. Left, it gives everything back (L8)."""
        self.check_open()
        asked_at = trio.current_time()
        self._asks.open(request.reply)
        self.router.pop(request)
        if request.wait:
            self.patience.add(request, asked_at + timeout)
            request.reply.then(partial(self.patience.over, request))
        answer = request.reply.map(lambda found: self._popped(found, asked_at))
        return answer.leaving(partial(self._leave, request))

    def _leave(self, request: PopRequest) -> None:
        self.router.leave(request)
        self._asks.close(request.reply)
        self.patience.over(request)

    def _popped(self, found: list[Granted] | Nothing, asked_at: float) -> list[Granted] | Nothing:
        if not isinstance(found, Nothing):
            count = sum([len(granted.grant.taken) for granted in found])
            self.core.meter.popped(count, trio.current_time() - asked_at)
        return found

    def release(self, leases: list[bytes]) -> None:
        """Give back what is left of leases, uncounted; those that have ended are passed over. While the engine
        drains, too: what can't be handed on then is not to wait for the end of its lease (L8)."""
        if self._running:
            self.house.release(leases)

    async def extend(self, lease: bytes, seconds: int | None, caller: Caller) -> int:
        """L6: the lease's new end, shown. Cancelled: it may or may not have been extended."""
        self.check_open()
        slot = self.house.leases.get(lease)
        if slot is None:
            raise await self.durable(NotFound("there is no such lease, or it has ended"))
        reply: Reply[list[Any]] = Reply()
        self.house.put(Work((Part(slot, Extend(lease, seconds)),), caller, told=partial(_answer, reply)))
        expires_at: int = (await self._asks.ask(reply))[0]
        return expires_at + self.core.clock.shift()

    async def configure(
        self,
        name: str,
        changes: Mapping[str, Any],
        namespace: str | UnsetType | None,
        task: str | UnsetType | None,
        caller: Caller,
    ) -> Queue:
        """C1, C2: create or change a queue. Cancelled: it may or may not have happened, as a whole."""
        self.check_open()
        queue = self.core.catalogue.queues.get(name)
        if queue is None:
            options = merge(DEFAULTS, changes)
            rules.check_options(options, keys=self.core.ring.current is not None)
            self.core.check_room()
            given = [None if isinstance(value, UnsetType) else value for value in (namespace, task)]
            queue = self._creation.queue(name, given[0], given[1], options, caller)
        else:
            event = rules.configure(queue, changes, namespace, task)
            if event is not None:
                rules.check_options(merge(queue.options, changes), keys=self.core.ring.current is not None)
                self.core.record_catalogue(event, caller)
                self.router.reconsider(queue)
        return await self.durable(queue)

    async def durable(self, answer: T) -> T:
        """`answer`, which rests on what has been handed in so far, once all of that is durable (law 3)."""
        self.check_open()
        reply: Reply[T] = Reply()
        self.core.writer.then(lambda failure: reply.fail(failure) if failure else reply.set(answer))
        return await self._asks.ask(reply)

    async def compact(self) -> Compacted:
        """R5: erase what is deleted, and make the journal's file anew; see `compacted`."""
        self.check_open()
        await self.keeper.flush()
        await self.eraser.sweep()
        return await compacted(self.core.journal, self._compute)

    async def carry(
        self, parts: Sequence[Part], caller: Caller, admit: Callable[[list[Any]], None] | None = None
    ) -> list[Any]:
        """Have commands carried out, all in one commit or none; returns their replies. Cancelled: as for a push."""
        self.check_open()
        return await self._asks.begin(parts, caller, _unchanged, admit).wait()

    async def question(self, parts: Sequence[Part]) -> list[Any]:
        """Ask partitions something, each for itself. The replies may be ahead of the disk: nothing of them may be told
        before `durable` has returned. None for a partition that is gone."""
        self.check_open()
        reply: Reply[list[Any]] = Reply()
        replies: list[Any] = [None] * len(parts)
        open_questions = len(parts)

        def decided(index: int, answer: list[Any] | None, error: BaseException | None) -> None:
            nonlocal open_questions
            open_questions -= 1
            if error is not None and not isinstance(error, QueueGone):
                reply.fail(error)
            replies[index] = None if answer is None else answer[0]
            if not open_questions:
                reply.set(replies)

        for index, part in enumerate(parts):
            self.house.put(Work((part,), _SERVER, decided=partial(decided, index), asks=True))
        if not parts:
            reply.set([])
        return await self._asks.ask(reply)

    # -- inside -------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise where no work is taken."""
        if not self.accepting:
            closing = ShuttingDown("the server is shutting down")
            failure = self.core.writer.failure or (closing if self._draining else Unavailable(_ENDED))
            raise failure.with_traceback(None)

    def push_parts(self, plan: Plan, caller: Caller) -> list[Part]:
        """The commands of a push, for partitions that exist from now on. Raises where there is no room."""
        self.core.check_room()
        slots = self._creation.slots(plan, caller)
        return [Part(slot, Push(*push)) for slot, push in zip(slots, plan.pushes(), strict=True)]


def _answer(reply: Reply[list[Any]], replies: list[Any] | None, error: BaseException | None) -> None:
    if error is not None:
        reply.fail(error)
    else:
        reply.set(replies or [])


def _unchanged(replies: list[Any]) -> list[Any]:
    return replies

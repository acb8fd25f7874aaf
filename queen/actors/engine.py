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
from queen.actors.admission import Plan, queue_full
from queen.actors.catalogue_state import Queue, Slot
from queen.actors.compacting import compacted
from queen.actors.core import Core
from queen.actors.decision import Decision
from queen.actors.eraser import Eraser
from queen.actors.feed import Feed
from queen.actors.keeper import Keeper
from queen.actors.mailbox import Granted, Part, PopRequest, Work, retry_later
from queen.actors.partition_state import Partition, evolve
from queen.actors.patience import Patience
from queen.actors.pulse import Pulse
from queen.actors.recovery import Recovery
from queen.actors.residents import Residents
from queen.actors.router import Router
from queen.actors.settling import AckPlan
from queen.actors.ticker import Ticker
from queen.clock import Clock, Ids
from queen.commands import Extend, Push
from queen.errors import Busy, NotFound, QueueGone, ShuttingDown, StoreFull, Unavailable
from queen.events import MessagesPushed
from queen.messages import Acknowledgement, Caller, NewMessage
from queen.meter import Meter
from queen.names import DEFAULT_PARTITION
from queen.options import DEFAULTS, QueueOptions, merge
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
        self._asks: set[Reply[Any]] = set()
        self._stop = trio.Event()
        self._idle = trio.Event()
        self.accepting = False
        self._running = False
        self._draining = False
        self.keeper: Keeper
        self.eraser: Eraser
        self.house: Residents
        self.router: Router
        self.patience: Patience

    async def run(self, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Recover, then serve until `stop`. Raises what ended it otherwise, alone in an exception group."""
        try:
            async with trio.open_nursery() as writing:
                async with trio.open_nursery() as acting:
                    self.house = Residents(self.core, acting)
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
            for reply in list(self._asks):
                reply.fail(self.core.writer.failure or Unavailable(_ENDED))

    async def drain(self) -> None:
        """Take nothing new, answer parked pops with nothing, and wait for what is under way."""
        self.accepting = False
        self._draining = True
        self.router.close()
        while self._asks:
            self._idle = trio.Event()
            await self._idle.wait()
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

        return self._begin(parts, caller, receipts, partial(admit_pushes, parts))

    def ack(self, entries: Sequence[Acknowledgement], caller: Caller) -> Reply[list[Settlement]]:
        """Settle messages, all in one commit (A5); refusals are values. Not waited for: as for a push."""
        self.check_open()
        plan = AckPlan(self.core, entries)
        return self._begin(plan.parts(), caller, plan.settlements)

    def pop(self, request: PopRequest, timeout: float) -> Reply[list[Granted] | Nothing]:
        """Serve a pop; a waiting one for up to `timeout` seconds. Left, it gives everything back (L8)."""
        self.check_open()
        asked_at = trio.current_time()
        self._open(request.reply)
        self.router.pop(request)
        if request.wait:
            self.patience.add(request, asked_at + timeout)
            request.reply.then(self.patience.over)
        answer = request.reply.map(lambda found: self._popped(found, asked_at))
        return answer.leaving(partial(self._leave, request))

    def _leave(self, request: PopRequest) -> None:
        self.router.leave(request)
        self._close(request.reply)
        if request.wait and not request.reply.is_set:
            self.patience.over()

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
        self._put(Work((Part(slot, Extend(lease, seconds)),), caller, told=partial(_answer, reply)))
        expires_at: int = (await self._ask(reply))[0]
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
            queue = self._create_queue(name, given[0], given[1], options, caller)
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
        return await self._ask(reply)

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
        return await self._begin(parts, caller, _unchanged, admit).wait()

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
            self._put(Work((part,), _SERVER, decided=partial(decided, index), asks=True))
        if not parts:
            reply.set([])
        return await self._ask(reply)

    # -- inside -------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise where no work is taken."""
        if not self.accepting:
            closing = ShuttingDown("the server is shutting down")
            failure = self.core.writer.failure or (closing if self._draining else Unavailable(_ENDED))
            raise failure.with_traceback(None)

    def _begin(
        self,
        parts: Sequence[Part],
        caller: Caller,
        make: Callable[[list[Any]], T],
        admit: Callable[[list[Any]], None] | None = None,
    ) -> Reply[T]:
        """Hand in commands, all in one commit or none; the reply is what `make` makes of theirs, once durable."""
        reply: Reply[T] = Reply()

        def told(replies: list[Any] | None, error: BaseException | None) -> None:
            if error is None:
                reply.settle(partial(make, replies or []))
            else:
                reply.fail(error)

        self._open(reply)
        try:
            if parts:
                self._put(Work(tuple(parts), caller, told=told, admit=admit))
            else:
                self.core.writer.then(lambda failure: told([], failure))
        except BaseException:
            self._close(reply)
            raise
        return reply

    def _open(self, reply: Reply[Any]) -> None:
        """Somebody is to be answered, before a drain is over and in any case."""
        self._asks.add(reply)
        reply.then(partial(self._close, reply))

    def _close(self, reply: Reply[Any]) -> None:
        self._asks.discard(reply)
        if not self._asks:
            self._idle.set()

    async def _ask(self, reply: Reply[T]) -> T:
        self._asks.add(reply)
        try:
            return await reply.wait()
        finally:
            self._close(reply)

    def _put(self, work: Work) -> None:
        """Into all mailboxes, or none: no checkpoint in here, so that all partitions meet shared work in one order."""
        if len(work.parts) == 1:
            self.house.awake(work.parts[0].slot).put(work)
            return
        actors = [self.house.awake(slot) for slot in dict.fromkeys(part.slot for part in work.parts)]
        if all(actor.free for actor in actors):
            work.arrivals = 1  # all of them are here
            actors[0].put(work)
            return
        for actor in actors:
            if actor.full:
                raise Busy(retry_later(actor.slot))
        for actor in actors:
            actor.line_up(work)

    def push_parts(self, plan: Plan, caller: Caller) -> list[Part]:
        """The commands of a push, for partitions that exist from now on. Raises where there is no room."""
        self.core.check_room()
        slots = self._slots(plan, caller)
        return [Part(slot, Push(*push)) for slot, push in zip(slots, plan.pushes(), strict=True)]

    def _slots(self, plan: Plan, caller: Caller) -> list[Slot]:
        """The partitions of a push, made where they are missing (P5)."""
        known = [self.core.catalogue.slot(*place) for place in plan.places]
        found_all = [slot for slot in known if slot is not None]
        if len(found_all) == len(known):
            return found_all
        find = self.core.projections.find
        missing = [place for place, slot in zip(plan.places, known, strict=True) if slot is None]
        missing = [place for place in missing if not plan.settle(place, find)]
        for queue in {queue for queue, _ in missing}:
            found = self.core.catalogue.queues.get(queue)
            if found is not None:
                queue_full(found, plan.count_new(queue, find))
        for queue, partition in missing:
            found = self.core.catalogue.queues.get(queue)
            if found is None:
                found = self._create_queue(queue, *plan.grouping(queue), DEFAULTS, caller)
            if partition not in found.slots:
                self._create_partition(found, partition, caller)
        return [self.core.catalogue.queues[queue].slots[partition] for queue, partition in plan.places]

    def _create_queue(
        self, name: str, namespace: str | None, task: str | None, options: QueueOptions, caller: Caller
    ) -> Queue:
        catalogue = self.core.catalogue
        event = rules.create_queue(catalogue, name, self.core.ids.block(), namespace, task, options)
        self.core.record_catalogue(event, caller)
        queue = catalogue.queues[name]
        self._create_partition(queue, DEFAULT_PARTITION, caller)  # Z12
        return queue

    def _create_partition(self, queue: Queue, name: str, caller: Caller) -> None:
        number = self.core.catalogue.next_partition
        event = rules.create_partition(queue, name, self.core.ids.block())
        seq = self.core.record_catalogue(event, caller, number)
        state = Partition(number)
        evolve(state, event, 0)
        slot = queue.slots[name]
        slot.deleted = state.deleted
        self.house.keep(slot, state, seq)


def _answer(reply: Reply[list[Any]], replies: list[Any] | None, error: BaseException | None) -> None:
    if error is not None:
        reply.fail(error)
    else:
        reply.set(replies or [])


def _unchanged(replies: list[Any]) -> list[Any]:
    return replies


def admit_pushes(parts: Sequence[Part], decisions: Sequence[Decision]) -> None:
    """P6: refuse the whole push where a queue would hold more than it may. `decisions` may go on behind the parts."""
    if not any([part.slot.queue.options.max_size for part in parts]):
        return
    counts: dict[Queue, int] = {}
    for part, decision in zip(parts, decisions, strict=False):
        for event in decision.events:
            if isinstance(event, MessagesPushed):
                queue = part.slot.queue
                counts[queue] = counts.get(queue, 0) + len(event.sizes)
    for queue, count in counts.items():
        queue_full(queue, count)

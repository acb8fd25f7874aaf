"""The router actor: fans pops across partitions, and parks those that find nothing.

Everything reaches it through its inbox: pops, what partitions say of themselves, what became of a pop that was
sent to one. It never waits for an answer and never polls: it sleeps until its inbox fills or an offer becomes ready.
A pop is parked in the same step that finds nothing, so no wake-up falls between.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import trio

from queen.actors.availability import Offer
from queen.actors.catalogue_state import Queue, Slot
from queen.actors.core import Core
from queen.actors.introduction import Introduction
from queen.actors.lines import Line, Timers
from queen.actors.mailbox import Granted, Part, PopRequest, Work
from queen.actors.offers import Offers
from queen.actors.residents import Residents
from queen.actors.ticker import Ticker
from queen.actors.waiting import Waiting
from queen.commands import Pop
from queen.errors import QueenError, QueueGone, ShuttingDown
from queen.names import DEFAULT_GROUP, SECOND
from queen.options import STRICT
from queen.replies import Grant, Nothing

INBOX_STEPS = 256
"""Messages handled, and offers that become ready, before others may run."""
LETS_PASS = 32
"""Parked pops that one that can't wait lets go first; with more of them, it would flood the partition's mailbox."""


class Router:
    """See the module."""

    def __init__(self, core: Core, house: Residents, ticker: Ticker) -> None:
        self._core = core
        self._house = house
        self._ticker = ticker
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = trio.Event()
        self._offers = Offers(core, house)
        self._introductions = self._offers.introductions
        self._waiting = Waiting()
        self._timers: Timers[tuple[Slot, int]] = Timers()
        self._tickets = 0
        self._early: list[PopRequest] = []
        self._closing = False

    @property
    def parked(self) -> int:
        """How many pops wait."""
        return len(self._waiting)

    # -- the inbox: called by others, carried out by the router's task ------------------------------------

    def pop(self, request: PopRequest) -> None:
        """Serve the pop, or park it; its reply comes when what it got is durable."""
        self._tell(partial(self._arrive, request))

    def expire(self, request: PopRequest) -> None:
        """The pop has waited long enough: answer it with what there is now."""
        self._tell(partial(self._expire, request))

    def leave(self, request: PopRequest) -> None:
        """The asker is gone: nothing is to be given to it any more (L8)."""
        request.abandoned = True
        if request.work is not None:
            request.work.abandoned = True
        self._tell(partial(self._forget, request))

    def offer(self, slot: Slot, group: int, offer: Offer | None, held: Nothing | None) -> None:
        """A partition says what it has for a group, see `Line.offer`."""
        self._tell(partial(self._offered, slot, group, offer, held))

    def begin_with(self, slot: Slot, head_at: int) -> None:
        """At the start: the partition has something for the default group, the oldest of it pushed at `head_at`."""
        line = self._offers.known(slot.queue, DEFAULT_GROUP)
        assert line is not None, "the default group is always known"
        line.add_ready(slot, head_at)

    def reconsider(self, queue: Queue) -> None:
        """The queue's options have changed: every partition with something in it is to speak again (T5)."""
        self._tell(partial(self._reconsider, queue))

    def forget(self, queue: Queue, group: int | None = None) -> None:
        """The queue, or one of its groups, is gone. Whoever is parked stays so, by name (O2)."""
        self._offers.drop(queue, group)
        if group is None:
            for known in queue.groups.values():
                self._timers.drop((slot, known.number) for slot in queue.slots.values())

    def forget_unasked(self) -> None:
        """Let go of groups that nobody has asked for since the last time."""
        self._tell(self._offers.forget_unasked)

    def close(self) -> None:
        """Answer every parked pop with nothing, and park no more."""
        self._closing = True
        self._tell(self._drain)

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            for _ in range(INBOX_STEPS):
                if not self._inbox:
                    break
                self._inbox.popleft()()
            if self._introductions:
                self._tell(partial(self._introduced, *self._introductions.step()))
            if self._meet_ready() or self._inbox:
                await trio.lowlevel.checkpoint()
            else:
                await self._sleep()

    def _meet_ready(self) -> bool:
        """See to offers that have become ready, up to a limit; whether there are more."""
        now = self._core.clock.now()
        for slot, group in islice(self._timers.due(now), INBOX_STEPS):
            self._time_for(slot, group, now)
        if self._timers.is_due(now):
            return True
        early, self._early = self._early, []
        for request in early:
            if not self._ticker.ask(partial(self._tell, partial(self._serve, request))):
                self._serve(request)
        return False

    def _tell(self, step: Callable[[], Any]) -> None:
        self._inbox.append(step)
        self._wake.set()

    async def _sleep(self) -> None:
        self._wake = trio.Event()
        at = self._timers.next()
        if at is None:
            await self._wake.wait()
            return
        with trio.move_on_after(max(0, at - self._core.clock.now()) / SECOND):
            await self._wake.wait()

    # -- pops ---------------------------------------------------------------------------------------------

    def _arrive(self, request: PopRequest) -> None:
        self._tickets += 1
        request.ticket = self._tickets
        request.since_seq = self._core.writer.seq
        self._serve(request)

    def _serve(self, request: PopRequest) -> None:
        """Send the pop to the best partition, or else answer or park it."""
        if request.abandoned:
            self._release(request)
            return
        slot = self._offers.choose(request)
        if isinstance(slot, Introduction):
            self._introduce(request, slot)
            return
        if slot is None and not request.granted and not request.wait:
            slot = self._offers.in_between(request)
        if slot is not None:
            self._queue_up(request, slot)
        elif request.granted:
            self._finish(request)
        elif request.wait and not self._closing:
            self._waiting.park(request)
        elif not self._await_ticks(request):
            request.reply.set(self._offers.held(request))

    def _introduce(self, request: PopRequest, introduction: Introduction) -> None:
        """Let the pop wait until its group has been introduced to what it asks for."""
        if self._closing:
            request.reply.set(self._offers.held(request))
        elif request.scope.partition is not None:
            request.introduced = True
            self._house.introduce(introduction.queue.slots[request.scope.partition], introduction.group)
            self._tell(partial(self._serve, request))  # behind what the partition says
        elif introduction.long and request.wait and not request.granted:
            self._waiting.park(request)
        else:
            introduction.askers.append(request)

    def _introduced(self, askers: list[PopRequest], over: Introduction | None) -> None:
        """Carried out behind what the partitions said that were asked last."""
        line = self._offers.known(over.queue, over.group) if over is not None else None
        if line is not None and line.introduction is over:
            line.introduction = None
        for request in askers:
            self._serve(request)

    def _await_ticks(self, request: PopRequest) -> bool:
        """Whether the pop is to be served again, once, when partitions have done what is due now: it is not to find
        nothing because a lease or a delay that is over has not been looked at yet (L5)."""
        if request.ticked:
            return False
        request.ticked = True
        if self._timers.is_due(self._core.clock.now()):
            self._early.append(request)
            return True
        again = partial(self._tell, partial(self._serve, request))
        if not self._ticker.ask(again):
            if not self._inbox:
                return False
            again()  # behind what partitions have said a moment ago: they may have ticked already
        return True

    def _queue_up(self, request: PopRequest, slot: Slot) -> None:
        """Send the pop, behind those who have waited longer for that partition (O5)."""
        queue = slot.queue
        for _ in range(LETS_PASS):
            first = self._waiting.peek(queue.name, slot.name, queue.namespace, queue.task, request.group)
            if first is None or first.ticket > request.ticket:
                break
            self._waiting.leave(first)
            self._send(first, slot)
            if request.wait and not request.granted:
                self._waiting.park(request)  # its turn comes when the partition speaks
                return
        self._send(request, slot)

    def _send(self, request: PopRequest, slot: Slot) -> None:
        group = self._offers.group(slot.queue, request)
        lease = (request.lease_base + len(request.granted)).to_bytes(16)
        command = Pop(group.number, request.batch, lease, request.auto_ack, request.worker, request.room)
        work = Work((Part(slot, command),), request.caller, decided=partial(self._decided, request, slot))
        request.work = work
        if slot.queue.options.ordering == STRICT:
            self._offers.line(slot.queue, request).take(slot)
        try:
            self._house.awake(slot).put(work)
        except QueenError as error:
            self._returned(request, slot, None, error)

    def _decided(self, request: PopRequest, slot: Slot, replies: list[Any] | None, error: BaseException | None) -> None:
        """Called by the partition, before anything is durable; carried out as a message."""
        self._tell(partial(self._returned, request, slot, replies, error))

    def _returned(
        self, request: PopRequest, slot: Slot, replies: list[Any] | None, error: BaseException | None
    ) -> None:
        request.work = None
        if isinstance(error, QueueGone):
            self._serve(request)  # as if it had come after the deletion
            return
        if replies is None:
            # What other partitions gave already is handed on all the same.
            if request.granted:
                self._finish(request)
            else:
                request.reply.fail(error or ShuttingDown("the partition has ended"))
            return
        reply = replies[0]
        if isinstance(reply, Grant):
            request.granted.append(Granted(slot, reply))
            request.batch -= len(reply.taken)
            request.partitions -= 1
            request.room -= reply.size
            if request.batch < 1 or request.partitions < 1 or request.room < 1:
                self._finish(request)
                return
        self._serve(request)

    def _finish(self, request: PopRequest) -> None:
        if request.abandoned:
            self._release(request)
            return

        def told(failure: QueenError | None) -> None:
            if failure is None:
                request.reply.set(request.granted)
            else:
                request.reply.fail(failure)

        self._core.writer.then(told)

    def _expire(self, request: PopRequest) -> None:
        request.wait = False
        if request.parked:
            self._waiting.leave(request)
            request.reply.set(self._offers.held(request))

    def _forget(self, request: PopRequest) -> None:
        # What a partition is still asked for will be dropped unseen; what it has decided has come back before this.
        self._waiting.leave(request)
        self._release(request)

    def _release(self, request: PopRequest) -> None:
        """Give back what the pop of a vanished asker got already."""
        granted, request.granted = request.granted, []
        if granted and not request.auto_ack:
            self._house.release([grant.lease for _, grant in granted])

    # -- what partitions say ------------------------------------------------------------------------------

    def _offered(self, slot: Slot, group: int, offer: Offer | None, held: Nothing | None) -> None:
        if slot.number not in self._core.catalogue.slots:
            return
        line = self._offers.known(slot.queue, group)
        if line is None:
            return  # nobody has asked for this group since the start; its first pop asks the partitions
        line.offer(slot, offer, held)
        if not group:
            self._meet_parked(slot)
        if offer is None:
            return
        if offer.ready_at > self._core.clock.now():
            self._timers.set((slot, group), offer.ready_at)
            return
        self._ready(line, slot, group)

    def _ready(self, line: Line, slot: Slot, group: int) -> None:
        """Available: to the first in line, or kept for who comes."""
        line.set_ready(slot)
        queue = slot.queue
        request = self._waiting.first(queue.name, slot.name, queue.namespace, queue.task, _name(queue, group))
        if request is not None:
            self._send(request, slot)

    def _time_for(self, slot: Slot, group: int, now: int) -> None:
        line = self._offers.known(slot.queue, group) if slot.number in self._core.catalogue.slots else None
        offer = line.expected(slot) if line is not None else None
        if line is None or offer is None:
            return
        if offer.ready_at > now:
            self._timers.set((slot, group), offer.ready_at)
        else:
            self._ready(line, slot, group)

    def _reconsider(self, queue: Queue) -> None:
        if queue.number not in self._core.catalogue.numbers:
            return
        self._meet_parked(next(iter(queue.slots.values())))  # its namespace and task may be others
        if queue.options.retention_enabled:
            self._ticker.visit(list(queue.slots.values()))
            return
        concerned = dict.fromkeys(self._house.awake_in(queue))
        for group in queue.groups.values():
            line = self._offers.known(queue, group.number)
            if line is not None:
                concerned.update(dict.fromkeys(line.known()))
        self._ticker.visit(concerned)

    def _meet_parked(self, slot: Slot) -> None:
        """Pops of groups that nobody asked this queue for may have waited for it to appear (O2, G2, C2)."""
        queue = slot.queue
        for name in self._waiting.groups(queue.name, slot.name, queue.namespace, queue.task):
            group = queue.groups.get(name)
            if group is None or self._offers.known(queue, group.number) is None:
                request = self._waiting.peek(queue.name, slot.name, queue.namespace, queue.task, name)
                if request is not None:
                    self._offers.line(queue, request)

    def _drain(self) -> None:
        for request in [*self._waiting.drain(), *self._introductions.drain()]:
            request.reply.set(self._offers.held(request))


def _name(queue: Queue, number: int) -> str | None:
    if not number:
        return None
    group = queue.groups.numbered(number)
    return None if group is None else group.name

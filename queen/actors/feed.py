"""The feed: what was committed, told to subscribers in commit order (W1). Nobody waits for a subscriber: each has a
bounded buffer, out of which the oldest falls, and is told how much (W2).

While nobody subscribes, a record costs one look at an empty list. The feed outlives engines, its subscribers too.
"""

from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from queen.actors.telling import Told, single, told_of
from queen.clock import Clock
from queen.errors import QueenError
from queen.events import AnyEvent
from queen.meter import Meter
from queen.notices import Notice, NoticesDropped

if TYPE_CHECKING:
    from queen.actors.core import Core

BUFFER = 10_000
"""Notices that wait for one subscriber: ten of the largest pushes. They are shared by all who wait for them, and not
made before somebody takes them."""


class Feed:
    """Committed events to subscribers. Everything is synchronous; no subscriber can hold anybody up."""

    def __init__(self, clock: Clock, meter: Meter) -> None:
        self._clock = clock
        self.meter = meter
        self.subscribers: list[Subscription] = []
        self._undurable: deque[tuple[int, Told]] = deque()
        self._asked = False
        self._ordinal = 0
        self._changed = trio.Event()
        self._closed = False

    # -- for embedders ------------------------------------------------------------------------------------

    def subscribe(self, queues: Collection[str] | None = None, *, buffer: int = BUFFER) -> "Subscription":
        """What is committed from now on, as ``async with feed.subscribe() as notices: async for notice in notices``.

        `queues` leaves out notices of other queues. At most `buffer` notices wait (or those of one record, up to 1000,
        where these are more); past it the oldest are dropped, and a `NoticesDropped` says how many. The iterator ends
        when the broker stops."""
        return Subscription(self, queues, buffer)

    def publish(self, notice: Notice, *, but: "Subscription | None" = None) -> None:
        """Tell all subscribers something that is in no record, `but` one of them."""
        self._tell(single(notice), but)

    def now(self) -> int:
        """The instant to put on a notice that is in no record."""
        return self._clock.now() + self._clock.shift()

    # -- for the actors -----------------------------------------------------------------------------------

    def recorded(
        self, core: "Core", seq: int, partition: int, now: int, shift: int, events: Sequence[AnyEvent]
    ) -> None:
        """A record has been handed in; it is told once it is durable."""
        for event in events:
            told = told_of(core, partition, event, now + shift)
            if told is not None:
                self._undurable.append((seq, told))
        self._await_commit(core)

    def observed(self, core: "Core", told: Told) -> None:
        """Something was read off the actors, which may be ahead of the disk: it is told once all of that is durable."""
        self._undurable.append((core.writer.seq, told))
        self._await_commit(core)

    def queues_wanted(self) -> frozenset[str] | None:
        """The queues that somebody wants to hear of, None for all."""
        wanted: set[str] = set()
        for subscriber in self.subscribers:
            if subscriber.queues is None:
                return None
            wanted |= subscriber.queues
        return frozenset(wanted)

    async def wait_wanted(self) -> None:
        """Return once somebody subscribes."""
        while not self.subscribers:
            await self._changed.wait()

    def close(self) -> None:
        """End all subscriptions, present and future."""
        self._closed = True
        for subscriber in tuple(self.subscribers):
            subscriber.close()

    # -- inside -------------------------------------------------------------------------------------------

    def _await_commit(self, core: "Core") -> None:
        # One callback per commit, not per record: what is behind that commit asks again.
        if self._undurable and not self._asked:
            self._asked = True
            core.writer.then(partial(self._committed, core))

    def _committed(self, core: "Core", failure: QueenError | None) -> None:
        self._asked = False
        if failure is not None:
            self._undurable.clear()  # never happened
            return
        durable = core.writer.durable
        while self._undurable and self._undurable[0][0] <= durable:
            self._tell(self._undurable.popleft()[1])
        self._await_commit(core)

    def next_ordinal(self) -> int:
        """The place of what is told next."""
        self._ordinal += 1
        return self._ordinal

    def _tell(self, told: Told, but: "Subscription | None" = None) -> None:
        told.ordinal = self.next_ordinal()
        for subscriber in self.subscribers:
            if subscriber is not but:
                subscriber.offer(told)

    def enter(self, subscriber: "Subscription") -> None:
        """For `Subscription` alone, as `leave` is."""
        if self._closed:
            subscriber.close()
            return
        self.subscribers.append(subscriber)
        self._changed.set()
        self._changed = trio.Event()

    def leave(self, subscriber: "Subscription") -> None:
        """The subscriber wants no more."""
        if subscriber in self.subscribers:
            self.subscribers.remove(subscriber)


class Subscription:
    """One subscriber's view of the feed; for one task."""

    def __init__(self, feed: Feed, queues: Collection[str] | None, buffer: int) -> None:
        self._feed = feed
        self.queues = None if queues is None else frozenset(queues)
        self._limit = buffer
        self._waiting: deque[Told] = deque()
        self._newest: dict[tuple[str, ...], Told] = {}
        self._taken: deque[Notice] = deque()
        self._taken_of: str | None = None
        self._size = 0
        self._dropped = 0
        self._wake = trio.Event()
        self._closed = False

    async def __aenter__(self) -> "Subscription":
        self._feed.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Notice:
        """The next notice. Cancelled, none is lost. Always lets others run first."""
        await trio.lowlevel.checkpoint()
        while not self._closed:
            if self._dropped:
                count, self._dropped = self._dropped, 0
                return NoticesDropped(at=self._feed.now(), count=count)
            if self._taken:
                self._size -= 1
                return self._taken.popleft()
            if not self._take():
                self._wake = trio.Event()
                await self._wake.wait()
        raise StopAsyncIteration

    async def batch(self, limit: int) -> list[Notice]:
        """The next notices, as many as there are, at least one and up to `limit`; empty when it is over. Cancelled,
        none is lost."""
        try:
            notices = [await anext(self)]
        except StopAsyncIteration:
            return []
        while len(notices) < limit and not self._dropped and (self._taken or self._take()):
            if self._taken:  # a record of which nothing is left tells nothing
                self._size -= 1
                notices.append(self._taken.popleft())
        return notices

    def restrict(self, queues: Collection[str] | None) -> None:
        """Leave out notices of other queues from now on, also those that wait already; None lets all through."""
        self.queues = None if queues is None else frozenset(queues)
        self._waiting = deque(told for told in self._waiting if self._wants(told.queue))
        self._newest = {kind: told for kind, told in self._newest.items() if self._wants(told.queue)}
        if not self._wants(self._taken_of):
            self._taken.clear()
        self._size = len(self._taken) + sum(told.weight for told in self._waiting)

    def say(self, notice: Notice) -> None:
        """Tell this subscriber alone, behind everything that waits for it."""
        told = single(notice)
        told.queue = None
        told.ordinal = self._feed.next_ordinal()
        self.offer(told)

    def offer(self, told: Told) -> None:
        """Take in what the feed tells."""
        if not self._wants(told.queue):
            return
        if told.kind:
            self._newest.pop(told.kind, None)
            self._newest[told.kind] = told
        else:
            self._waiting.append(told)
            self._size += told.weight
            if self._size > self._limit:
                self._drop()
        self._wake.set()

    def close(self) -> None:
        """Want no more; the iterator ends."""
        if not self._closed:
            self._closed = True
            self._feed.leave(self)
            self._waiting.clear()
            self._newest.clear()
            self._wake.set()

    def _wants(self, queue: str | None) -> bool:
        return queue is None or self.queues is None or queue in self.queues

    def _take(self) -> bool:
        """Open the oldest that waits."""
        newest = next(iter(self._newest.values()), None)
        if newest is not None and (not self._waiting or newest.ordinal < self._waiting[0].ordinal):
            told = self._newest.pop(newest.kind)
            weight = 0
        elif self._waiting:
            told = self._waiting.popleft()
            weight = told.weight
        else:
            return False
        notices = told.notices()
        self._taken.extend(notices)
        self._taken_of = told.queue
        self._size += len(notices) - weight
        return True

    def _drop(self) -> None:
        """The oldest goes first, and the newest record is never what has to go."""
        lost = len(self._taken)
        self._taken.clear()
        self._size -= lost
        while self._size > self._limit and len(self._waiting) > 1:
            told = self._waiting.popleft()
            lost += told.weight
            self._size -= told.weight
        self._dropped += lost
        self._feed.meter.dropped += lost

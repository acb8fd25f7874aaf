"""What the router knows of partitions, per queue and group: which could deliver now, which later, which are held up.

Pure. A `Line` orders the available partitions by their oldest available message (O3); `Timers` is a heap of
instants. Both let stale entries lie in their heaps until they come up, and bound how many may lie there.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Generic, TypeVar

from queen.actors.availability import Offer
from queen.actors.catalogue_state import Slot
from queen.actors.introduction import Introduction
from queen.replies import Nothing

K = TypeVar("K")

_SLACK = 64


class Line:
    """The partitions of one queue as one group sees them; not all of them before its `introduction` is over."""

    def __init__(self) -> None:
        self.introduction: Introduction | None = None
        self.offers: dict[Slot, Offer] = {}
        self._ready: dict[Slot, int] = {}
        self._taken: dict[Slot, None] = {}
        self._heap: list[tuple[int, int, Slot]] = []
        self._held: dict[Slot, Nothing] = {}
        self._held_heap: list[tuple[int, int, Slot]] = []

    def offer(self, slot: Slot, offer: Offer | None, held: Nothing | None) -> None:
        """The partition says what it has, or what holds its pending messages back."""
        if offer is None:
            self.offers.pop(slot, None)
        else:
            self.offers[slot] = offer
        self._ready.pop(slot, None)
        self._taken.pop(slot, None)
        self._hold(slot, held)

    def set_ready(self, slot: Slot) -> None:
        """Its offer's time has come."""
        head_at = self.offers[slot].head_at
        self._held.pop(slot, None)
        if self._ready.get(slot) != head_at:
            self._ready[slot] = head_at
            heappush(self._heap, (head_at, slot.number, slot))
            if len(self._heap) > 2 * len(self._ready) + _SLACK:
                self._heap = [(head, found.number, found) for found, head in self._ready.items()]
                heapify(self._heap)

    def take(self, slot: Slot) -> None:
        """A pop is on its way there: count it as not available until the partition speaks again."""
        self._ready.pop(slot, None)
        self._taken[slot] = None

    def is_taken(self, slot: Slot) -> bool:
        """Whether a pop is on its way there; the partition knows best what another one would get."""
        return slot in self._taken

    def taken(self) -> Slot | None:
        """One of the partitions that a pop is on its way to, if there is any."""
        return next(iter(self._taken), None)

    def known(self) -> Iterator[Slot]:
        """The partitions that have something for the group, some of them more than once."""
        return chain(self.offers, self._held, self._taken)

    def is_ready(self, slot: Slot) -> bool:
        """Whether a pop would get something there."""
        return slot in self._ready

    def best(self) -> tuple[int, Slot] | None:
        """The available partition whose oldest available message is oldest, and when that was pushed."""
        while self._heap:
            head_at, _, slot = self._heap[0]
            if self._ready.get(slot) == head_at:
                return head_at, slot
            heappop(self._heap)
        return None

    def held(self, slot: Slot | None = None) -> Nothing:
        """What holds back pending messages, of one partition or the one that ends first (Z10)."""
        if slot is not None:
            return self._held.get(slot, Nothing())
        while self._held_heap:
            until, _, first = self._held_heap[0]
            nothing = self._held.get(first)
            if nothing is not None and nothing.until == until:
                return nothing
            heappop(self._held_heap)
        return Nothing()

    def drop(self, slot: Slot) -> None:
        """The partition is gone."""
        self.offer(slot, None, None)

    def _hold(self, slot: Slot, held: Nothing | None) -> None:
        if held is None or held.until is None:
            self._held.pop(slot, None)
        elif self._held.get(slot) != held:
            self._held[slot] = held
            heappush(self._held_heap, (held.until, slot.number, slot))
            if len(self._held_heap) > 2 * len(self._held) + _SLACK:
                self._held_heap = [(nothing.until or 0, found.number, found) for found, nothing in self._held.items()]
                heapify(self._held_heap)


class Timers(Generic[K]):
    """Instants at which something is to be looked at, the earliest for each key."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, K]] = []
        self._earliest: dict[K, int] = {}
        self._entries = 0

    def set(self, key: K, at: int) -> bool:
        """Look at the key at that instant, unless it will be looked at before. Says whether this is the next one."""
        known = self._earliest.get(key)
        if known is not None and known <= at:
            return False
        self._earliest[key] = at
        self._entries += 1
        entry = (at, self._entries, key)
        heappush(self._heap, entry)
        return self._heap[0] is entry

    def drop(self, keys: Iterable[K]) -> None:
        """Look at these no more."""
        for key in keys:
            self._earliest.pop(key, None)
        if len(self._heap) > 2 * len(self._earliest) + _SLACK:
            self._heap = [entry for entry in self._heap if self._earliest.get(entry[2]) == entry[0]]
            heapify(self._heap)

    def due(self, now: int) -> Iterator[K]:
        """Take off the keys whose time has come."""
        while self.is_due(now):
            _, _, key = heappop(self._heap)
            del self._earliest[key]
            yield key

    def is_due(self, now: int) -> bool:
        """Whether there are any whose time has come."""
        at = self.next()
        return at is not None and at <= now

    def next(self) -> int | None:
        """The next instant, or None."""
        while self._heap:
            at, _, key = self._heap[0]
            if self._earliest.get(key) == at:
                return at
            heappop(self._heap)
        return None

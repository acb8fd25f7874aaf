"""What the router knows of partitions, per queue and group: which could deliver now, which later, which are held up.

Pure. A `Line` orders the available partitions by their oldest available message (O3); `Timers` is a heap of
instants. Both let stale entries lie in their heaps until they come up, and bound how many may lie there.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Generic, TypeVar

from queen.actors.availability import Offer
from queen.actors.catalogue_state import Slot
from queen.actors.introduction import Introduction
from queen.replies import Nothing

K = TypeVar("K")

_SLACK = 64
_NUMBER_BITS = 64
_NUMBER = (1 << _NUMBER_BITS) - 1


class Line:
    """The partitions of one queue as one group sees them; not all of them before its `introduction` is over. `asked`:
    somebody has since it was last set to False."""

    def __init__(self, slots: Mapping[int, Slot]) -> None:
        """`slots` are all partitions by number."""
        self.introduction: Introduction | None = None
        self.asked = True
        self._slots = slots
        self._offers: dict[Slot, Offer] = {}
        # There may be a million available partitions: one number for each, its rank (`_rank`), in both.
        self._ready: dict[Slot, int] = {}
        self._heap: list[int] = []
        self._taken: dict[Slot, None] = {}
        self._held: dict[Slot, Nothing] = {}
        self._held_heap: list[tuple[int, int, Slot]] = []

    def offer(self, slot: Slot, offer: Offer | None, held: Nothing | None) -> None:
        """The partition says what it has, or what holds its pending messages back."""
        if offer is None:
            self._offers.pop(slot, None)
        else:
            self._offers[slot] = offer
        self._ready.pop(slot, None)
        self._taken.pop(slot, None)
        self._hold(slot, held)

    def expected(self, slot: Slot) -> Offer | None:
        """Its offer, where that is not ready yet."""
        return self._offers.get(slot)

    def set_ready(self, slot: Slot) -> None:
        """Its offer's time has come."""
        self._held.pop(slot, None)
        self.add_ready(slot, self._offers.pop(slot).head_at)

    def add_ready(self, slot: Slot, head_at: int) -> None:
        """It has something for whoever comes; the oldest of it was pushed at `head_at`."""
        rank = self._ready[slot] = _rank(head_at, slot)
        heappush(self._heap, rank)
        if len(self._heap) > 2 * len(self._ready) + _SLACK:
            self._heap = list(self._ready.values())
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
        return chain(self._offers, self._ready, self._held, self._taken)

    def is_ready(self, slot: Slot) -> bool:
        """Whether a pop would get something there."""
        return slot in self._ready

    def best(self) -> tuple[int, Slot] | None:
        """The available partition whose oldest available message is oldest, and when that was pushed."""
        while self._heap:
            rank = self._heap[0]
            slot = self._slots.get(rank & _NUMBER)
            if slot is not None and self._ready.get(slot) == rank:
                return rank >> _NUMBER_BITS, slot
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

    def _hold(self, slot: Slot, held: Nothing | None) -> None:
        if held is None or held.until is None:
            self._held.pop(slot, None)
        elif self._held.get(slot) != held:
            self._held[slot] = held
            heappush(self._held_heap, (held.until, slot.number, slot))
            if len(self._held_heap) > 2 * len(self._held) + _SLACK:
                self._held_heap = [(nothing.until or 0, found.number, found) for found, nothing in self._held.items()]
                heapify(self._held_heap)


def _rank(head_at: int, slot: Slot) -> int:
    """Orders partitions by their oldest available message (O3), and then by number."""
    return head_at << _NUMBER_BITS | slot.number


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

"""Introducing a consumer group to the partitions of a queue when it is first asked for since the start: a few
partitions at a time, however many there are, and those who asked wait for it. Sleeping partitions are not woken.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice

from queen.actors.catalogue_state import Queue, Slot
from queen.actors.mailbox import PopRequest

AT_ONCE = 32
"""Partitions that are asked before others may run, up to 0.1 ms each."""
WHOLE = 10_000
"""So many partitions are asked before a pop is given the oldest message of those: with more of them, it would have to
wait for seconds. Until all are asked, it is served only if these have anything."""


class Introduction:
    """One group's to one queue: the partitions that are still to be asked, and the pops that wait for it."""

    __slots__ = ("asked", "askers", "group", "left", "queue")

    def __init__(self, queue: Queue, group: int) -> None:
        self.queue = queue
        self.group = group
        self.asked = 0
        self.left = iter(list(queue.slots.values()))
        self.askers: list[PopRequest] = []

    @property
    def long(self) -> bool:
        """Whether it takes so long that pops may be served before it is over."""
        return self.asked >= WHOLE


class Introductions:
    """Those that are going on. `introduce(slot, group)` lets the partition say what it has."""

    def __init__(self, introduce: Callable[[Slot, int], None]) -> None:
        self._introduce = introduce
        self._going: deque[Introduction] = deque()

    def __bool__(self) -> bool:
        return bool(self._going)

    def begin(self, queue: Queue, group: int) -> Introduction:
        """One more, to be gone on with by `step`."""
        introduction = Introduction(queue, group)
        self._going.append(introduction)
        return introduction

    def step(self) -> tuple[list[PopRequest], Introduction | None]:
        """Ask some partitions. Returns the pops to be served, once these have answered, and what is over."""
        going = self._going.popleft()
        slots = list(islice(going.left, AT_ONCE))
        for slot in slots:
            self._introduce(slot, going.group)
        going.asked += len(slots)
        over = len(slots) < AT_ONCE
        if not over:
            self._going.append(going)
        if not over and not going.long:
            return [], None
        askers, going.askers = going.askers, []
        return askers, going if over else None

    def drain(self) -> list[PopRequest]:
        """Take off all the pops that wait."""
        waiting = [request for going in self._going for request in going.askers]
        for going in self._going:
            going.askers.clear()
        return waiting

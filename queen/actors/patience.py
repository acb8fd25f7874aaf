"""How long parked pops wait: one heap of ends and one task, instead of a deadline in a task for each."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

import trio

from queen.actors.mailbox import PopRequest

_SLACK = 64


class Patience:
    """Says of each pop that still waits when its time is over."""

    def __init__(self, expire: Callable[[PopRequest], None]) -> None:
        self._expire = expire
        self._heap: list[tuple[float, int, PopRequest]] = []
        self._entries = 0
        self._waiting: set[PopRequest] = set()
        self._wake = trio.Event()

    def add(self, request: PopRequest, at: float) -> None:
        """The pop waits until `at`, on Trio's clock."""
        self._entries += 1
        self._waiting.add(request)
        heappush(self._heap, (at, self._entries, request))
        if self._heap[0][2] is request:
            self._wake.set()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def over(self, request: PopRequest) -> None:
        """The pop waits no longer; said again, it changes nothing: who leaves may be answered all the same."""
        self._waiting.discard(request)
        if len(self._heap) > 2 * len(self._waiting) + _SLACK:
            self._heap = [entry for entry in self._heap if _waits(entry[2])]
            heapify(self._heap)

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                request = heappop(self._heap)[2]
                if _waits(request):
                    self._expire(request)
            self._wake = trio.Event()
            with trio.CancelScope(deadline=self._heap[0][0] if self._heap else float("inf")):
                await self._wake.wait()


def _waits(request: PopRequest) -> bool:
    return not (request.reply.is_set or request.abandoned)

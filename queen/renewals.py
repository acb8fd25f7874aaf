"""Leases that are kept alive while their holders work: one task per broker, and a heap of when to extend what.

A lease stays as short as its queue says, so that a message whose process dies comes back soon; it is extended by
that much again whenever half of it has passed.
"""

from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count

import trio

from queen.errors import NotFound, QueenError

_AGAIN_S = 0.5
"""After an extension that failed for a moment's reason."""


class HeldLease:
    """A lease as its holder knows it. `until` is when it ends, on Trio's clock; `seconds` its queue's leaseTime."""

    __slots__ = ("id", "seconds", "until")

    def __init__(self, lease_id: str, seconds: int) -> None:
        self.id = lease_id
        self.seconds = seconds
        self.until = trio.current_time() + seconds


class Renewal:
    """A lease that is to live while `running`. Where it is `lost` all the same, `scope` has been cancelled."""

    __slots__ = ("lease", "lost", "running", "scope")

    def __init__(self, lease: HeldLease, scope: trio.CancelScope) -> None:
        self.lease = lease
        self.scope = scope
        self.running = True
        self.lost = False


class Renewals:
    """Extends leases in time. `run` does the work."""

    def __init__(self, extend: Callable[[str], Awaitable[int]]) -> None:
        self._extend = extend
        self._due: list[tuple[float, int, Renewal]] = []
        self._tickets = count()
        self._sooner = trio.Event()
        self._scope = trio.CancelScope()

    def begin(self, lease: HeldLease, scope: trio.CancelScope) -> Renewal:
        """Keep the lease alive from now on, until the renewal is no longer `running`."""
        renewal = Renewal(lease, scope)
        self._put(lease.until - lease.seconds / 2, renewal)
        return renewal

    async def run(self) -> None:
        """Extend what is due, until `close`."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                while True:
                    await self._wait()
                    now = trio.current_time()
                    while self._due and self._due[0][0] <= now:
                        _, _, renewal = heappop(self._due)
                        if renewal.running:
                            nursery.start_soon(self._renew, renewal)

    def close(self) -> None:
        """End `run`; leases end by themselves from now on."""
        self._scope.cancel()

    async def _wait(self) -> None:
        """Until something may be due."""
        while self._due and not self._due[0][2].running:
            heappop(self._due)
        self._sooner = trio.Event()
        with trio.move_on_at(self._due[0][0] if self._due else float("inf")):
            await self._sooner.wait()

    async def _renew(self, renewal: Renewal) -> None:
        lease = renewal.lease
        asked = trio.current_time()
        try:
            await self._extend(lease.id)
        except NotFound:
            if renewal.running:
                renewal.lost = True
                renewal.scope.cancel()
        except QueenError:
            self._put(asked + min(_AGAIN_S, lease.seconds / 2), renewal)
        else:
            lease.until = asked + lease.seconds
            self._put(asked + lease.seconds / 2, renewal)

    def _put(self, at: float, renewal: Renewal) -> None:
        if not self._due or at < self._due[0][0]:
            self._sooner.set()
        heappush(self._due, (at, next(self._tickets), renewal))

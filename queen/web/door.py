"""Taking connections: no more than the process has file descriptors for, and quietly where it runs out of them."""

import errno
from collections.abc import Awaitable, Callable, Collection
from heapq import nsmallest
from math import inf
from typing import Final, Protocol, TypeVar

import structlog
import trio

log = structlog.get_logger("queen.web")

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_AT_ONCE: Final = 16
"""Idle connections that are closed for new ones, each time that there is no room."""
_PAUSE_S: Final = 0.1
"""Until the next look, where nothing could be closed. Clients wait in the kernel's queue meanwhile."""
_TOLD_EVERY_S: Final = 60.0


Stream = TypeVar("Stream", bound=trio.abc.AsyncResource)


class Guest(Protocol):
    """What the door knows of a connection (`connection.Connection`)."""

    @property
    def idle_since(self) -> float:
        """When the last request was over, in trio's time; infinite while one is under way."""

    def abort(self) -> None:
        """Close now."""


class Door:
    """Lets connections in while there is room. `inside` are those that are open; at most `most` of them.

    Where there is no room, those that have been idle for longest are closed: a client has to expect that of an idle
    connection at any time, and a new one brings work."""

    def __init__(self, inside: Collection[Guest], most: int) -> None:
        self._inside = inside
        self._most = most
        self._told_at = -inf

    async def let_in(
        self,
        listener: trio.abc.Listener[Stream],
        serve: Callable[[Stream], Awaitable[None]],
        nursery: trio.Nursery,
    ) -> None:
        """Accept until cancelled, and close the listener then; each connection is served in `nursery`."""
        async with listener:
            while True:
                if len(self._inside) >= self._most:
                    await self._make_room(f"{self._most} are open, and each takes a file descriptor")
                    continue
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in _EXHAUSTED:
                        raise
                    await self._make_room(error.strerror or str(error))
                    continue
                nursery.start_soon(serve, stream)

    async def _make_room(self, reason: str) -> None:
        closing = [guest for guest in nsmallest(_AT_ONCE, self._inside, key=_idle_since) if guest.idle_since < inf]
        now = trio.current_time()
        if now - self._told_at >= _TOLD_EVERY_S:
            self._told_at = now
            log.warning("no room for another connection", reason=reason, open=len(self._inside), closing=len(closing))
        for guest in closing:
            guest.abort()
        # One that is aborted leaves as soon as its task has come round.
        await trio.sleep(0 if closing else _PAUSE_S)


def _idle_since(guest: Guest) -> float:
    return guest.idle_since

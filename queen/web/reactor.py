"""The reactor: connections that wait for their next request, all behind one epoll and one task.

A task of its own that wakes for each request costs a connection more than most requests do. Here whoever waits is
called when there is something to read, and must not wait itself; what can't be answered so goes back to its task.
"""

import select
from collections.abc import Callable
from typing import Final

import trio

_AT_ONCE: Final = 64
"""Connections that are called before others may run."""


class Reactor:
    """Calls back those whose sockets can be read."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}

    @staticmethod
    def available() -> bool:
        """Whether this system has epoll: Linux. Elsewhere every connection is served by its task."""
        return hasattr(select, "epoll")

    def add(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever there is something to read, or the other side is gone. A callback must not raise."""
        self._callbacks[fd] = callback
        try:
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLRDHUP)
        except FileExistsError:  # muted until now
            self._epoll.modify(fd, select.EPOLLIN | select.EPOLLRDHUP)

    def mute(self, fd: int) -> None:
        """Call back no more for what can be read, but when the other side is gone. `add` undoes it."""
        self._epoll.modify(fd, select.EPOLLRDHUP)

    def remove(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back no more. Nothing happens where somebody else has that number by now."""
        if self._callbacks.get(fd) == callback:
            del self._callbacks[fd]
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass  # closed already, and so out of the set

    async def run(self) -> None:
        """Serve until cancelled. The epoll stays open for as long as anybody has it: others are cancelled at the same
        time, and still leave, or are answered."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for fd, _ in self._epoll.poll(0, _AT_ONCE):
                callback = self._callbacks.get(fd)
                if callback is not None:
                    callback()

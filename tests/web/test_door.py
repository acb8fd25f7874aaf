"""The door takes connections as long as there is room, makes room, and says so seldom."""

import errno
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import pytest
import structlog
import trio

from queen.web.door import Door


class Guest:
    def __init__(self, inside: list["Guest"], idle_since: float) -> None:
        self.idle_since = idle_since
        self._inside = inside
        inside.append(self)

    def abort(self) -> None:
        if self in self._inside:
            self._inside.remove(self)


class Stream(trio.abc.AsyncResource):
    async def aclose(self) -> None:
        """Nothing to close."""


class Listener(trio.abc.Listener[Stream]):
    """Accepts as `accepting` says."""

    def __init__(self, accepting: Callable[[], Awaitable[Stream]]) -> None:
        self.tries = 0
        self.closed = False
        self._accepting = accepting

    async def accept(self) -> Stream:
        self.tries += 1
        return await self._accepting()

    async def aclose(self) -> None:
        self.closed = True


async def exhausted() -> Stream:
    raise OSError(errno.EMFILE, "Too many open files")


async def serve_nothing(stream: Stream) -> None:
    """The connection is over at once."""


async def opened(door: Door, listener: Listener, seconds: float) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.let_in, listener, serve_nothing, nursery)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


async def test_without_file_descriptors_it_waits_and_says_so_once_a_minute(autojump_clock: Any) -> None:
    """And it doesn't spin: trio's own loop logs a traceback ten times a second here."""
    listener = Listener(exhausted)
    with structlog.testing.capture_logs() as lines:
        await opened(Door([], 10), listener, 600)
    assert [line["reason"] for line in lines] == ["Too many open files"] * 10
    assert 600 < listener.tries <= 6001


async def test_it_takes_again_as_soon_as_it_can(autojump_clock: Any) -> None:
    served = []

    async def later() -> Stream:
        if trio.current_time() < 5:
            return await exhausted()
        await trio.sleep(1)
        return Stream()

    async def serve(stream: Stream) -> None:
        served.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Door([], 10).let_in, Listener(later), serve, nursery)
        await trio.sleep(7)
        nursery.cancel_scope.cancel()
    assert served == [pytest.approx(6, abs=0.2)]


async def test_those_idle_for_longest_make_room_and_nobody_who_is_served(autojump_clock: Any) -> None:
    inside: list[Guest] = []
    busy = [Guest(inside, inf) for _ in range(10)]
    idle = [Guest(inside, 1000.0 + number) for number in range(40)]

    async def one_more() -> Stream:
        await trio.sleep(1)
        Guest(inside, 2000.0)
        return Stream()

    await opened(Door(inside, 50), Listener(one_more), 0.5)
    assert set(busy) <= set(inside)
    assert inside[10:] == idle[16:]


async def test_where_all_are_served_new_ones_wait(autojump_clock: Any) -> None:
    inside: list[Guest] = []
    for _ in range(5):
        Guest(inside, inf)
    listener = Listener(exhausted)
    await opened(Door(inside, 5), listener, 10)
    assert (listener.tries, len(inside)) == (0, 5)
    assert listener.closed, "from now on nobody gets in"


async def test_what_is_wrong_otherwise_is_raised() -> None:
    async def broken() -> Stream:
        raise OSError(errno.EBADF, "Bad file descriptor")

    with pytest.RaisesGroup(OSError):
        await opened(Door([], 5), Listener(broken), 1)

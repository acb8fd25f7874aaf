"""What a message may cost, in figures that don't depend on the machine: function calls, and memory that stays.

Function calls (of Python and of C, and each resumption of a coroutine) go up with the work that is done per message.
They are counted on one fixed scenario, so a change that makes every message dearer is seen here and not only in a
benchmark.
"""

import gc
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
import trio

from bench import traffic
from queen import Acknowledgement, Broker, NewMessage, open_broker
from queen.settings import Settings
from queen.web.serve import serve

ROUNDS: Final = 8
SLACK: Final = 1.25
"""How much dearer than written down a step may be. Other versions of Python and Trio differ by a few per cent."""

# Function calls of a whole request, the least of some rounds; written down from CPython 3.11.
LIBRARY: Final = {"push 1": 464, "push 100": 2425, "pop 100": 2243, "ack 100": 2862}
HTTP: Final = {"push 1": 683, "push 100": 2439, "pop 100": 2558, "ack 100": 3688}

KEPT: Final = 8
"""Bytes that may be kept for each message more: not even a reference."""


class Calls:
    """Counts what is called in this thread."""

    def __init__(self) -> None:
        self.number = 0

    def __enter__(self) -> "Calls":
        self._before = sys.getprofile()
        sys.setprofile(self._see)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self._before)

    def _see(self, frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_call"):
            self.number += 1


Step = Callable[[], Awaitable[None]]


async def least_calls(steps: dict[str, Step]) -> dict[str, int]:
    """For each step the fewest calls of all rounds: what comes in between now and then is left out."""
    found = dict.fromkeys(steps, sys.maxsize)
    for _ in range(ROUNDS):
        for name, step in steps.items():
            with Calls() as calls:
                await step()
            found[name] = min(found[name], calls.number)
    return found


def check(found: dict[str, int], written: dict[str, int]) -> None:
    dearer = {name: f"{found[name] / written[name]:.2f} times" for name in found if found[name] > SLACK * written[name]}
    assert not dearer, (
        f"function calls have grown: {dearer}. Look for work that is done per message and could be done per batch"
        f" (python -m bench speed --profile shows where). If the work is worth it, write down {found} and say why."
    )


async def test_function_calls_of_the_library() -> None:
    """From the broker's methods to the journal, and back."""
    async with open_broker(None) as queen:
        delivered: list[Any] = []
        items = [NewMessage(queue="bench", payload="x" * 254, partition="p0") for _ in range(100)]

        async def push_one() -> None:
            await queen.push("bench", "x" * 254, partition="p1")

        async def push() -> None:
            await queen.push_many(items)

        async def pop() -> None:
            delivered[:] = await queen.pop("bench", "p0", batch=100)

        async def ack() -> None:
            entries = [
                Acknowledgement(transaction_id=message.transaction_id, status="completed", lease_id=message.lease_id)
                for message in delivered
            ]
            settled = await queen.ack_many(entries)
            assert [settlement.status for settlement in settled] == ["completed"] * 100

        check(await least_calls({"push 1": push_one, "push 100": push, "pop 100": pop, "ack 100": ack}), LIBRARY)


@asynccontextmanager
async def connection(queen: Broker) -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
    """A server and one client in this very thread; yields what sends a request and returns the answer's body."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(partial(serve, queen, Settings(port=0), stop=stop))
        async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as stream:

            async def ask(request: bytes) -> bytes:
                await stream.send_all(request)
                answer = b""
                while True:
                    answer += await stream.receive_some(1 << 20)
                    head, _, body = answer.partition(b"\r\n\r\n")
                    if b"content-length: %d\r\n" % len(body) in head + b"\r\n":
                        return body

            yield ask
        stop.set()


async def test_function_calls_over_http() -> None:
    """From the socket to the journal, and back; the client's own few calls are among them."""
    async with open_broker(None) as queen, connection(queen) as ask:
        popped = b""

        async def push_one() -> None:
            await ask(traffic.push([traffic.item("p1")]))

        async def push() -> None:
            await ask(requests[0])

        async def pop() -> None:
            nonlocal popped
            popped = await ask(traffic.get(f"{traffic.POP}/partition/p0?batch=100"))

        async def ack() -> None:
            assert traffic.completed(await ask(traffic.acknowledgement(popped))) == 100

        requests = traffic.pushes(100)
        check(await least_calls({"push 1": push_one, "push 100": push, "pop 100": pop, "ack 100": ack}), HTTP)


async def kept() -> int:
    """Bytes that Python objects take once projections are written and garbage is gone."""
    await trio.sleep(1.3)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def push_thousands(queen: Broker, thousands: int) -> None:
    for turn in range(thousands):
        items = [NewMessage(queue="q", payload="x" * 254, partition=f"p{turn % 10}") for _ in range(1000)]
        await queen.push_many(items)


async def complete_thousands(queen: Broker, thousands: int) -> None:
    for _ in range(thousands):
        delivery = await queen.pop("q", batch=1000)
        entries = [Acknowledgement(transaction_id=message.transaction_id, status="completed") for message in delivery]
        assert len(await queen.ack_many(entries)) == 1000


@pytest.fixture
def traced() -> Any:
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def test_nothing_is_kept_per_stored_message(traced: None, tmp_path: Path) -> None:
    """Neither of those that wait nor of those that are done."""
    async with open_broker(tmp_path) as queen:
        await push_thousands(queen, 10)
        few = await kept()
        await push_thousands(queen, 40)
        assert await kept() - few < KEPT * 40_000
        await complete_thousands(queen, 30)  # caches are full from here on
        few = await kept()
        await complete_thousands(queen, 20)
        assert await kept() - few < KEPT * 20_000

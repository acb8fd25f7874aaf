"""Many dashboards: what all of them are told is made once, and sent to each in few pieces (W1, W2)."""

from typing import Any

import pytest
import trio

from queen.settings import Settings
from queen.web import dashboard
from queen.web.access import EVERYTHING, Access
from queen.web.dashboard import Frames, Guest, Session
from queen.web.operation import Traffic
from tests.actors.world import opened, steps

CLIENTS = 200


class Silent:
    """A client that says nothing; what it is sent is counted."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    async def receive(self) -> str | bytes | None:
        await trio.Event().wait()
        return None

    async def send(self, data: str) -> None:
        await trio.lowlevel.checkpoint()

    async def send_frames(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.writes.append(data)

    async def close(self, code: int, reason: str = "") -> None:
        pass


async def test_those_that_connect_together(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """Each is told of all the others, but no event is made twice."""
    made: list[str] = []
    real = dashboard.rendered

    def counting(notice: Any, sockets: int) -> str:
        made.append(type(notice).__name__)
        return real(notice, sockets)

    monkeypatch.setattr(dashboard, "rendered", counting)
    async with opened() as queen, trio.open_nursery() as nursery:
        traffic, frames, guest = Traffic(), Frames(), Guest(Access(Settings(), lambda: 0), EVERYTHING)
        clients = [Silent() for _ in range(CLIENTS)]
        for client in clients:
            nursery.start_soon(Session(queen, traffic, client, frames, lambda: False, guest).run)
        await steps(100)
        told = [b"".join(client.writes).count(b"client.connected") for client in clients]
        assert sum(told) == CLIENTS * (CLIENTS - 1)
        assert made.count("Connected") == made.count("ClientConnected") == CLIENTS
        assert max(len(client.writes) for client in clients) <= 8
        for client in clients:
            client.writes.clear()
        made.clear()
        await queen.push("q", 1)
        await steps(100)
        assert made == ["QueueAdded", "MessagePushed"]
        assert all(1 <= len(client.writes) <= 2 for client in clients)
        nursery.cancel_scope.cancel()

"""A real server on a free port over a temporary folder, once with the fast lane and once through Quart alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from queen import Broker, open_broker
from queen.settings import Settings
from queen.store.keyring import NO_KEYS, KeyRing
from queen.web.serve import serve
from tests.contract.client import Client


class Server:
    """A running server and the broker behind it."""

    def __init__(self, broker: Broker, port: int, stop: trio.Event, stopped: trio.Event) -> None:
        self.broker = broker
        self.port = port
        self.stop = stop
        self.stopped = stopped
        self._streams: list[trio.SocketStream] = []

    async def connect(self) -> Client:
        """A new connection, closed at the test's end at the latest."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self._streams.append(stream)
        return Client(stream)

    async def close_clients(self) -> None:
        for stream in self._streams:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def running(folder: Path, *, keys: KeyRing = NO_KEYS, **settings: Any) -> AsyncIterator[Server]:
    """Serve `folder` until the block ends. By default under the names that the tests call it by."""
    settings = {"data": str(folder / "data"), "allowed_hosts": "queen.test a"} | settings
    stop, stopped = trio.Event(), trio.Event()
    async with open_broker(folder / "data", keys=keys) as broker, trio.open_nursery() as nursery:

        async def serving(task_status: trio.TaskStatus[list[str]]) -> None:
            await serve(broker, Settings(port=0, **settings), stop=stop, task_status=task_status)
            stopped.set()

        (url,) = await nursery.start(serving)
        port = urlsplit(url).port
        assert port is not None
        server = Server(broker, port, stop, stopped)
        try:
            with trio.fail_after(20):
                yield server
        finally:
            await server.close_clients()
            stop.set()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "settings(**settings): what the test's server is started with")


@pytest.fixture(params=[True, False], ids=["lane", "quart"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    mark = request.node.get_closest_marker("settings")
    async with running(tmp_path, fast_lane=request.param, **(mark.kwargs if mark else {})) as started:
        yield started


@pytest.fixture
async def client(server: Server) -> Client:
    return await server.connect()

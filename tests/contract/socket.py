"""A WebSocket client for tests: wsproto's frames over a bare socket, so that a test can also misbehave."""

import json
from collections.abc import Mapping
from typing import Any

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.extensions import Extension

from tests.contract.client import Client
from tests.contract.reply import Reply


class Refused(Exception):
    """The server answered the handshake with something else."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(repr(reply))
        self.reply = reply


class Socket:
    """One WebSocket; not for use by several tasks at once. Answers pings while it reads, unless it is `deaf`."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.deaf = False
        self.pings = 0
        self.texts = 0
        self.raw = b""
        self.accepted: AcceptConnection | None = None
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []

    async def open(
        self,
        path: str = "/ws/dashboard",
        extensions: list[Extension] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> "Socket":
        """Shake hands; raises `Refused`."""
        extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        await self.send(Request(host="queen.test", target=path, extensions=extensions or [], extra_headers=extra))
        event = await self.event()
        if isinstance(event, RejectConnection):
            body = b""
            while True:
                data = await self.event()
                assert isinstance(data, RejectData)
                body += bytes(data.data)
                if data.body_finished:
                    break
            headers = {name.decode(): value.decode() for name, value in event.headers}
            raise Refused(Reply(event.status_code, headers, body))
        assert isinstance(event, AcceptConnection)
        self.accepted = event
        return self

    async def send(self, event: Event) -> None:
        await self.stream.send_all(self._connection.send(event))

    async def say(self, message: object) -> None:
        """Send text, or anything else as JSON."""
        await self.send(TextMessage(message if isinstance(message, str) else json.dumps(message)))

    async def event(self) -> Event:
        """The next of wsproto's events; `CloseConnection` with code 1006 where the server just closes."""
        while not self._events:
            data = await self.stream.receive_some(65536)
            self.raw += data
            self._connection.receive_data(data or None)
            self._events += self._connection.events()
        event = self._events.pop(0)
        if isinstance(event, Ping):
            self.pings += 1
            if not self.deaf:
                await self.send(event.response())
            return await self.event()
        return event

    async def text(self, within: float = 5.0) -> str:
        """The next message."""
        text = ""
        with trio.fail_after(within):
            while True:
                event = await self.event()
                assert isinstance(event, TextMessage), event
                text += event.data
                if event.message_finished:
                    return text

    async def told(self, within: float = 5.0) -> dict[str, Any]:
        """The next message, which is JSON."""
        frame: dict[str, Any] = json.loads(await self.text(within))
        assert set(frame) == {"event", "data", "timestamp"}, frame
        return frame

    async def until(self, event: str, within: float = 5.0) -> dict[str, Any]:
        """The next message of that event; others are passed over."""
        with trio.fail_after(within):
            while True:
                frame = await self.told(within)
                if frame["event"] == event:
                    return frame

    async def closed(self, within: float = 5.0) -> int:
        """The code that the server closes with; what it says before is passed over."""
        with trio.fail_after(within):
            while True:
                event = await self.event()
                if isinstance(event, CloseConnection):
                    return int(event.code)
                assert isinstance(event, TextMessage | BytesMessage)
                self.texts += 1


async def dashboard(client: Client) -> Socket:
    """A WebSocket on this connection, past its first event."""
    socket = await Socket(client.stream).open()
    assert (await socket.told())["event"] == "connected"
    return socket

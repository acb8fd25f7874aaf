"""A small HTTP/1.1 client over a bare socket: targets and bodies go out exactly as the test spells them."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import trio

from tests.contract import documented
from tests.contract.reply import Reply


class Client:
    """One connection. Not for use by several tasks at once."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def request(
        self, method: str, target: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send a request (a body that is no bytes becomes JSON) and read the answer, which must be as documented."""
        await self.send(method, target, body, headers)
        reply = await self.reply(method)
        # HEAD, OPTIONS and upgrades belong to no operation; targets in other forms than a path are the edge's subject.
        if method not in ("HEAD", "OPTIONS") and target.startswith("/") and "Upgrade" not in (headers or {}):
            assert list(documented.faults(method, target, reply)) == []
        return reply

    async def send(
        self, method: str, target: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> None:
        await self.stream.send_all(encoded(method, target, body, headers))

    async def reply(self, method: str = "GET") -> Reply:
        """Read one response; informational ones are skipped."""
        while True:
            while b"\r\n\r\n" not in self._buffer:
                await self._more()
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            if status >= 200:
                break
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} stands twice"
            headers[name.lower()] = value
        length = 0 if method == "HEAD" or status == 204 else int(headers["content-length"])
        while len(self._buffer) < length:
            await self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Reply(status, headers, body)

    async def at_end(self, within: float = 2.0) -> bool:
        """Whether the server closes the connection without another byte."""
        with trio.move_on_after(within):
            return self._buffer == b"" and await self.stream.receive_some(1) == b""
        return False

    async def _more(self) -> None:
        data = await self.stream.receive_some(65536)
        if not data:
            raise EOFError(f"the server closed; left over: {self._buffer!r}")
        self._buffer += data

    # The routes, for tests whose subject is another one.

    async def push(self, queue: str, *payloads: object, **fields: object) -> list[str]:
        """Push, and return the transactionIds."""
        items = [{"queue": queue, "payload": payload, **fields} for payload in payloads]
        reply = await self.request("POST", "/api/v1/push", {"items": items})
        assert reply.status == 201, reply
        return [message["transactionId"] for message in reply.json["messages"]]

    async def pop(self, queue: str, query: str = "") -> list[dict[str, Any]]:
        """Pop, and return the messages."""
        reply = await self.request("GET", f"/api/v1/pop/queue/{quote(queue, safe='')}?{query}")
        assert reply.status in (200, 204), reply
        messages: list[dict[str, Any]] = reply.json["messages"] if reply.status == 200 else []
        return messages


def encoded(method: str, target: str, body: object = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a request."""
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    lines = {"Host": "queen.test", **(headers or {})}
    if content is not None and "Transfer-Encoding" not in lines:
        lines.setdefault("Content-Length", str(len(content)))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + (content or b"")

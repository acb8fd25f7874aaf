"""Round Quart: the raw path, the body and its limits, CORS, the final send, taking back what was not delivered.

Hot routes are answered right here, by the same functions that Quart's views call.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import count
from typing import Any, Final, Protocol

import structlog
import trio

from queen.broker import Broker
from queen.errors import ShuttingDown
from queen.messages import Caller
from queen.settings import Settings
from queen.web.app import answer_to, direct_table
from queen.web.exchange import Answer, Asked, Headers, refusal, refused
from queen.web.operation import Traffic

log = structlog.get_logger("queen.web")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CORS: Final[Headers] = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"Content-Type, Authorization"),
    (b"access-control-max-age", b"86400"),
]
"""On every answer (W3), those included that never reach a route."""

CLOSE: Final = (b"connection", b"close")


class Link(Protocol):
    """What the gate asks of the connection a request came on (`connection.Connection`)."""

    broken: bool

    def gone(self) -> bool:
        """Whether the client has closed its side, as far as the kernel knows at this moment."""

    def watch(self, scope: trio.CancelScope | None) -> None:
        """Cancel `scope` when the client goes; None ends that."""


class Exchange:
    """One request on its way through Quart: what was asked, and how to take the answer back."""

    __slots__ = ("asked", "undo")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.undo: Callable[[], None] | None = None


class Gone(Exception):
    """The client left before its request was complete."""


class Gate:
    """The ASGI application that the server runs."""

    def __init__(self, app: App, broker: Broker, settings: Settings, traffic: Traffic) -> None:
        self._app = app
        self._broker = broker
        self._settings = settings
        self._traffic = traffic
        self._direct = direct_table() if settings.direct else lambda method, path: None
        self._prefix = os.urandom(4)
        self._numbers = count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or pass a lifespan or WebSocket on."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                scope["path"] = _raw_path(scope)
            await self._app(scope, receive, send)
            return
        self._traffic.begin()
        try:
            await self._serve(scope, receive, send)
        except Gone:
            pass
        finally:
            self._traffic.end()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        path = scope["path"] = _raw_path(scope)
        link: Link | None = scope["state"].get("link")
        if method == "OPTIONS":
            await _answer(send, Answer(204), link, self._traffic.draining)
            return
        body = await self._body(scope["headers"], receive)
        if isinstance(body, Answer):
            await _answer_and_drop(receive, send, body, link)
            return
        if self._traffic.draining and path != "/health":
            await _answer(send, refused(ShuttingDown("the server is shutting down")), link, close=True)
            return
        asked = Asked(method, (), scope["query_string"], scope["headers"], body, self._caller(scope))
        found = self._direct(method, path)
        if found is None:
            await self._through_app(scope, asked, receive, send, link)
            return
        route, asked.names = found
        with trio.CancelScope() as vanished:
            if link is not None and method == "GET":
                link.watch(vanished)
            answer = await answer_to(route, self._broker, asked)
            if link is not None:
                link.watch(None)
            await _answer(send, answer, link, self._traffic.draining)

    async def _body(self, headers: Headers, receive: Receive) -> bytes | Answer:
        """The whole body, or the refusal of it. Raises `Gone`."""
        length: bytes | None = None
        chunked = False
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                chunked = True
        if not chunked and (length is None or length == b"0"):
            return b""
        limit = self._settings.max_body
        if length is not None and int(length) > limit:
            return _too_large(limit)
        parts: list[bytes] = []
        size = 0
        with trio.move_on_after(self._settings.body_time):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Gone
                if part := message.get("body"):
                    parts.append(part)
                    size += len(part)
                    if size > limit:
                        return _too_large(limit)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        return refusal(408, f"body: did not arrive within {self._settings.body_time:g} seconds")

    def _caller(self, scope: Scope) -> Caller:
        client = scope["client"]
        number = next(self._numbers) & 0xFFFF_FFFF
        return Caller(client[0] if client else "", self._prefix + number.to_bytes(4, "big"))

    async def _through_app(self, scope: Scope, asked: Asked, receive: Receive, send: Send, link: Link | None) -> None:
        """Let Quart answer: its body is already here, its headers get ours added, its end is looked at."""
        exchange = scope["queen.exchange"] = Exchange(asked)
        body_given = False

        async def receive_rest() -> Any:
            nonlocal body_given
            if not body_given:
                body_given = True
                return {"type": "http.request", "body": asked.body, "more_body": False}
            # Only those who ask for something lose by leaving; what is to be done is done, and answered to a
            # client that has merely closed its sending half.
            if asked.method != "GET":
                await trio.sleep_forever()
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return message

        start: Any = None

        async def send_with_headers(message: Any) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                # Held back until the body comes, so that a client that is gone is told nothing at all.
                message["headers"] = [*_once(message["headers"]), *CORS]
                if self._traffic.draining:
                    message["headers"].append(CLOSE)
                start = message
                return
            with trio.CancelScope(shield=not message.get("more_body", False)):
                if start is not None:
                    if exchange.undo is not None and link is not None and link.gone():
                        raise Gone
                    await send(start)
                    start = None
                await send(message)
            if not message.get("more_body", False) and not (link is not None and link.broken):
                exchange.undo = None

        try:
            await self._app(scope, receive_rest, send_with_headers)
        except BaseExceptionGroup as group:
            rest = group.split(Gone)[1]
            if rest is not None:
                raise rest from None
        finally:
            if exchange.undo is not None:
                exchange.undo()


async def _answer(send: Send, answer: Answer, link: Link | None, close: bool = False) -> None:
    """Send `answer`, or take it back (L8).

    Shielded: the end of an answer makes Hypercorn report a disconnect, and a send that this cancels may leave the
    connection in a state that nobody ends. How long a send may take is bounded by the connection itself.
    """
    if answer.undo is not None and link is not None and link.gone():
        answer.undo()
        raise Gone
    headers = answer.fields() + CORS
    if close:
        headers.append(CLOSE)
    try:
        with trio.CancelScope(shield=True):
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.body, "more_body": False})
    except BaseException:
        if answer.undo is not None:
            answer.undo()
        raise
    if answer.undo is not None and link is not None and link.broken:
        answer.undo()


async def _answer_and_drop(receive: Receive, send: Send, answer: Answer, link: Link | None) -> None:
    """Answer in the middle of a body and close. What still comes in is taken off the channel, else nobody moves."""

    async def drop() -> None:
        while True:
            await receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drop)
        await _answer(send, answer, link, close=True)
        nursery.cancel_scope.cancel()


def _too_large(limit: int) -> Answer:
    return refusal(413, f"body: is larger than {limit} bytes")


def _raw_path(scope: Scope) -> str:
    """The path as it was sent, still percent-encoded; without scheme and host where a proxy's form has them."""
    path: str = scope["raw_path"].decode("ascii")
    if path.startswith("/"):
        return path
    _, _, rest = path.partition("://")
    return "/" + rest.partition("/")[2]


def _once(headers: Any) -> Headers:
    """Quart adds nothing that is ours, but a header of ours must never stand twice."""
    return [(name, value) for name, value in headers if not name.lower().startswith(b"access-control-")]

"""Round Quart: the raw path, the body and its limits, CORS, the final send, taking back what was not delivered."""

from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, Final, Protocol

import trio

from queen.errors import Unavailable
from queen.settings import Settings
from queen.web.access import EVERYTHING, NEEDED, Access, Permit
from queen.web.exchange import (
    CLOSE,
    CORS,
    Answer,
    Asked,
    Callers,
    Headers,
    refusal,
    refused,
    shutting_down,
    too_large,
    too_slow,
)
from queen.web.operation import Traffic

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


OTHER: Final = "other"
"""What answers are counted under that belong to no route."""
DASHBOARD: Final = "/ws/dashboard"
"""The only WebSocket."""
OPEN: Final = ("/health", "/health/ready")
"""What everybody may ask at any time. A test holds that these are the rows without a role."""


class Link(Protocol):
    """What the gate asks of the connection a request came on (`connection.Connection`)."""

    broken: bool

    def gone(self) -> bool:
        """Whether the client has closed its side, as far as the kernel knows at this moment."""


class Exchange:
    """One request on its way through Quart: what was asked, what its asker may do, and how to take the answer back."""

    __slots__ = ("asked", "label", "permit", "undo")

    def __init__(self, asked: Asked, permit: Permit) -> None:
        self.asked = asked
        self.permit = permit
        self.undo: Callable[[], None] | None = None
        self.label = OTHER


class Gone(Exception):
    """The client left before its request was complete."""


class Gate:
    """The ASGI application that the server runs."""

    def __init__(self, app: App, settings: Settings, access: Access, traffic: Traffic, callers: Callers) -> None:
        self._app = app
        self._access = access
        self._settings = settings
        self._traffic = traffic
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or pass a lifespan or WebSocket on."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await self._serve_socket(scope, receive, send)
            else:
                await self._app(scope, receive, send)
            return
        self._traffic.begin()
        try:
            await self._serve(scope, receive, send)
        except Gone:
            pass
        finally:
            self._traffic.end()

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] = _raw_path(scope)
        traffic, limit = self._traffic, self._settings.max_sockets
        permit = self._access.identify(scope["headers"])
        if path != DASHBOARD:
            await _turn_away(send, refusal(404, f"no such path for a WebSocket: {path}"))
        elif isinstance(permit, Answer) and permit is not NEEDED:
            await _turn_away(send, permit)
        elif traffic.draining:
            await _turn_away(send, shutting_down())
        elif traffic.sockets >= limit:
            await _turn_away(send, refused(Unavailable(f"{limit} WebSockets are open, which is the most")))
        else:
            traffic.sockets += 1
            scope["queen.permit"] = permit if isinstance(permit, Permit) else None
            try:
                await self._app(scope, receive, partial(_send_to_socket, send))
            finally:
                traffic.sockets -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        path = scope["path"] = _raw_path(scope)
        link: Link | None = scope["state"].get("link")
        if method == "OPTIONS":
            self._traffic.answered(OTHER, 204)
            await _answer(send, Answer(204), self._traffic.draining)
            return
        permit = EVERYTHING if path in OPEN else self._access.identify(scope["headers"])
        if isinstance(permit, Answer):
            await self._refuse(permit, receive, send)
            return
        body = await self._body(scope["headers"], receive)
        if isinstance(body, Answer):
            await self._refuse(body, receive, send)
            return
        if self._traffic.draining and path not in OPEN:
            self._traffic.answered(OTHER, 503)
            await _answer(send, shutting_down(), close=True)
            return
        client = scope["client"]
        caller = self._callers.new(permit.who(client[0] if client else ""))
        asked = Asked(method, (), scope["query_string"], scope["headers"], body, caller)
        await self._through_app(scope, Exchange(asked, permit), receive, send, link)

    async def _refuse(self, answer: Answer, receive: Receive, send: Send) -> None:
        self._traffic.answered(OTHER, answer.status)
        await _answer_and_drop(receive, send, answer)

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
            return too_large(limit)
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
                        return too_large(limit)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        return too_slow(self._settings.body_time)

    async def _through_app(
        self, scope: Scope, exchange: Exchange, receive: Receive, send: Send, link: Link | None
    ) -> None:
        """Let Quart answer: its body is already here, its headers get ours added, its end is looked at."""
        scope["queen.exchange"] = exchange
        asked = exchange.asked
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
                self._traffic.answered(exchange.label, message["status"])
                message["headers"] = [*_once(message["headers"]), *CORS]
                if self._traffic.draining:
                    message["headers"].append(CLOSE)
                start = message
                return
            # Shielded: the end of an answer makes Hypercorn report a disconnect, upon which Quart cancels this very
            # send and may leave the connection in a state that nobody ends. The connection bounds how long it takes.
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


async def _answer(send: Send, answer: Answer, close: bool = False) -> None:
    """Send an answer of the gate's own."""
    headers = answer.fields() + CORS
    if close:
        headers.append(CLOSE)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


async def _turn_away(send: Send, answer: Answer) -> None:
    """Answer what wanted to become a WebSocket."""
    headers = [*answer.fields(), *CORS, CLOSE]
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.body, "more_body": False})


async def _send_to_socket(send: Send, message: Any) -> None:
    if message["type"] == "websocket.accept":
        message["headers"] = [*message["headers"], *CORS]
    await send(message)


async def _answer_and_drop(receive: Receive, send: Send, answer: Answer) -> None:
    """Answer in the middle of a body and close. What still comes in is taken off the channel, else nobody moves."""

    async def drop() -> None:
        while True:
            await receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drop)
        await _answer(send, answer, close=True)
        nursery.cancel_scope.cancel()


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

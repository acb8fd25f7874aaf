"""The fast lane: push, pop and ack straight from the socket, through the same functions that Quart's views call.

A connection starts here and stays as long as it asks for nothing else. At the first other request (another path, an
upgrade, chunks, anything unusual or wrong) it goes to Hypercorn for good, with the bytes that were read so far. So
everything doubtful is judged in one place, and this one may refuse to understand whatever it likes.
"""

from http import HTTPStatus
from typing import Final, Protocol

import httptools
import trio
from hypercorn.config import Config

from queen.broker import Broker
from queen.settings import Settings
from queen.web.access import Access
from queen.web.app import LABELS, NEEDS, Found, answer_to, fast_table
from queen.web.exchange import CORS, Answer, Asked, Callers, Headers, shutting_down, too_slow
from queen.web.operation import Traffic

_find: Final = fast_table()

# What every fast request begins with; anything else is none from its first bytes on.
_STARTS: Final = (b"GET /api/v1/pop", b"POST /api/v1/")
_SHORTEST: Final = min(map(len, _STARTS))
_AHEAD: Final = 2**16
"""Bytes of later requests that are read while one waits; past them, the client is not listened to meanwhile."""

_STATUS_LINES: Final = {status.value: b"HTTP/1.1 %d \r\n" % status.value for status in HTTPStatus}
_CORS: Final = b"".join(b"%s: %s\r\n" % header for header in CORS)


class Date:
    """The `date` header, as Hypercorn writes it, made once a second."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """The header's line."""
        second = int(trio.current_time())
        if second != self._second:
            self._second = second
            self._line = b"".join(b"%s: %s\r\n" % header for header in self._config.response_headers("h11"))
        return self._line


class Wire(Protocol):
    """What the lane needs of its connection (`connection.Connection`)."""

    broken: bool

    def gone(self) -> bool:
        """Whether the client has closed its side."""

    def set_idle(self, idle: bool) -> None:
        """Say whether a request is under way: only then may the connection stay open without limit."""

    async def receive(self) -> bytes:
        """The next bytes; none at the end."""

    async def send(self, data: bytes) -> None:
        """Send all of it, or set `broken`."""


class Head:
    """A request's line and headers, as httptools reads them."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: Headers = []
        self.complete = False

    def on_url(self, part: bytes) -> None:
        """Called by the parser."""
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self.complete = True


class Request:
    """A request for the lane: its route, and what has to follow its head."""

    __slots__ = ("asked", "close", "found", "length", "waits")

    def __init__(self, found: Found, asked: Asked, length: int, close: bool) -> None:
        self.found = found
        self.asked = asked
        self.length = length
        self.close = close
        self.waits = b"wait=" in asked.query_string


class Lane:
    """Serves one connection until it ends or asks for something else."""

    def __init__(
        self,
        wire: Wire,
        broker: Broker,
        settings: Settings,
        access: Access,
        traffic: Traffic,
        callers: Callers,
        date: Date,
        address: str,
    ) -> None:
        self._wire = wire
        self._broker = broker
        self._settings = settings
        self._access = access
        self._traffic = traffic
        self._callers = callers
        self._date = date
        self._address = address
        self._buffer = b""
        self._ended = False

    async def run(self) -> bytes | None:
        """Serve; return the bytes that Hypercorn is to begin with, or None when the connection is over.

        Cancelled, it leaves at most one request unanswered, whose messages are given back.
        """
        while True:
            head = await self._head()
            if head is None:
                return None
            request = self._request(head)
            if request is None:
                return self._buffer
            self._wire.set_idle(False)
            self._traffic.begin()
            try:
                go_on = await self._serve(request, head)
            finally:
                self._traffic.end()
            if not go_on:
                return None
            self._wire.set_idle(True)

    async def _head(self) -> int | None:
        """How many of the buffer's bytes are the next head; 0 if they are for Hypercorn; None at the end."""
        while True:
            buffer = self._buffer
            if len(buffer) >= _SHORTEST and not buffer.startswith(_STARTS):
                return 0
            end = buffer.find(b"\r\n\r\n")
            if end >= 0:
                return end + 4
            # Lines that end in a bare LF are old but legal, and Hypercorn knows them.
            if len(buffer) > self._settings.max_header or b"\n\n" in buffer or b"\n\r\n" in buffer:
                return 0
            if not await self._more():
                return None

    async def _more(self) -> bool:
        if self._ended:
            return False
        data = await self._wire.receive()
        self._ended = not data
        self._buffer += data
        return bool(data)

    def _request(self, size: int) -> Request | None:
        if not 0 < size <= self._settings.max_header:
            return None
        # With a bare LF in it, others may see the head end earlier, and what follows as another request.
        if self._buffer.count(b"\n", 0, size) != self._buffer.count(b"\r\n", 0, size):
            return None
        head = Head()
        parser = httptools.HttpRequestParser(head)
        try:
            parser.feed_data(self._buffer[:size])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        if not head.complete or parser.get_http_version() != "1.1" or not head.target.isascii():
            return None
        if len(head.target) > self._settings.max_target:
            return None
        path, _, query = head.target.partition(b"?")
        found = _find(parser.get_method().decode(), path.decode())
        if found is None:
            return None
        length = hosts = 0
        close = False
        for name, value in head.headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"host":
                hosts += 1
            elif name == b"connection":
                close = close or b"close" in value.lower()
            elif name in (b"transfer-encoding", b"expect", b"upgrade"):
                return None
        # A body that is too large is Hypercorn's to refuse.
        if hosts != 1 or length > self._settings.max_body:
            return None
        permit = self._access.identify(head.headers)
        # Who may not ask is told so where everything else is refused.
        if isinstance(permit, Answer) or permit.refusal(NEEDS[found[0]]) is not None:
            return None
        caller = self._callers.new(permit.who(self._address))
        asked = Asked(parser.get_method().decode(), found[1], query, head.headers, b"", caller)
        return Request(found, asked, length, close)

    async def _serve(self, request: Request, head: int) -> bool:
        """Answer; whether the connection goes on."""
        end = head + request.length
        if len(self._buffer) < end and not await self._body(end):
            return False
        request.asked.body = self._buffer[head:end]
        self._buffer = self._buffer[end:]
        if self._traffic.draining:
            self._traffic.answered(LABELS[request.found[0]], 503)
            await self._send(shutting_down(), close=True)
            return False
        answer = await self._answer(request)
        if answer is not None:
            self._traffic.answered(LABELS[request.found[0]], answer.status)
        close = request.close or self._traffic.draining
        return answer is not None and await self._send(answer, close) and not close

    async def _body(self, end: int) -> bool:
        """Read until the buffer holds `end` bytes; answer 408 if they don't come."""
        parts = [self._buffer]
        missing = end - len(self._buffer)
        with trio.move_on_after(self._settings.body_time):
            while missing > 0:
                data = await self._wire.receive()
                if not data:
                    return False
                parts.append(data)
                missing -= len(data)
            self._buffer = b"".join(parts)
            return True
        await self._send(too_slow(self._settings.body_time), close=True)
        return False

    async def _answer(self, request: Request) -> Answer | None:
        """The route's answer; None if the client left while it waited."""
        if not request.waits:
            return await answer_to(request.found[0], self._broker, request.asked)
        answer: Answer | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            answer = await answer_to(request.found[0], self._broker, request.asked)
            nursery.cancel_scope.cancel()
        return answer

    async def _watch(self, waiting: trio.CancelScope) -> None:
        while len(self._buffer) < _AHEAD:
            if not await self._more():
                waiting.cancel()
                return

    async def _send(self, answer: Answer, close: bool) -> bool:
        """Send `answer`, or take it back (L8); whether it was sent."""
        undo = answer.undo
        if undo is not None and self._wire.gone():
            undo()
            return False
        fields = b"".join(b"%s: %s\r\n" % header for header in answer.fields())
        last = b"connection: close\r\n\r\n" if close else b"\r\n"
        data = b"".join((_STATUS_LINES[answer.status], fields, _CORS, self._date.line(), last))
        try:
            await self._wire.send(data + answer.body)
        except BaseException:
            if undo is not None:
                undo()
            raise
        if undo is not None and self._wire.broken:
            undo()
        return not self._wire.broken

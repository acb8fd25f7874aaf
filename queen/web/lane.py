"""The fast lane: push, pop and ack straight from the socket, through the same functions that Quart's views call.

A connection starts here and stays as long as it asks for nothing else. At the first other request (another path, an
upgrade, chunks, anything unusual or wrong) it goes to Hypercorn for good, with the bytes that were read so far. So
everything doubtful is judged in one place, and this one may refuse to understand whatever it likes.

Between requests a connection has its seat with the reactor (`seat.py`), where most requests are answered while its task
sleeps. The task, which is here, serves the others.
"""

from typing import Final

import trio

from queen.broker import Broker
from queen.settings import Settings
from queen.web.access import Access
from queen.web.app import LABELS, answer_to
from queen.web.exchange import Answer, Asked, Callers, shutting_down, too_slow
from queen.web.head import STARTS, Head
from queen.web.http import Date, spelled
from queen.web.operation import Traffic
from queen.web.reactor import Reactor
from queen.web.requests import Requests
from queen.web.seat import Seat, Wire

_SHORTEST: Final = min(map(len, STARTS))
_AHEAD: Final = 2**16
"""Bytes of later requests that are read while one waits; past them, the client is not listened to meanwhile."""


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
        reactor: Reactor | None,
    ) -> None:
        self._wire = wire
        self._broker = broker
        self._settings = settings
        self._traffic = traffic
        self._date = date
        self._requests = Requests(settings, access, callers, address)
        self._seat = Seat(wire, reactor, self._requests, broker, traffic, date) if reactor is not None else None
        self._buffer = b""
        self._ended = False

    async def run(self) -> bytes | None:
        """Serve; return the bytes that Hypercorn is to begin with, or None when the connection is over.

        Cancelled, it leaves at most one request unanswered, whose messages are given back.
        """
        while True:
            if self._seat is not None and not self._buffer and not await self._sit(self._seat):
                return None
            size = await self._head()
            if size is None:
                return None
            head = self._requests.head(self._buffer[:size])
            if head is None:
                return self._buffer
            self._wire.set_idle(False)
            self._traffic.begin()
            try:
                go_on = await self._serve(head, size)
            finally:
                self._traffic.end()
            if not go_on:
                return None
            self._wire.set_idle(True)

    async def _sit(self, seat: Seat) -> bool:
        """Be with the reactor until something comes that needs this task; whether the connection goes on."""
        go_on = await seat.sit()
        self._buffer, self._ended = seat.left, seat.ended
        return go_on

    async def _head(self) -> int | None:
        """How many of the buffer's bytes are the next head; 0 if they are for Hypercorn; None at the end."""
        while True:
            buffer = self._buffer
            if len(buffer) >= _SHORTEST and not buffer.startswith(STARTS):
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

    async def _serve(self, head: Head, size: int) -> bool:
        """Answer; whether the connection goes on."""
        end = size + head.length
        if len(self._buffer) < end and not await self._body(end):
            return False
        asked = self._requests.asked(head, self._buffer[size:end])
        self._buffer = self._buffer[end:]
        if self._traffic.draining:
            self._traffic.answered(LABELS[head.route], 503)
            await self._send(shutting_down(), close=True)
            return False
        answer = await self._answer(head, asked)
        if answer is not None:
            self._traffic.answered(LABELS[head.route], answer.status)
        close = head.close or self._traffic.draining
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

    async def _answer(self, head: Head, asked: Asked) -> Answer | None:
        """The route's answer; None if the client left while it waited."""
        if not head.waits:
            return await answer_to(head.route, self._broker, asked)
        answer: Answer | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                answer = await answer_to(head.route, self._broker, asked)
                nursery.cancel_scope.cancel()
        except BaseException:
            if answer is not None and answer.undo is not None:
                answer.undo()  # L8
            raise
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
        try:
            await self._wire.send(spelled(answer, self._date, close=close))
        except BaseException:
            if undo is not None:
                undo()
            raise
        if undo is not None and self._wire.broken:
            undo()
        return not self._wire.broken

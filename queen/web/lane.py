"""The fast lane: push, pop and ack straight from the socket, through the same functions that Quart's views call.

A connection starts here and stays as long as it asks for nothing else. At the first other request (another path, an
upgrade, chunks, anything unusual or wrong) it goes to Hypercorn for good, with the bytes that were read so far. So
everything doubtful is judged in one place, and this one may refuse to understand whatever it likes.

Between requests a connection is with the reactor. A request that is all there is decided as it is read, and answered by
the callback of its commit, or of what a parked pop has waited for: its task sleeps through it. The task serves the
others: requests in pieces, several at once, clients that read slowly, and all there is while the server stops.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog
import trio

from queen.broker import Broker
from queen.reply import Reply
from queen.settings import Settings
from queen.web.access import Access
from queen.web.app import LABELS, NEEDS, answer_to, failed
from queen.web.exchange import Answer, Asked, Callers, shutting_down, too_slow
from queen.web.head import Head, read_head
from queen.web.http import Date, spelled
from queen.web.operation import Traffic
from queen.web.reactor import Reactor

log = structlog.get_logger("queen.web")

# What every fast request begins with; anything else is none from its first bytes on.
_STARTS: Final = (b"GET /api/v1/pop", b"POST /api/v1/")
_SHORTEST: Final = min(map(len, _STARTS))
_AHEAD: Final = 2**16
"""Bytes of later requests that are read while one waits; past them, the client is not listened to meanwhile."""


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

    def fileno(self) -> int:
        """The socket's number."""

    def receive_now(self) -> bytes | None:
        """What is there, none at the end; None where there is nothing yet."""

    def send_now(self, data: bytes) -> int:
        """Send what the kernel takes, or set `broken`; returns how much that was."""


class UnderWay(NamedTuple):
    """A request that is decided and not answered."""

    head: Head
    reply: Reply[Answer]


class Unsent(NamedTuple):
    """What did not go out at once, because the client reads slowly."""

    data: bytes
    undo: Callable[[], None] | None
    close: bool


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
        self._access = access
        self._traffic = traffic
        self._callers = callers
        self._date = date
        self._address = address
        self._who = address
        self._reactor = reactor
        self._buffer = b""
        self._ended = False
        # What follows concerns the time with the reactor.
        self._up = trio.Event()
        self._seat: int | None = None
        self._under_way: UnderWay | None = None
        self._deaf = False
        self._over = False
        self._unsent: Unsent | None = None

    async def run(self) -> bytes | None:
        """Serve; return the bytes that Hypercorn is to begin with, or None when the connection is over.

        Cancelled, it leaves at most one request unanswered, whose messages are given back.
        """
        while True:
            if self._reactor is not None and not self._buffer and not await self._sit(self._reactor):
                return None
            size = await self._head()
            if size is None:
                return None
            head = self._read_head(size)
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

    def _read_head(self, size: int) -> Head | None:
        """The head that the buffer begins with, None where Hypercorn is to judge it."""
        settings = self._settings
        if not 0 < size <= settings.max_header:
            return None
        head = read_head(self._buffer[:size])
        # What is too large is Hypercorn's to refuse.
        if head is None or head.target_size > settings.max_target or head.length > settings.max_body:
            return None
        permit = self._access.identify(head.headers)
        # So is who may not ask.
        if isinstance(permit, Answer) or permit.refusal(NEEDS[head.route]) is not None:
            return None
        self._who = permit.who(self._address)
        return head

    def _asked(self, head: Head, body: bytes) -> Asked:
        return Asked(head.method, head.names, head.query, head.headers, body, self._callers.new(self._who))

    async def _serve(self, head: Head, size: int) -> bool:
        """Answer; whether the connection goes on."""
        end = size + head.length
        if len(self._buffer) < end and not await self._body(end):
            return False
        asked = self._asked(head, self._buffer[size:end])
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
            if answer is not None:
                self._lost(answer.undo)
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

    # -- with the reactor -----------------------------------------------------------------------------------

    async def _sit(self, reactor: Reactor) -> bool:
        """Be with the reactor until something comes that needs this task; whether the connection goes on."""
        self._up = trio.Event()
        self._seat = self._wire.fileno()
        if self._seat < 0:
            return False  # closed in the meantime
        reactor.add(self._seat, self._readable)
        try:
            await self._up.wait()
            if self._unsent is not None:
                await self._send_rest(self._unsent)
        finally:
            self._stand_up()
            self._leave()
            if self._unsent is not None:
                self._lost(self._unsent.undo)
                self._traffic.end()
        return not self._over

    def _stand_up(self) -> None:
        """Leave the reactor, and wake the task. From here on nothing is read but by the task."""
        if self._seat is not None and self._reactor is not None:
            self._reactor.remove(self._seat, self._readable)
        self._seat = None
        self._deaf = False
        self._up.set()

    def _readable(self) -> None:
        """Called by the reactor."""
        assert self._reactor is not None
        assert self._seat is not None
        if self._under_way is not None:
            self._disturbed(self._under_way)
            return
        data = self._wire.receive_now()
        if data is None:
            return
        self._buffer, self._ended = data, not data
        size = data.find(b"\r\n\r\n") + 4
        head = self._read_head(size) if size > 3 and data.startswith(_STARTS) else None
        if head is None or not head.soon or len(data) != size + head.length or self._traffic.draining:
            self._stand_up()
            return
        self._buffer = b""
        self._wire.set_idle(False)
        self._traffic.begin()
        try:
            reply = head.route(self._broker, self._asked(head, data[size:]))
        except Exception as error:
            self._answered(head, failed(error, LABELS[head.route]))
            return
        assert isinstance(reply, Reply), "a route that answers soon"
        self._under_way = UnderWay(head, reply)
        reply.then(partial(self._replied, self._under_way))

    def _disturbed(self, under_way: UnderWay) -> None:
        """The client goes or sends ahead while its request is under way. Whoever waits for messages and goes is taken
        off (L8); anything else is done in any case."""
        assert self._reactor is not None
        assert self._seat is not None
        if under_way.head.waits and self._wire.gone():
            self._over = True
            self._stand_up()
            self._leave()
            return
        # Nobody listens to a client that sends ahead, until it has its answer: that bounds what is kept of it.
        self._deaf = True
        if under_way.head.waits:
            self._reactor.mute(self._seat)
        else:
            self._reactor.remove(self._seat, self._readable)

    def _leave(self) -> None:
        """Take off whoever waits for messages."""
        if self._under_way is not None and self._under_way.head.waits:
            reply = self._under_way.reply
            self._under_way = None
            reply.leave()
            self._traffic.end()

    def _replied(self, under_way: UnderWay) -> None:
        """Called when the answer is there."""
        head, reply = under_way
        try:
            answer = reply.result()
        except Exception as error:
            answer = failed(error, LABELS[head.route])
        if self._under_way is under_way:
            self._under_way = None
            self._answered(head, answer)
        else:
            self._lost(answer.undo)

    def _answered(self, head: Head, answer: Answer) -> None:
        self._traffic.answered(LABELS[head.route], answer.status)
        try:
            sent = self._give(answer, head.close or self._traffic.draining)
        except Exception as error:
            # Whatever goes wrong here is this connection's affair, not the writer's, who calls.
            log.error("an answer could not be given", exc_info=error)
            sent, self._over = True, True
        if sent:
            self._traffic.end()
        if self._over or not sent:
            self._stand_up()
            return
        self._wire.set_idle(True)
        if self._deaf and self._seat is not None and self._reactor is not None:
            self._deaf = False
            self._reactor.add(self._seat, self._readable)

    def _give(self, answer: Answer, close: bool) -> bool:
        """Send the answer, or take it back (L8). False where the task is to send the rest."""
        lost = self._seat is None or (answer.undo is not None and self._wire.gone())
        if not lost:
            data = spelled(answer, self._date, close=close)
            sent = self._wire.send_now(data)
            lost = self._wire.broken
            if sent < len(data) and not lost:
                self._unsent = Unsent(data[sent:], answer.undo, close)
                return False
        if lost:
            self._lost(answer.undo)
        self._over = lost or close
        return True

    async def _send_rest(self, unsent: Unsent) -> None:
        await self._wire.send(unsent.data)
        if not self._wire.broken:
            self._unsent = None
            self._over = unsent.close
            self._wire.set_idle(True)
            self._traffic.end()
        else:
            self._over = True

    def _lost(self, undo: Callable[[], None] | None) -> None:
        """The answer did not get there: what it gave is taken back (L8)."""
        if undo is not None:
            undo()

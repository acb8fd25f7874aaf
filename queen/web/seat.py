"""A connection's place with the reactor: where it waits between its requests, and while they wait for their commits.

A request that is all there is decided as it is read, and answered by the callback of its commit, or of what a parked
pop has waited for: the connection's task sleeps through it. What needs the task wakes it: requests in pieces, several
at once, clients that read slowly, all there is while the server stops.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import structlog
import trio

from queen.broker import Broker
from queen.errors import traced
from queen.reply import Reply
from queen.web.app import LABELS, failed
from queen.web.exchange import Answer
from queen.web.head import STARTS, Head
from queen.web.http import Date, spelled
from queen.web.operation import Traffic
from queen.web.reactor import Reactor
from queen.web.requests import Requests

log = structlog.get_logger("queen.web")


class Wire(Protocol):
    """What the lane and the seat need of their connection (`connection.Connection`)."""

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


class Seat:
    """See the module. `left` are bytes that were read and not served, `ended` whether no more will come."""

    def __init__(
        self, wire: Wire, reactor: Reactor, requests: Requests, broker: Broker, traffic: Traffic, date: Date
    ) -> None:
        self._wire = wire
        self._reactor = reactor
        self._requests = requests
        self._broker = broker
        self._traffic = traffic
        self._date = date
        self.left = b""
        self.ended = False
        self._up = trio.Event()
        self._fd: int | None = None
        self._under_way: UnderWay | None = None
        self._deaf = False
        self._over = False
        self._unsent: Unsent | None = None

    async def sit(self) -> bool:
        """Be with the reactor until something comes that needs this task; whether the connection goes on."""
        self.left = b""
        self._up = trio.Event()
        self._fd = self._wire.fileno()
        if self._fd < 0:
            return False  # closed in the meantime
        self._reactor.add(self._fd, self._readable)
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
        if self._fd is not None:
            self._reactor.remove(self._fd, self._readable)
        self._fd = None
        self._deaf = False
        self._up.set()

    def _readable(self) -> None:
        """Called by the reactor."""
        assert self._fd is not None
        if self._under_way is not None:
            self._disturbed(self._under_way)
            return
        data = self._wire.receive_now()
        if data is None:
            return
        self.left, self.ended = data, not data
        size = data.find(b"\r\n\r\n") + 4
        head = self._requests.head(data[:size]) if size > 3 and data.startswith(STARTS) else None
        if head is None or not head.soon or len(data) != size + head.length or self._traffic.draining:
            self._stand_up()
            return
        self.left = b""
        self._wire.set_idle(False)
        self._traffic.begin()
        try:
            reply = head.route(self._broker, self._requests.asked(head, data[size:]))
        except Exception as error:
            self._answered(head, failed(error, LABELS[head.route]))
            return
        assert isinstance(reply, Reply), "a route that answers soon"
        self._under_way = UnderWay(head, reply)
        reply.then(partial(self._replied, self._under_way))

    def _disturbed(self, under_way: UnderWay) -> None:
        """The client goes or sends ahead while its request is under way. Whoever waits for messages and goes is taken
        off (L8); anything else is done in any case."""
        assert self._fd is not None
        if under_way.head.waits and self._wire.gone():
            self._over = True
            self._stand_up()
            self._leave()
            return
        # Nobody listens to a client that sends ahead, until it has its answer: that bounds what is kept of it.
        self._deaf = True
        if under_way.head.waits:
            self._reactor.mute(self._fd)
        else:
            self._reactor.remove(self._fd, self._readable)

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
            log.error("an answer could not be given", exception=traced(error))
            sent, self._over = True, True
        if sent:
            self._traffic.end()
        if self._over or not sent:
            self._stand_up()
            return
        self._wire.set_idle(True)
        if self._deaf and self._fd is not None:
            self._deaf = False
            self._reactor.add(self._fd, self._readable)

    def _give(self, answer: Answer, close: bool) -> bool:
        """Send the answer, or take it back (L8). False where the task is to send the rest."""
        lost = self._fd is None or (answer.undo is not None and self._wire.gone())
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

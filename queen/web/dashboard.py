"""The dashboard's WebSocket: what the feed tells, as the API page's events, and what clients may say (W1, W2, Z16).

The page speaks of the default group (G1), and so do its events: those of named groups are not told here.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec
import structlog
import trio

from queen.broker import Broker
from queen.errors import Invalid
from queen.figures import Counts
from queen.names import check_name, instant_text
from queen.notices import (
    MessageCompleted,
    MessageFailed,
    MessageNotice,
    MessageProcessing,
    MessagePushed,
    Notice,
    NoticesDropped,
    PartitionDepth,
    QueueAdded,
    QueueDepth,
    SystemStatistics,
)
from queen.web.access import Access, Permit
from queen.web.operation import Traffic
from queen.web.socket import text_frame

log = structlog.get_logger("queen.web")

VERSION: Final = "v2"
"""Of the events, as the page has it."""
AT_ONCE: Final = 256
"""Events sent together to a client that has not had them yet: one step of the loop and one write for all of them."""
KEPT_BYTES: Final = 4 * 1024 * 1024
"""Frames that are kept for further clients."""
GOING_AWAY: Final = 1001
ACCIDENT: Final = 1011
NOT_ALLOWED: Final = 1008
TOKEN_TIME: Final = 5.0
"""Seconds in which a client that showed no token in its handshake must say it."""


class Channel(Protocol):
    """What a session needs of its WebSocket (Quart's)."""

    async def receive(self) -> str | bytes | None:
        """The next message of the client."""

    async def send(self, data: str) -> None:
        """Send a message; one that can't be sent is lost."""

    async def send_frames(self, data: bytes) -> None:
        """The same for messages that are frames already, once one has been sent by `send`."""

    async def close(self, code: int, reason: str = "") -> None:
        """Close."""


# -- what is told here alone ------------------------------------------------------------------------------


class Connected(Notice, frozen=True, kw_only=True):
    """The first thing that a client is told."""

    connection_id: str


class Subscribed(Notice, frozen=True, kw_only=True):
    """From here on there are events of these queues alone, or of all."""

    queues: tuple[str, ...] | None


class Misunderstood(Notice, frozen=True, kw_only=True):
    """What the client has said means nothing."""

    error: str


class ClientConnected(Notice, frozen=True, kw_only=True):
    """Another client has come."""

    client_id: str


class ClientDisconnected(Notice, frozen=True, kw_only=True):
    """Another client has gone."""

    client_id: str


# -- notices to events ------------------------------------------------------------------------------------


class _Frame(msgspec.Struct, frozen=True):
    event: str
    data: dict[str, Any]
    timestamp: str


def _message(notice: MessageNotice) -> dict[str, Any]:
    return {"queue": notice.queue, "partition": notice.partition, "transactionId": notice.transaction_id}


def _figures(counts: Counts) -> dict[str, Any]:
    return {
        "depth": counts.pending,
        "processing": counts.processing,
        "completed": counts.completed,
        "failed": counts.failed,
    }


def _partition_depth(notice: PartitionDepth) -> dict[str, Any]:
    figures = _figures(notice.counts)
    return {"queue": notice.queue, "partition": notice.partition, **figures, "total": notice.counts.total}


def _queue_depth(notice: QueueDepth) -> dict[str, Any]:
    return {
        "queue": notice.queue,
        "namespace": notice.namespace,
        "task": notice.task,
        "totalDepth": notice.counts.pending,
        "totalProcessing": notice.counts.processing,
        "partitions": {partition.partition: _figures(partition.counts) for partition in notice.partitions},
    }


def _system(notice: SystemStatistics) -> dict[str, Any]:
    return {
        "pending": notice.pending,
        "processing": notice.processing,
        "recentCreated": notice.created,
        "recentCompleted": notice.completed,
    }


EVENTS: Final[dict[type[Notice], tuple[str, Callable[[Any], dict[str, Any]]]]] = {
    Connected: ("connected", lambda notice: {"connectionId": notice.connection_id, "version": VERSION}),
    Subscribed: ("subscribed", lambda notice: {"queues": notice.queues}),
    Misunderstood: ("error", lambda notice: {"error": notice.error}),
    MessagePushed: ("message.pushed", _message),
    MessageProcessing: ("message.processing", lambda notice: {**_message(notice), "workerId": notice.worker}),
    MessageCompleted: ("message.completed", lambda notice: {"transactionId": notice.transaction_id}),
    MessageFailed: (
        "message.failed",
        lambda notice: {"transactionId": notice.transaction_id, "error": notice.error},
    ),
    QueueAdded: ("queue.created", lambda notice: {"queue": notice.queue, "partition": notice.partition}),
    QueueDepth: ("queue.depth", _queue_depth),
    PartitionDepth: ("partition.depth", _partition_depth),
    SystemStatistics: ("system.stats", _system),
    ClientConnected: ("client.connected", lambda notice: {"clientId": notice.client_id}),
    ClientDisconnected: ("client.disconnected", lambda notice: {"clientId": notice.client_id}),
    NoticesDropped: ("events.dropped", lambda notice: {"count": notice.count}),
}
"""The event of each notice, and its data. `static/asyncapi.yaml` describes the same, which a test compares."""

_encode: Final = msgspec.json.Encoder().encode
_timestamp: Final = lru_cache(maxsize=256)(instant_text)


def rendered(notice: Notice, sockets: int) -> str:
    """The notice as a text frame; `sockets` is the number of WebSocket connections."""
    event, data_of = EVENTS[type(notice)]
    data = data_of(notice)
    if type(notice) is SystemStatistics:
        data["connections"] = sockets
    return _encode(_Frame(event, data, _timestamp(notice.at))).decode()


class Frames:
    """Notices as frames, each made once for all the clients that are told it, who are rarely far apart."""

    def __init__(self) -> None:
        # The notice is kept beside its frame, so that no other can have its id meanwhile.
        self._made: OrderedDict[int, tuple[Notice, bytes]] = OrderedDict()
        self._size = 0

    def of(self, notice: Notice, sockets: int) -> bytes:
        """The frame of a notice, see `rendered`."""
        made = self._made.get(id(notice))
        if made is not None:
            return made[1]
        frame = text_frame(rendered(notice, sockets).encode())
        self._made[id(notice)] = notice, frame
        self._size += len(frame)
        while self._size > KEPT_BYTES:
            self._size -= len(self._made.popitem(last=False)[1][1])
        return frame


# -- what clients say -------------------------------------------------------------------------------------


class _Subscribe(msgspec.Struct, tag_field="type", tag="subscribe"):
    queues: list[str] | None = None


class _Authenticate(msgspec.Struct, tag_field="type", tag="authenticate"):
    token: str


_decode: Final = msgspec.json.Decoder(_Subscribe | _Authenticate).decode


def said(message: str | bytes | None) -> _Subscribe | _Authenticate:
    """What a client says beside `ping`. Raises `Invalid` where it means nothing."""
    if not isinstance(message, str):
        raise Invalid("message", "is not a text frame")
    try:
        return _decode(message)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Invalid("message", f"is neither 'ping' nor a subscription ({error})") from None


def _wanted(queues: list[str] | None) -> tuple[str, ...] | None:
    """The queues of a `subscribe`, None where it is for all. Raises `Invalid`."""
    if queues is None:
        return None
    return tuple(dict.fromkeys(check_name(queue, f"queues[{index}]") for index, queue in enumerate(queues)))


# -- a connection -----------------------------------------------------------------------------------------


class Guest:
    """Who a client is: known from its handshake (`permit`), or still to say its token."""

    def __init__(self, access: Access, permit: Permit | None) -> None:
        self._access = access
        self._permit = permit

    async def admitted(self, channel: Channel) -> bool:
        """Whether the client may listen; one that has to show a token does so now, or never."""
        if self._permit is None:
            with trio.move_on_after(TOKEN_TIME):
                message = await channel.receive()
                try:
                    shown = said(message)
                except Invalid:
                    return False
                if isinstance(shown, _Authenticate):
                    found = self._access.recognise(b"Bearer " + shown.token.encode())
                    self._permit = found if isinstance(found, Permit) else None
        return self._permit is not None

    async def expelled(self) -> None:
        """Return when the client may no longer listen."""
        assert self._permit is not None, "only who was admitted can be expelled"
        await self._access.ended(self._permit)


class Session:
    """One client. `gone` says that nothing reaches it any more."""

    def __init__(
        self,
        broker: Broker,
        traffic: Traffic,
        channel: Channel,
        frames: Frames,
        gone: Callable[[], bool],
        guest: Guest,
    ) -> None:
        self._feed = broker.feed
        self._notices = broker.feed.subscribe()
        self._traffic = traffic
        self._channel = channel
        self._frames = frames
        self._gone = gone
        self._guest = guest
        self._id = broker.new_id()
        self._code = GOING_AWAY

    async def run(self) -> None:
        """Serve until the client leaves (which cancels this), may no longer listen, or the server stops."""
        if not await self._guest.admitted(self._channel):
            await self._channel.close(NOT_ALLOWED, "a token is needed")
            return
        await self._serve()
        await self._channel.close(self._code)

    async def _serve(self) -> None:
        feed = self._feed
        try:
            async with self._notices:
                connected = Connected(at=feed.now(), connection_id=self._id)
                await self._channel.send(rendered(connected, self._traffic.sockets))
                feed.publish(ClientConnected(at=feed.now(), client_id=self._id), but=self._notices)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._listen)
                    nursery.start_soon(self._leave, nursery.cancel_scope)
                    nursery.start_soon(self._expel, nursery.cancel_scope)
                    await self._tell()
                    nursery.cancel_scope.cancel()
        except Exception:
            log.exception("a WebSocket failed")
            self._code = ACCIDENT
        finally:
            feed.publish(ClientDisconnected(at=feed.now(), client_id=self._id))

    async def _tell(self) -> None:
        while notices := await self._notices.batch(AT_ONCE):
            sockets = self._traffic.sockets
            frames = [
                self._frames.of(notice, sockets)
                for notice in notices
                if not (isinstance(notice, MessageNotice) and notice.group is not None)
            ]
            if frames:
                await self._channel.send_frames(b"".join(frames))
            if self._gone():
                return

    async def _listen(self) -> None:
        """Do what the client says. Answers take their place among the events, so that they are true where they
        stand."""
        while True:
            message = await self._channel.receive()
            if message == "ping":
                await self._channel.send("pong")
                continue
            try:
                wanted = said(message)
                if isinstance(wanted, _Authenticate):
                    continue  # known already, or nobody has to be
                queues = _wanted(wanted.queues)
            except Invalid as error:
                self._notices.say(Misunderstood(at=self._feed.now(), error=str(error)))
            else:
                self._notices.restrict(queues)
                self._notices.say(Subscribed(at=self._feed.now(), queues=queues))

    async def _leave(self, session: trio.CancelScope) -> None:
        await self._traffic.stopping.wait()
        session.cancel()

    async def _expel(self, session: trio.CancelScope) -> None:
        await self._guest.expelled()
        self._code = NOT_ALLOWED
        session.cancel()

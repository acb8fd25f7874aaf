"""The dashboard's WebSocket: what the feed tells, as the API page's events, and what clients may say (W1, W2, Z16).

The page speaks of the default group (G1), and so do its events: those of named groups are not told here.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal, Protocol

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
from queen.web.operation import Traffic

log = structlog.get_logger("queen.web")

VERSION: Final = "v2"
"""Of the events, as the page has it."""
GOING_AWAY: Final = 1001
ACCIDENT: Final = 1011


class Channel(Protocol):
    """What a session needs of its WebSocket (Quart's)."""

    async def receive(self) -> str | bytes | None:
        """The next message of the client."""

    async def send(self, data: str) -> None:
        """Send a message; one that can't be sent is lost."""

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


# -- what clients say -------------------------------------------------------------------------------------


class _Subscribe(msgspec.Struct):
    type: Literal["subscribe"]
    queues: list[str] | None = None


_decode: Final = msgspec.json.Decoder(_Subscribe).decode


def understood(message: str | bytes | None) -> tuple[str, ...] | None:
    """The queues of a `subscribe`, None where it is for all. Raises `Invalid` for anything else."""
    if not isinstance(message, str):
        raise Invalid("message", "is not a text frame")
    try:
        queues = _decode(message).queues
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Invalid("message", f"is neither 'ping' nor a subscription ({error})") from None
    if queues is None:
        return None
    return tuple(dict.fromkeys(check_name(queue, f"queues[{index}]") for index, queue in enumerate(queues)))


# -- a connection -----------------------------------------------------------------------------------------


class Session:
    """One client. `gone` says that nothing reaches it any more."""

    def __init__(self, broker: Broker, traffic: Traffic, channel: Channel, gone: Callable[[], bool]) -> None:
        self._feed = broker.feed
        self._notices = broker.feed.subscribe()
        self._traffic = traffic
        self._channel = channel
        self._gone = gone
        self._id = broker.new_id()

    async def run(self) -> None:
        """Serve until the client leaves (which cancels this) or the server stops."""
        feed = self._feed
        code = GOING_AWAY
        try:
            async with self._notices:
                await self._send(Connected(at=feed.now(), connection_id=self._id))
                feed.publish(ClientConnected(at=feed.now(), client_id=self._id), but=self._notices)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._listen)
                    nursery.start_soon(self._leave, nursery.cancel_scope)
                    await self._tell()
                    nursery.cancel_scope.cancel()
        except Exception:
            log.exception("a WebSocket failed")
            code = ACCIDENT
        finally:
            feed.publish(ClientDisconnected(at=feed.now(), client_id=self._id))
        await self._channel.close(code)

    async def _tell(self) -> None:
        async for notice in self._notices:
            if not (isinstance(notice, MessageNotice) and notice.group is not None):
                await self._send(notice)
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
                queues = understood(message)
            except Invalid as error:
                self._notices.say(Misunderstood(at=self._feed.now(), error=str(error)))
            else:
                self._notices.restrict(queues)
                self._notices.say(Subscribed(at=self._feed.now(), queues=queues))

    async def _leave(self, session: trio.CancelScope) -> None:
        await self._traffic.stopping.wait()
        session.cancel()

    async def _send(self, notice: Notice) -> None:
        await self._channel.send(rendered(notice, self._traffic.sockets))

"""One TCP connection: Hypercorn's HTTP/1.1, driven by a reader of ours that closes what Hypercorn would leave open.

Why not Hypercorn's own `TCPServer`: it never closes a connection whose last send was cancelled, waits for ever for a
client that does not read, restarts a task for each request's idle time, and answers its own errors with no body.
"""

import os
import select
import ssl
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from queen.broker import Broker
from queen.settings import Settings
from queen.web.access import Access
from queen.web.exchange import CLOSE, CORS, Answer, Callers, refusal, too_large
from queen.web.http import Date
from queen.web.lane import Lane
from queen.web.operation import Traffic
from queen.web.reactor import Reactor
from queen.web.socket import Socket, asks_for_socket

_MAX_RECV: Final = 2**16
_MAX_SEND: Final = 2**18
_LINGER: Final = 1.0
_GONE: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class House(NamedTuple):
    """What all connections of a server share."""

    app: AppWrapper
    broker: Broker
    settings: Settings
    access: Access
    traffic: Traffic
    callers: Callers
    config: Config
    context: WorkerContext
    date: Date
    reactor: Reactor | None
    tls: ssl.SSLContext | None


class Connection:
    """Serves one stream until either side is done with it."""

    def __init__(self, house: House, transport: trio.SocketStream) -> None:
        self.broken = False
        self._house = house
        self._settings = house.settings
        self._transport = transport
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = transport
        if house.tls is not None:
            self._stream = trio.SSLStream(transport, house.tls, server_side=True, https_compatible=True)
        self._idle = True
        self._idle_since = trio.current_time()
        self._reading = trio.CancelScope()
        self._running = trio.CancelScope()
        self._send_lock = trio.Lock()

    # What the gate and the lane ask (asgi.Link, lane.Wire).

    def gone(self) -> bool:
        """Whether the client has closed, looked up now: the reader may not have come round to it yet.

        A client that closes only its sending half looks the same and is taken to be gone as well: nothing short of
        writing to it could tell the two apart, and then the messages would be lost to a lease (L8).
        """
        if self.broken or self._reading.cancel_called:
            return True
        try:
            poll = select.poll()
            poll.register(self._transport.socket.fileno(), _GONE)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def set_idle(self, idle: bool) -> None:
        """Only while a request is under way may the connection stay open without limit."""
        self._idle = idle
        if idle:
            self._idle_since = trio.current_time()

    def close_overdue(self, now: float) -> None:
        """Close where no request has come for `keep_alive`. Called for all connections now and then: a deadline that is
        moved with each request costs more than many a request."""
        if self._idle and now - self._idle_since > self._settings.keep_alive:
            self._reading.cancel()

    async def receive(self) -> bytes:
        """The next bytes; none when the client has closed or is gone."""
        try:
            return bytes(await self._stream.receive_some(_MAX_RECV))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.broken = True
            return b""

    async def send(self, data: bytes) -> None:
        """Send all of `data`, or set `broken`. Only `write_time` ends it early: half an answer is worse than none."""
        async with self._send_lock:
            with trio.CancelScope(shield=True) as scope:
                try:
                    if self.broken:
                        return
                    for start in range(0, len(data), _MAX_SEND):
                        scope.deadline = trio.current_time() + self._settings.write_time
                        await self._stream.send_all(data[start : start + _MAX_SEND])
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._break()
            if scope.cancelled_caught:
                self._break()

    def fileno(self) -> int:
        """The socket's number, -1 once it is closed."""
        return self._transport.socket.fileno()

    def receive_now(self) -> bytes | None:
        """What is there, none at the end; None where there is nothing yet."""
        try:
            return os.read(self.fileno(), _MAX_RECV)
        except BlockingIOError:
            return None
        except OSError:
            self.broken = True
            return b""

    def send_now(self, data: bytes) -> int:
        """Send what the kernel takes, or set `broken`; returns how much that was."""
        if self.broken:
            return 0
        try:
            return os.write(self.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError:
            self._break()
            return 0

    # What the server and its door ask.

    @property
    def idle_since(self) -> float:
        """When the last request was over, in trio's time; infinite while one is under way."""
        return self._idle_since if self._idle else float("inf")

    def close_idle(self) -> None:
        """Close now if no request is under way, else after its answer."""
        if self._idle:
            self._reading.cancel()

    def abort(self) -> None:
        """Close now, whatever is under way: even a shielded send ends when its socket does."""
        self._transport.socket.close()
        self._running.cancel()

    async def run(self) -> None:
        """Serve requests until the connection ends."""
        self._house.traffic.connections += 1
        try:
            with self._running:
                if await self._shake_hands():
                    await self._serve()
                await self._linger()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._house.traffic.connections -= 1
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    async def _shake_hands(self) -> bool:
        """Whether the client speaks TLS as it should, where it should."""
        if isinstance(self._stream, trio.SSLStream):
            with trio.move_on_after(self._settings.keep_alive) as scope:
                await self._stream.do_handshake()
            self.broken = scope.cancelled_caught
        return not self.broken

    async def _serve(self) -> None:
        house = self._house
        socket = self._transport.socket
        client = parse_socket_addr(socket.family, socket.getpeername())
        rest: bytes | None = None
        self.set_idle(True)
        if self._settings.fast_lane:
            address = client[0] if client else ""
            lane = Lane(
                *(self, house.broker, house.settings, house.access, house.traffic, house.callers, house.date, address),
                # It reads and writes the socket itself, and would have to know TLS.
                house.reactor if house.tls is None else None,
            )
            with self._reading:
                rest = await lane.run()
            if rest is None or self._reading.cancel_called:
                return
        async with TaskGroup() as tasks:
            protocol = Protocol(
                house.app,
                house.config,
                house.context,
                tasks,
                ConnectionState({"link": self}),
                house.tls is not None,
                client,
                parse_socket_addr(socket.family, socket.getsockname()),
                self._handle,
            )
            protocol.limit(self._settings)
            await protocol.initiate()
            self._reading = trio.CancelScope()
            self.set_idle(True)
            with self._reading:
                await self._read(protocol, rest or b"")
            self._reading.cancel()
            with trio.move_on_after(_LINGER):
                await protocol.handle(Closed())

    async def _read(self, protocol: H11Protocol, rest: bytes) -> None:
        if rest:
            await protocol.handle(RawData(rest))
        while data := await self.receive():
            await protocol.handle(RawData(data))
        await protocol.handle(RawData(b""))

    async def _handle(self, event: Event) -> None:
        if isinstance(event, RawData):
            await self.send(event.data)
        elif isinstance(event, Closed):
            self._reading.cancel()
        elif isinstance(event, Updated):
            self.set_idle(event.idle)

    def _break(self) -> None:
        self.broken = True
        self._reading.cancel()

    async def _linger(self) -> None:
        """Say that nothing more comes, and read on for a moment.

        Closing with unread bytes makes the kernel send a reset, which can destroy the answer before it is read.
        """
        if self.broken:
            return
        with trio.move_on_after(_LINGER, shield=True):
            try:
                if isinstance(self._stream, trio.SSLStream):
                    await self._stream.unwrap()
                    return
                await self._stream.send_eof()
                while await self._stream.receive_some(_MAX_RECV):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError, OSError):
                pass


class Protocol(H11Protocol):
    """Hypercorn's HTTP/1.1 with our limits, our error bodies, and each answer in one piece."""

    def limit(self, settings: Settings) -> None:
        """Set what Hypercorn's own constructor has no room for."""
        self._settings = settings
        self._unsent = b""

    async def _check_protocol(self, event: h11.Request) -> None:
        """No upgrade to HTTP/2: a second protocol would double what the limits have to hold for."""

    async def _create_stream(self, request: h11.Request) -> None:
        refused = self._too_much(request)
        if refused is not None:
            await self._refuse(refused, bare=request.method == b"HEAD")
        elif asks_for_socket(request):
            if all(value.isascii() for name, value in request.headers if name.startswith(b"sec-websocket-")):
                await self._open_socket(request)
            else:
                await self._refuse(refusal(400, "not a valid WebSocket handshake"))  # Hypercorn fails on it
        else:
            await super()._create_stream(request)

    async def _open_socket(self, request: h11.Request) -> None:
        # As Hypercorn does it, but for the class.
        self.stream = Socket(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        assert isinstance(self.connection, h11.Connection)
        self.connection = H11WSConnection(self.connection)
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method="GET",
                raw_path=request.target,
                state=self.connection_state,
            )
        )

    def _too_much(self, request: h11.Request) -> Answer | None:
        # h11 bounds only what arrives in pieces, so what came whole is measured here.
        limit, max_target = self._settings.max_header, self._settings.max_target
        if len(request.target) > max_target:
            return refusal(414, f"the request's target is longer than {max_target} bytes")
        if len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers) > limit:
            return refusal(431, f"the request's headers are larger than {limit} bytes")
        lengths = [int(value) for name, value in request.headers if name == b"content-length"]
        if lengths and any(name == b"transfer-encoding" for name, _ in request.headers):
            # A proxy in front may believe the other one and take the rest of the body for a request.
            return refusal(400, "not a valid HTTP request: its body has two lengths")
        # Before h11 would tell an `Expect: 100-continue` client to go ahead.
        if any(length > self._settings.max_body for length in lengths):
            return too_large(self._settings.max_body)
        return None

    async def _send_h11_event(self, event: Any) -> None:
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        self._unsent += data or b""
        # Head and body leave in one system call; what follows a head comes at once.
        if self._unsent and not isinstance(event, h11.Response):
            unsent, self._unsent = self._unsent, b""
            await self.send(RawData(data=unsent))

    async def _send_error_response(self, status_code: int) -> None:
        if status_code == 431:
            await self._refuse(refusal(431, f"the request's headers are larger than {self._settings.max_header} bytes"))
            return
        await self._refuse(refusal(status_code, f"not a valid HTTP request ({HTTPStatus(status_code).phrase})"))

    async def _refuse(self, answer: Answer, bare: bool = False) -> None:
        """Answer and close; `bare`: without the body, which would be one too many behind a HEAD."""
        headers = [*answer.fields(), *CORS, CLOSE, *self.config.response_headers("h11")]
        await self._send_h11_event(h11.Response(headers=headers, status_code=answer.status))
        if not bare:
            await self._send_h11_event(h11.Data(data=answer.body))
        await self._send_h11_event(h11.EndOfMessage())
        await self.send(Closed())

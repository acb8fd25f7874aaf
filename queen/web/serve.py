"""The server: its listening socket, its connections, and how it stops. Knows signals; what it serves comes in."""

import logging
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.worker_context import WorkerContext

from queen.broker import Broker
from queen.errors import Invalid
from queen.settings import KIB, Settings
from queen.web.access import Access
from queen.web.app import create_app
from queen.web.asgi import Gate
from queen.web.connection import Connection, House
from queen.web.door import Door
from queen.web.exchange import Callers
from queen.web.http import Date
from queen.web.operation import Traffic
from queen.web.process import most_connections
from queen.web.reactor import Reactor

log = structlog.get_logger("queen.web")

_BACKLOG = 1024
_PRIVATE = b"PRIVATE KEY-----"  # what a key in PEM is headed with, whatever its kind
_LAST_MOMENT = 0.2


async def serve(
    broker: Broker,
    settings: Settings,
    *,
    stop: trio.Event | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `broker` over HTTP until SIGTERM or SIGINT (or `stop` is set), then drain and return.

    Tells `task_status` the URLs it listens on. Raises `OSError` where it can't listen. Cancelled, it closes every
    connection at once; what was already answered is durable all the same.
    """
    access = Access(settings, broker.feed.now)
    access.open()
    tls = tls_context(settings)
    listeners = await open_listeners(settings, access)
    traffic = Traffic(lambda: access.fault)
    config = _hypercorn_config(settings)
    context = WorkerContext(None)
    callers = Callers()
    app = ASGIWrapper(Gate(create_app(broker, access, traffic), settings, access, traffic, callers))  # type: ignore[arg-type]
    reactor = Reactor() if Reactor.available() else None
    house = House(app, broker, settings, access, traffic, callers, config, context, Date(config), reactor, tls)
    lifespan = Lifespan(app, config, {})
    open_now: set[Connection] = set()
    door = Door(open_now, most_connections())
    closing = trio.Event()

    async def serve_stream(stream: trio.SocketStream) -> None:
        connection = Connection(house, stream)
        open_now.add(connection)
        try:
            await connection.run()
        except* Exception:
            log.exception("a connection failed")  # it alone: the others know nothing of it
        finally:
            open_now.discard(connection)

    async with trio.open_nursery() as whole:
        whole.start_soon(_cut_off, open_now, closing)
        whole.start_soon(access.watch)
        whole.start_soon(_close_overdue, open_now, settings.keep_alive)
        if reactor is not None:
            whole.start_soon(reactor.run)
        await whole.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(door.let_in, listener, serve_stream, connections)
                _warn(access, tls)
                task_status.started([_url(listener, tls) for listener in listeners])
                await _wait_stop(stop)
                # From here on: no new connections, 503 on those that are open.
                traffic.drain()
                accepting.cancel_scope.cancel()
            await _drain(broker, settings, traffic)
            await context.terminated.set()
            for connection in tuple(open_now):
                connection.close_idle()
            closing.set()
        await lifespan.wait_for_shutdown()
        whole.cancel_scope.cancel()


async def open_listeners(settings: Settings, access: Access) -> list[trio.SocketListener]:
    """Listen where the settings say. Raises `OSError` naming the address, and `Invalid` where everybody on the network
    could do everything without having been meant to."""
    try:
        listeners = await trio.open_tcp_listeners(settings.port, host=settings.host, backlog=_BACKLOG)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise OSError(fault.errno, f"can't listen on {settings.host} port {settings.port}: {reason}") from None
    access.listen_on([listener.socket.getsockname()[0] for listener in listeners])
    if not (access.local or access.closed or settings.allow_anonymous):
        for listener in listeners:
            listener.socket.close()
        raise Invalid(
            "--host",
            f"{settings.host} can be reached from other machines, and there are no tokens: make one with "
            "'queen tokens add', or say --allow-anonymous if everybody there may do everything",
        )
    for listener in listeners:
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Inherited by every connection: a peer that stops acknowledging is given up by the kernel.
            timeout_ms = int(settings.write_time * 1000)
            listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
    return listeners


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with the settings' certificate; None without one. Raises `Invalid` where it can't be used."""
    if not settings.certfile:
        if settings.keyfile:
            raise Invalid("--keyfile", "needs --certfile")
        return None
    key = settings.keyfile or settings.certfile
    _read("--certfile", settings.certfile)
    if _PRIVATE not in _read("--keyfile", key):
        raise Invalid("--keyfile", f"is missing, or has no key: there is no private key in {key}")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.certfile, settings.keyfile or None)
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        raise Invalid("--certfile", f"{settings.certfile} can't be used with the key in {key}: {error}") from None
    return context


def _read(option: str, path: str) -> bytes:
    """What a file has that an option names: OpenSSL itself would not say which of two it can't read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Invalid(option, f"{path}: {error.strerror}") from None


def _warn(access: Access, tls: ssl.SSLContext | None) -> None:
    """Say at the start who can do what."""
    if not access.closed:
        tell = log.info if access.local else log.warning
        tell("there are no tokens: whoever reaches the port may do everything", only_this_machine=access.local)
    elif tls is None and not access.local:
        log.warning("tokens can be read on their way, for there is no TLS (--certfile)")


async def _drain(broker: Broker, settings: Settings, traffic: Traffic) -> None:
    """Answer waiting pops, finish what is in flight; a hard limit ends it, whatever a client does or doesn't read."""
    with trio.move_on_after(settings.drain_time) as limit:
        await broker.drain()
        await traffic.wait_quiet()
    if limit.cancelled_caught:
        log.warning("stopping with requests unanswered", requests=traffic.in_flight)


async def _cut_off(connections: set[Connection], closing: trio.Event) -> None:
    """End the connections that don't end by themselves, at the end of a drain or when the server is cancelled.

    A client that reads nothing must not hold the server up: its send is shielded, but ends when its socket does.
    """
    try:
        await closing.wait()
        await trio.sleep(_LAST_MOMENT)
    finally:
        for connection in tuple(connections):
            connection.abort()


async def _close_overdue(connections: set[Connection], keep_alive: float) -> None:
    """Look now and then for connections that have asked for nothing for too long."""
    while True:
        await trio.sleep(min(1.0, keep_alive / 4))
        now = trio.current_time()
        for connection in tuple(connections):
            connection.close_overdue(now)


async def _wait_stop(stop: trio.Event | None) -> None:
    if stop is not None:
        await stop.wait()
        return
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("stopping", signal=signal.Signals(number).name)
            return


def _hypercorn_config(settings: Settings) -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("queen.hypercorn")
    config.h11_max_incomplete_size = settings.max_header
    config.include_server_header = False
    config.websocket_max_message_size = 16 * KIB
    config.websocket_ping_interval = settings.ping_time
    return config


def _url(listener: trio.SocketListener, tls: ssl.SSLContext | None) -> str:
    address: Any = listener.socket.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{'http' if tls is None else 'https'}://{host}:{address[1]}"

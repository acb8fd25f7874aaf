"""The server: its listening socket, its connections, and how it stops. Knows signals; what it serves comes in."""

import logging
import signal
import socket
from typing import Any

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.worker_context import WorkerContext

from queen.broker import Broker
from queen.settings import KIB, Settings
from queen.web.app import create_app
from queen.web.asgi import Gate
from queen.web.connection import Connection, House
from queen.web.door import Door
from queen.web.exchange import Callers
from queen.web.lane import Date
from queen.web.operation import Traffic
from queen.web.process import most_connections
from queen.web.reactor import Reactor

log = structlog.get_logger("queen.web")

_BACKLOG = 1024
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
    listeners = await open_listeners(settings)
    traffic = Traffic()
    config = _hypercorn_config(settings)
    context = WorkerContext(None)
    callers = Callers()
    app = ASGIWrapper(Gate(create_app(broker, traffic), settings, traffic, callers))  # type: ignore[arg-type]
    reactor = Reactor() if Reactor.available() else None
    house = House(app, broker, settings, traffic, callers, config, context, Date(config), reactor)
    lifespan = Lifespan(app, config, {})
    open_now: set[Connection] = set()
    door = Door(open_now, most_connections())
    closing = trio.Event()

    async def serve_stream(stream: trio.SocketStream) -> None:
        connection = Connection(house, stream)
        open_now.add(connection)
        try:
            await connection.run()
        finally:
            open_now.discard(connection)

    async with trio.open_nursery() as whole:
        whole.start_soon(_cut_off, open_now, closing)
        whole.start_soon(_close_overdue, open_now, settings.keep_alive)
        if reactor is not None:
            whole.start_soon(reactor.run)
        await whole.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(door.let_in, listener, serve_stream, connections)
                task_status.started([_url(listener) for listener in listeners])
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


async def open_listeners(settings: Settings) -> list[trio.SocketListener]:
    """Listen where the settings say. Raises `OSError` naming the address."""
    try:
        listeners = await trio.open_tcp_listeners(settings.port, host=settings.host, backlog=_BACKLOG)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise OSError(fault.errno, f"can't listen on {settings.host} port {settings.port}: {reason}") from None
    for listener in listeners:
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Inherited by every connection: a peer that stops acknowledging is given up by the kernel.
            timeout_ms = int(settings.write_time * 1000)
            listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
    return listeners


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


def _url(listener: trio.SocketListener) -> str:
    address: Any = listener.socket.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}"

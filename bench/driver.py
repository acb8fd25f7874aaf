"""A load generator that is cheap enough not to be what is measured: non-blocking sockets under one epoll.

Each connection has one request under way at a time. Of an answer, only as much is read as is needed to find its end.
"""

import gc
import os
import re
import resource
import select
import socket
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_CHUNK: Final = 1 << 18
_READ: Final = select.EPOLLIN
_BOTH: Final = select.EPOLLIN | select.EPOLLOUT

now: Final = time.perf_counter


class Work(Protocol):
    """What the connections of a run do."""

    connections: int
    messages: int
    """How many messages are through; set to 0 at the end of the warm-up."""

    def next(self, connection: int, status: int, body: bytes, took: float) -> bytes | None:
        """The connection's next request, after the answer to its last one (status 0: there was none) that took so
        many seconds; None: it is done."""


class Connection:
    """One connection to the server."""

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.sent_at = 0.0
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._receive = self._socket.recv
        self._answer = b""
        self._whole = 0  # size of the answer, once its head is there
        self._body = 0
        self._unsent = memoryview(b"")

    def fileno(self) -> int:
        """Its file descriptor."""
        return self._socket.fileno()

    def send(self, request: bytes) -> bool:
        """Send a request, or as much as goes; whether there is a rest for `flush`."""
        self.sent_at = now()
        try:
            sent = self._socket.send(request)
        except BlockingIOError:
            sent = 0
        if sent == len(request):
            return False
        self._unsent = memoryview(request)[sent:]
        return True

    def flush(self) -> bool:
        """Go on sending; whether there is still a rest."""
        self._unsent = self._unsent[self._socket.send(self._unsent) :]
        return bool(self._unsent)

    def receive(self) -> tuple[int, bytes] | None:
        """Read what has come; the status and body once the answer is whole."""
        more = self._receive(_CHUNK)
        if not more:
            raise ConnectionError(f"the server closed connection {self.number} after {self._answer[:200]!r}")
        answer = self._answer = self._answer + more if self._answer else more
        if not self._whole:
            end = answer.find(b"\r\n\r\n")
            if end < 0:
                return None
            length = _LENGTH.search(answer, 0, end)
            self._body = end + 4
            self._whole = end + 4 + (int(length[1]) if length else 0)
        if len(answer) < self._whole:
            return None
        self._answer = b""
        body, self._whole = answer[self._body : self._whole], 0
        return int(answer[9:12]), body

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class Seen:
    """What is seen while measuring: latencies in seconds, processor time of the generator and of the server."""

    def __init__(self, watched: int) -> None:
        self._watched = watched
        self.latencies = array("d")
        self.seconds = 0.0
        self._began = 0.0
        self._own = 0.0
        self._theirs = (0.0, 0.0)

    def begin(self) -> None:
        """The warm-up is over."""
        self.latencies = array("d")
        self._began = now()
        self._own = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        self._theirs = cpu_s(self._watched)

    def end(self, messages: int) -> dict[str, Any]:
        """The figures of the run."""
        self.seconds = now() - self._began
        user, system = (after - before for after, before in zip(cpu_s(self._watched), self._theirs, strict=True))
        own = sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - self._own
        return {
            "messages_per_s": messages / self.seconds,
            "requests_per_s": len(self.latencies) / self.seconds,
            **percentiles_ms(self.latencies),
            "server_user_s": user,
            "server_system_s": system,
            "server_us_per_message": (user + system) * 1e6 / messages if messages else None,
            "server_cores": (user + system) / self.seconds,
            "generator_cores": own / self.seconds,
            "seconds": self.seconds,
            "messages": messages,
        }


def percentiles_ms(latencies: "array[float] | list[float]") -> dict[str, float | None]:
    """The latencies that half, 99 % and 99.9 % did not exceed, and the longest, in ms."""
    ordered = sorted(latencies)

    def at(share: float) -> float | None:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000 if ordered else None

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": at(1.0)}


def cpu_s(pid: int) -> tuple[float, float]:
    """Processor time that a process has used so far, all threads: in its own code, and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / _TICKS, int(fields[12]) / _TICKS


class Loop:
    """Connections under one epoll."""

    def __init__(self, port: int, arrived: Callable[[Connection, int, bytes], None]) -> None:
        self._port = port
        self._arrived = arrived
        self._epoll = select.epoll()
        self._open: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._open)

    def connect(self) -> Connection:
        """A new connection."""
        connection = Connection(len(self._open), self._port)
        self._open[connection.fileno()] = connection
        self._epoll.register(connection.fileno(), _READ)
        return connection

    def send(self, connection: Connection, request: bytes) -> None:
        """Send a request whose answer goes to `arrived`."""
        if connection.send(request):
            self._epoll.modify(connection.fileno(), _BOTH)

    def drop(self, connection: Connection) -> None:
        """Close a connection."""
        del self._open[connection.fileno()]
        self._epoll.unregister(connection.fileno())
        connection.close()

    def turn(self, timeout: float) -> None:
        """Wait for something to happen, `timeout` seconds at most, and see to it."""
        if 0 < timeout < 0.5:
            # epoll counts in whole milliseconds; select on the epoll itself does not.
            select.select([self._epoll], (), (), timeout)
            timeout = 0
        found = self._open
        for number, events in self._epoll.poll(timeout, 1024):
            connection = found[number]
            if events & select.EPOLLOUT and not connection.flush():
                self._epoll.modify(number, _READ)
            if events & ~select.EPOLLOUT:
                answer = connection.receive()
                if answer is not None:
                    self._arrived(connection, *answer)

    def close(self) -> None:
        """Close all."""
        for connection in list(self._open.values()):
            self.drop(connection)
        self._epoll.close()


def drive(port: int, work: Work, seconds: float, warm_up: float = 0.0, watched: int = 0) -> dict[str, Any]:
    """Keep all connections busy for so many seconds after the warm-up, or until all are done. `watched` is the
    process whose processor time counts."""
    seen = Seen(watched or os.getpid())

    def arrived(connection: Connection, status: int, body: bytes) -> None:
        took = now() - connection.sent_at
        seen.latencies.append(took)
        request = work.next(connection.number, status, body, took)
        if request is None:
            loop.drop(connection)
        else:
            loop.send(connection, request)

    loop = Loop(port, arrived)
    gc.disable()
    for _ in range(work.connections):
        connection = loop.connect()
        request = work.next(connection.number, 0, b"", 0.0)
        if request is None:
            loop.drop(connection)
        else:
            loop.send(connection, request)
    for length in (warm_up, seconds):
        if warm_up and not len(loop):
            raise SystemExit("all was done before the warm-up was over: nothing was measured")
        seen.begin()
        work.messages = 0
        end = now() + length
        while len(loop) and now() < end:
            loop.turn(1.0)
    figures = seen.end(work.messages)
    loop.close()
    gc.enable()
    return figures

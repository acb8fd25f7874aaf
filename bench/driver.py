"""A load generator that is cheap enough not to be what is measured: prebuilt requests over raw sockets, one loop.

Every connection has one request under way at a time. Only as much of an answer is read as is needed to find its end.
"""

import re
import resource
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

Next = Callable[[int, int, bytes], bytes | None]
"""A connection's number, its last answer's status (0 at first) and body, to its next request; None: it is done."""


@dataclass
class Tally:
    """What was seen while measuring."""

    seconds: float = 0.0
    cpu_s: float = 0.0  # the generator's own, to show that it was not the bottleneck
    statuses: dict[int, int] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list)

    def latency_ms(self, share: float) -> float:
        """The latency that this share of the requests did not exceed."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000 if ordered else 0.0


class _Connection:
    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answer = b""
        self.sent_at = 0.0

    def send(self, request: bytes) -> None:
        self.answer = b""
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)

    def read(self) -> tuple[int, bytes] | None:
        """What has come; the status and body once the answer is whole."""
        more = self.socket.recv(1 << 18)
        if not more:
            raise ConnectionError(f"the server closed connection {self.number} after {self.answer[:200]!r}")
        self.answer += more
        end = self.answer.find(b"\r\n\r\n")
        if end < 0:
            return None
        status = int(self.answer[9:12])
        length = _LENGTH.search(self.answer, 0, end)
        if length is None and status != 204:
            raise ConnectionError(f"an answer without Content-Length: {self.answer[:end]!r}")
        whole = end + 4 + (int(length[1]) if length else 0)
        return None if len(self.answer) < whole else (status, self.answer[end + 4 : whole])


def drive(
    port: int,
    connections: int,
    following: Next,
    seconds: float,
    warm_up_s: float = 0.0,
    started: Callable[[], None] = lambda: None,
) -> Tally:
    """Keep all connections busy until `seconds` after the warm-up (`started` is called at its end) or all are done."""
    tally = Tally()
    selector = selectors.DefaultSelector()
    busy = 0
    for number in range(connections):
        connection = _Connection(number, port)
        request = following(number, 0, b"")
        if request is not None:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(request)
            busy += 1
    begin = time.perf_counter() + warm_up_s
    measuring = False
    cpu = 0.0
    while busy:
        now = time.perf_counter()
        if not measuring and now >= begin:
            measuring, begin, cpu = True, now, _cpu_s()
            started()
        if now > begin + seconds:
            break
        for key, _ in selector.select(timeout=1):
            connection = key.data
            answer = connection.read()
            if answer is None:
                continue
            if measuring:
                tally.latencies_s.append(time.perf_counter() - connection.sent_at)
                tally.statuses[answer[0]] = tally.statuses.get(answer[0], 0) + 1
            request = following(connection.number, *answer)
            if request is None:
                selector.unregister(connection.socket)
                connection.socket.close()
                busy -= 1
            else:
                connection.send(request)
    if not measuring:
        raise SystemExit("all was done before the warm-up was over: nothing was measured")
    tally.seconds = time.perf_counter() - begin
    tally.cpu_s = _cpu_s() - cpu
    for key in list(selector.get_map().values()):
        key.data.socket.close()
    selector.close()
    return tally


def post(path: str, body: bytes) -> bytes:
    """A whole POST request."""
    fields = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"POST {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    """A whole GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def push_request(partition: int, messages: int, payload_bytes: int = 256) -> bytes:
    """A push of so many messages to one partition; each payload is a JSON string of that size, quotes included."""
    item = b'{"queue":"bench","partition":"p%d","payload":"%s"}' % (partition, b"x" * (payload_bytes - 2))
    return post("/api/v1/push", b'{"items":[%s]}' % b",".join([item] * messages))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

"""The works W1 to W5 and W7 from their clients' side, as the goals word them. W6 has no clients: `embedded.py`.

Every answer is looked at: a server that refuses or loses something is no result.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Final

from bench import traffic
from bench.driver import Connection, Loop, Seen, Work, drive, now, percentiles_ms

FILLED_AHEAD: Final = 120_000
"""Messages that W3 finds, for each second of its run."""
PACE: Final = 500
CONSUMERS: Final = 16
_PATIENCE_S: Final = 10.0


def check(status: int, wanted: int, body: bytes) -> None:
    """Give up where the answer is another one."""
    if status != wanted:
        raise SystemExit(f"answered {status} instead of {wanted}: {body[:300]!r}")


class Pushing:
    """Pushes of `size` messages each, one partition after the other, without end."""

    def __init__(self, connections: int, size: int) -> None:
        self.connections = connections
        self.messages = 0
        self._size = size
        self._requests = traffic.pushes(size)
        self._turns = count()

    def next(self, connection: int, status: int, body: bytes, took: float) -> bytes | None:
        """See `Work`."""
        if status:
            check(status, 201, body)
            self.messages += self._size
        return self._requests[next(self._turns) % traffic.PARTITIONS]


class Consuming:
    """Pops of up to `size` messages, all of them acknowledged in one batch. Done when there are no more, or waits."""

    def __init__(self, connections: int, size: int, *, wait: bool = False) -> None:
        self.connections = connections
        self.messages = 0
        self._pop = traffic.get(f"{traffic.POP}?batch={size}{'&wait=true&timeout=30000' if wait else ''}")
        self._wait = wait
        self._taken = [0] * connections

    def next(self, connection: int, status: int, body: bytes, took: float) -> bytes | None:
        """See `Work`."""
        if self._taken[connection]:
            check(status, 200, body)
            done = traffic.completed(body)
            if done != self._taken[connection]:
                raise SystemExit(f"{done} of {self._taken[connection]} acknowledged: {body[:300]!r}")
            self._taken[connection] = 0
            self.messages += done
            return self._pop
        if status == 204:
            return self._pop if self._wait else None
        if not status:
            return self._pop
        check(status, 200, body)
        self._taken[connection] = len(traffic.transactions(body))
        return traffic.acknowledgement(body)


class Both:
    """Pushing and consuming side by side, both as fast as they can; what counts is what has gone all the way."""

    def __init__(self, pushing: Pushing, consuming: Consuming) -> None:
        self.connections = pushing.connections + consuming.connections
        self._pushing = pushing
        self._consuming = consuming

    @property
    def messages(self) -> int:
        """What was acknowledged."""
        return self._consuming.messages

    @messages.setter
    def messages(self, number: int) -> None:
        self._consuming.messages = self._pushing.messages = number

    @property
    def pushed(self) -> int:
        """What was pushed, which may be ahead of that."""
        return self._pushing.messages

    def next(self, connection: int, status: int, body: bytes, took: float) -> bytes | None:
        """See `Work`."""
        if connection < self._pushing.connections:
            return self._pushing.next(connection, status, body, took)
        return self._consuming.next(connection - self._pushing.connections, status, body, took)


class Rounds:
    """One client: push a message, pop it, acknowledge it."""

    def __init__(self) -> None:
        self.connections = 1
        self.messages = 0
        self.latencies: list[float] = []
        self._push = traffic.push([traffic.item("p0")])
        self._pop = traffic.get(traffic.POP)
        self._stage = 0
        self._round_s = 0.0

    def next(self, connection: int, status: int, body: bytes, took: float) -> bytes | None:
        """See `Work`."""
        stage, self._stage = self._stage, self._stage % 3 + 1
        self._round_s += took
        if stage == 1:
            check(status, 201, body)
            return self._pop
        if stage == 2:
            check(status, 200, body)
            return traffic.acknowledgement_of_one(body)
        if stage == 3:
            check(status, 200, body)
            self.messages += traffic.completed(body)
            self.latencies.append(self._round_s)
            self._round_s = 0.0
        return self._push


class Paced:
    """W5: a push every 1/`PACE` s, whatever the server does, and consumers that wait in long polls.

    A message's latency runs from the moment at which its push is due, so that a late generator or a stalled server is
    seen, to the arrival of the answer that delivers it.
    """

    def __init__(self, port: int, seen: Seen) -> None:
        self._seen = seen
        self._loop = Loop(port, self._arrived)
        self._pop = traffic.get(f"{traffic.POP}?batch=10&wait=true&timeout=30000")
        self._due: list[float] = []
        self._idle: list[Connection] = []
        self._pushing: set[Connection] = set()
        self.delivered = 0
        for _ in range(CONSUMERS):
            self._loop.send(self._loop.connect(), self._pop)

    def run(self, seconds: float) -> None:
        """Push for so many seconds."""
        began = now()
        for turn in range(int(seconds * PACE)):
            due = began + turn / PACE
            while (left := due - now()) > 0:
                self._loop.turn(left)
            connection = self._idle.pop() if self._idle else self._loop.connect()
            mark = len(self._due)
            self._due.append(due)
            self._pushing.add(connection)
            place = f"p{mark % traffic.PARTITIONS}"
            self._loop.send(connection, traffic.push([traffic.item(place, traffic.payload(mark))]))
            self._loop.turn(0)

    def settle(self) -> None:
        """Wait until all that was pushed has been delivered and acknowledged."""
        end = now() + _PATIENCE_S
        while self.delivered < len(self._due) and now() < end:
            self._loop.turn(0.1)
        if self.delivered != len(self._due):
            raise SystemExit(f"{len(self._due) - self.delivered} messages were not delivered")

    def close(self) -> None:
        """Close all connections."""
        self._loop.close()

    def _arrived(self, connection: Connection, status: int, body: bytes) -> None:
        if connection in self._pushing:
            check(status, 201, body)
            self._pushing.discard(connection)
            self._idle.append(connection)
        elif body.startswith(b'{"messages"'):
            at = now()
            marks = traffic.marks(body)
            self._seen.latencies.extend(at - self._due[mark] for mark in marks)
            self.delivered += len(marks)
            self._loop.send(connection, traffic.acknowledgement(body))
        else:
            if status not in (200, 204):
                check(status, 200, body)
            self._loop.send(connection, self._pop)


def paced(port: int, seconds: float, warm_up: float, watched: int) -> dict[str, Any]:
    """W5."""
    seen = Seen(watched)
    work = Paced(port, seen)
    work.run(warm_up)
    work.settle()
    before = work.delivered
    seen.begin()
    work.run(seconds)
    work.settle()
    figures = seen.end(work.delivered - before)
    work.close()
    return figures


def rounds(port: int, seconds: float, warm_up: float, watched: int) -> dict[str, Any]:
    """W7; its latencies are those of whole rounds."""
    work = Rounds()
    figures = drive(port, work, seconds, warm_up, watched)
    return figures | percentiles_ms(work.latencies[-work.messages :])


def side_by_side(port: int, seconds: float, warm_up: float, watched: int) -> dict[str, Any]:
    """W4."""
    work = Both(Pushing(8, 10), Consuming(8, 10, wait=True))
    figures = drive(port, work, seconds, warm_up, watched)
    return figures | {"pushed_per_s": work.pushed / figures["seconds"]}


def consume(port: int, seconds: float, warm_up: float, watched: int) -> dict[str, Any]:
    """W3, whose messages have been pushed before."""
    return drive(port, Consuming(16, 100), seconds, warm_up, watched)


def _closed(make: Callable[[], Work]) -> Callable[[int, float, float, int], dict[str, Any]]:
    return lambda port, seconds, warm_up, watched: drive(port, make(), seconds, warm_up, watched)


WORKS: Final[dict[str, Callable[[int, float, float, int], dict[str, Any]]]] = {
    "W1": _closed(lambda: Pushing(64, 1)),
    "W2": _closed(lambda: Pushing(16, 100)),
    "W3": consume,
    "W4": side_by_side,
    "W5": paced,
    "W7": rounds,
}

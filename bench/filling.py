"""Filling a store as fast as it goes: 1,000 messages a request, several connections."""

from collections.abc import Callable
from typing import Any, Final

from bench import traffic
from bench.driver import drive
from bench.works import check

_SIZE: Final = 1000
_CONNECTIONS: Final = 4
_SAMPLES: Final = 200


def _backlog() -> Callable[[int], bytes]:
    """The messages of one request to one of 100 partitions."""
    requests = traffic.pushes(_SIZE)
    return lambda turn: requests[turn % traffic.PARTITIONS]


def _named() -> Callable[[int], bytes]:
    """The same, but each message has a transactionId of its sender's."""

    def request(turn: int) -> bytes:
        place = b'"queue":"bench","partition":"p%d","payload":%s' % (turn % traffic.PARTITIONS, traffic.payload())
        numbers = range(turn * _SIZE, (turn + 1) * _SIZE)
        return traffic.push([b'{"transactionId":"order-%d",%s}' % (number, place) for number in numbers])

    return request


def _partitions() -> Callable[[int], bytes]:
    """Each message to a partition of its own, p0 and up."""
    return lambda turn: traffic.push([traffic.item(f"p{number}") for number in range(turn * _SIZE, (turn + 1) * _SIZE)])


def _mixed() -> Callable[[int], bytes]:
    """The messages of one request to one of 50 partitions of one of 20 queues."""
    return lambda turn: traffic.push([traffic.item(f"p{turn // 20 % 50}", queue=f"queue-{turn % 20}")] * _SIZE)


KINDS: Final = {"backlog": _backlog, "named": _named, "partitions": _partitions, "mixed": _mixed}


class Filling:
    """Pushes until there are so many messages; keeps some of the transactionIds."""

    def __init__(self, messages: int, request: Callable[[int], bytes]) -> None:
        self.connections = _CONNECTIONS
        self.messages = 0
        self.sample: list[str] = []
        self._request = request
        turns = max(1, messages // _SIZE)
        self._turns = iter(range(turns))
        self._every = max(1, turns // _SAMPLES)

    def next(self, connection: int, status: int, body: bytes, took: float) -> bytes | None:
        """See `Work`."""
        if status:
            check(status, 201, body)
            self.messages += _SIZE
            answers = self.messages // _SIZE
            if answers % self._every == 0:
                self.sample.append(traffic.transactions(body)[answers % _SIZE].decode())
        turn = next(self._turns, None)
        return None if turn is None else self._request(turn)


def fill(port: int, kind: str, messages: int) -> dict[str, Any]:
    """Fill; the figures, and as `sample` the transactionIds of some of the messages."""
    work = Filling(messages, KINDS[kind]())
    return drive(port, work, seconds=7200) | {"sample": work.sample}

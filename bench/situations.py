"""The situations of "Size": each fills a fresh store, looks at the server, and returns its figures."""

import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from bench import traffic
from bench.asking import Asking, asked, slowest, times_of
from bench.driver import Connection, Loop, now, percentiles_ms
from bench.mixed import mixed
from bench.served import Queen, child, queen
from bench.works import check

_ASKED: Final = 300
_SETTLED_S: Final = 3.0
"""After a fill, until the projections have been written and garbage is gone."""
ROUTES: Final = (
    "/metrics",
    "/metrics/prometheus",
    "/health",
    "/api/v1/resources/overview",
    "/api/v1/resources/queues",
    "/api/v1/resources/namespaces",
    "/api/v1/resources/tasks",
    "/api/v1/analytics/queue-lag",
    "/api/v1/analytics/throughput",
)
BY_PARTITION: Final = (
    "/api/v1/resources/queues/bench",
    "/api/v1/resources/partitions",
    "/api/v1/resources/partitions?queue=bench",
    "/api/v1/analytics",
    "/api/v1/analytics/queues",
    "/api/v1/analytics/queue/bench",
    "/api/v1/analytics/queue-depths",
    "/api/v1/analytics/queue-stats?queue=bench",
)
"""Answers that list partitions, and grow with them; asked where there are few."""


def idle(folder: Path, scale: float) -> dict[str, Any]:
    """A server on a fresh store."""
    with queen(folder) as server:
        time.sleep(_SETTLED_S)
        memory = server.memory_mb()
        server.stop()
        return {"memory_mb": memory, "start_s": server.start()}


def backlog(folder: Path, scale: float) -> dict[str, Any]:
    """10 million messages in 100 partitions."""
    messages, few = int(10_000_000 * scale), 10_000
    with queen(folder) as server:
        _fill(server, "backlog", few)
        found: dict[str, Any] = {"messages": messages, "pop_few": _pops(server)}
        filled = _fill(server, "backlog", messages - few)
        found["filled_per_s"] = filled["messages_per_s"]
        time.sleep(_SETTLED_S)
        found["memory_mb"] = server.memory_mb()
        found["disk_mb"] = server.disk_mb()
        found["disk_over_payload"] = server.disk_mb() * 1e6 / (messages * traffic.PAYLOAD_BYTES)
        found["pop_many"] = _pops(server)
        found["pop_ratio"] = found["pop_many"]["p50_ms"] / found["pop_few"]["p50_ms"]
        found["by_transaction"] = asked(server, _messages(filled["sample"]))
        found["routes"] = times_of(server, ROUTES + BY_PARTITION)
        found["slowest_route"] = slowest(found["routes"])
        found["restarts"] = _restarts(server, lambda: _fill(server, "backlog", int(200_000 * scale)))
        found["memory_after_restart_mb"] = server.memory_mb()
    return found


def named(folder: Path, scale: float) -> dict[str, Any]:
    """A million messages whose senders gave them transactionIds, which the store must find again one by one."""
    messages = int(1_000_000 * scale)
    with queen(folder) as server:
        filled = _fill(server, "named", messages)
        time.sleep(_SETTLED_S)
        return {
            "messages": messages,
            "filled_per_s": filled["messages_per_s"],
            "memory_mb": server.memory_mb(),
            "disk_over_payload": server.disk_mb() * 1e6 / (messages * traffic.PAYLOAD_BYTES),
            "by_transaction": asked(server, _messages(filled["sample"])),
        }


def partitions(folder: Path, scale: float) -> dict[str, Any]:
    """A million partitions with one message each."""
    number = int(1_000_000 * scale)
    chance = random.Random(number)
    with queen(folder) as server:
        filled = _fill(server, "partitions", number)
        found: dict[str, Any] = {"partitions": number, "filled_per_s": filled["messages_per_s"]}
        found["memory_at_once_mb"] = server.memory_mb()
        time.sleep(_SETTLED_S)
        found["memory_mb"] = server.memory_mb()
        found["disk_mb"] = server.disk_mb()
        chosen = chance.sample(range(10, number), 2 * _ASKED)  # the first ones are popped by restarts
        found["pop"] = asked(server, _partition_pops(chosen[:_ASKED]))
        found["routes"] = times_of(server, ROUTES)
        found["slowest_route"] = slowest(found["routes"])
        found["restarts"] = _restarts(server, lambda: None)
        found["memory_after_restart_mb"] = server.memory_mb()
        found["pop_after_restart"] = asked(server, _partition_pops(chosen[_ASKED:]))
    return found


def polls(folder: Path, scale: float) -> dict[str, Any]:
    """10,000 idle long polls, each on a partition of its own; pushes to some of them."""
    number = max(100, int(10_000 * scale))
    with queen(folder) as server:
        waiting = _Polls(server.port)
        began = now()
        for partition in range(number):
            waiting.poll(partition)
        found: dict[str, Any] = {"polls": number, "opened_s": now() - began}
        waiting.let_pass(_SETTLED_S)
        found["memory_mb"] = server.memory_mb()
        chosen = random.Random(number).sample(range(number), min(number, _ASKED))
        found["push_to_poll"] = percentiles_ms([waiting.push(partition) for partition in chosen])
        waiting.close()
    return found


class _Polls:
    """Long polls that wait, and one more connection, for pushes."""

    def __init__(self, port: int) -> None:
        self._loop = Loop(port, self._arrived)
        self._partitions: dict[Connection, int] = {}
        self._pusher = self._loop.connect()
        self._delivered: list[int] = []
        self._pushed: list[int] = []

    def poll(self, partition: int) -> None:
        """Open one more."""
        connection = self._loop.connect()
        self._partitions[connection] = partition
        self._send(connection)
        self._loop.turn(0)

    def let_pass(self, seconds: float) -> None:
        """Do nothing for so many seconds."""
        end = now() + seconds
        while now() < end:
            self._loop.turn(0.1)

    def push(self, partition: int) -> float:
        """Push to a partition that somebody waits for; the seconds until it arrived there."""
        self._delivered.clear()
        self._pushed.clear()
        began = now()
        self._loop.send(self._pusher, traffic.push([traffic.item(f"p{partition}")]))
        while not self._delivered:
            self._loop.turn(1.0)
        took = now() - began
        if self._delivered != [partition]:
            raise SystemExit(f"a push to p{partition} was delivered to who waited for p{self._delivered}")
        while not self._pushed:
            self._loop.turn(1.0)
        return took

    def close(self) -> None:
        """Close all."""
        self._loop.close()

    def _send(self, connection: Connection) -> None:
        path = f"{traffic.POP}/partition/p{self._partitions[connection]}?wait=true&timeout=60000"
        self._loop.send(connection, traffic.get(path))

    def _arrived(self, connection: Connection, status: int, body: bytes) -> None:
        if connection is self._pusher:
            check(status, 201, body)
            self._pushed.append(status)
        elif status == 204:
            self._send(connection)  # it has waited in vain for a minute
        else:
            check(status, 200, body)
            self._delivered.append(self._partitions[connection])


SITUATIONS: Final[dict[str, Callable[[Path, float], dict[str, Any]]]] = {
    "idle": idle,
    "backlog": backlog,
    "named": named,
    "partitions": partitions,
    "polls": polls,
    "mixed": mixed,
}


def _fill(server: Queen, kind: str, messages: int) -> dict[str, Any]:
    return child("bench.generate", "fill", str(server.port), kind, str(messages))


def _pops(server: Queen) -> dict[str, float | None]:
    """Times of single pops, each message acknowledged before the next; the processor time is that of either."""
    pop = traffic.get(traffic.POP)
    work = Asking()

    def requests() -> Iterator[bytes]:
        for _ in range(_ASKED):
            yield pop
            yield traffic.acknowledgement_of_one(work.body)

    work.requests = requests()
    both = work.run(server)
    return percentiles_ms(work.took[::2]) | {"cpu_ms": both["cpu_ms"]}


def _partition_pops(numbers: Iterable[int]) -> Iterator[bytes]:
    return (traffic.get(f"{traffic.POP}/partition/p{number}") for number in numbers)


def _messages(transactions: Iterable[str]) -> Iterator[bytes]:
    return (traffic.get(f"/api/v1/messages/{transaction}") for transaction in transactions)


def _restarts(server: Queen, before_kill: Callable[[], object]) -> dict[str, dict[str, float]]:
    """Stop and start it, cleanly and by SIGKILL: the seconds until it is ready, and until a pop brings something."""
    found = {}
    for name, how in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
        if how == signal.SIGKILL:
            before_kill()
        stopped = server.stop(how)
        began = now()
        ready = server.start()
        server.await_answer(traffic.get(f"{traffic.POP}?autoAck=true"))
        found[name] = {"stop_s": stopped, "ready_s": ready, "pop_s": now() - began}
    return found

"""A store such as one that has been used: a million messages in 1,000 partitions of 20 queues, in every status.

Of each partition 40 messages are completed, 5 have failed and 5 are dead letters; what is left of every second one is
leased, so that lists by status have to get past large blocks of other statuses to find theirs.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench import traffic
from bench.asking import Asking, asked, times_of
from bench.served import Queen, child, queen

QUEUES: Final = 20
PARTITIONS: Final = 50
_STATUSES: Final = ("pending", "processing", "completed", "failed", "dead_letter")
_OUTCOMES: Final = ("completed",) * 40 + ("failed",) * 5 + ("dead_letter",) * 5
_ROUTES: Final = (
    "/metrics",
    "/metrics/prometheus",
    "/api/v1/resources/overview",
    "/api/v1/resources/queues",
    "/api/v1/resources/queues/queue-7",
    "/api/v1/resources/partitions",
    "/api/v1/resources/partitions?queue=queue-7",
    "/api/v1/resources/namespaces",
    "/api/v1/resources/tasks",
    "/api/v1/analytics?namespace=shop",
    "/api/v1/analytics/queues",
    "/api/v1/analytics/queue/queue-7",
    "/api/v1/analytics/queue-depths",
    "/api/v1/analytics/queue-lag",
    "/api/v1/analytics/queue-stats?queue=queue-7",
    "/api/v1/analytics/throughput",
    "/api/v1/consumer-groups",
    "/api/v1/consumer-groups?queue=queue-7",
    "/api/v1/dlq",
    "/api/v1/dlq?queue=queue-7",
    "/api/v1/messages",
    "/api/v1/messages?queue=queue-7",
    "/api/v1/messages?queue=queue-7&partition=p1",
    "/api/v1/messages?queue=queue-7&partition=p0&status=completed",
    *(f"/api/v1/messages?status={status}" for status in _STATUSES),
    *(f"/api/v1/messages?queue=queue-7&status={status}" for status in _STATUSES),
)


def mixed(folder: Path, scale: float) -> dict[str, Any]:
    """See the module."""
    messages = int(1_000_000 * scale)
    with queen(folder) as server:
        asked(server, _configurations())
        filled = child("bench.generate", "fill", str(server.port), "mixed", str(messages))
        _settle(server)
        named = _of_messages(server)
        found: dict[str, Any] = {"messages": messages, "filled_per_s": filled["messages_per_s"]}
        found["running"] = {"routes": times_of(server, _ROUTES, named), "memory_mb": server.memory_mb()}
        server.stop(signal.SIGKILL)
        found["ready_s"] = server.start()
        found["restarted"] = {"routes": times_of(server, _ROUTES, named), "memory_mb": server.memory_mb()}
    return found


def _configurations() -> Iterator[bytes]:
    """What fails has failed for good, and leases outlast the measurement."""
    options = b'"options":{"retryLimit":0,"leaseTime":86400}'
    for queue in range(QUEUES):
        yield traffic.post("/api/v1/configure", b'{"queue":"queue-%d","namespace":"shop",%s}' % (queue, options))


def _settle(server: Queen) -> None:
    """Give each partition its messages of every status."""
    work = Asking()

    def requests() -> Iterator[bytes]:
        for number in range(QUEUES * PARTITIONS):
            path = f"/api/v1/pop/queue/queue-{number % QUEUES}/partition/p{number // QUEUES}"
            yield traffic.get(f"{path}?batch={len(_OUTCOMES)}")
            if work.body:  # a small fill leaves partitions empty
                yield traffic.settlement(traffic.transactions(work.body), _OUTCOMES)
            if number // QUEUES % 2 == 0:
                yield traffic.get(f"{path}?batch=1000")
        for queue in range(QUEUES):
            yield traffic.get(f"/api/v1/pop/queue/queue-{queue}?consumerGroup=billing")

    work.requests = requests()
    work.run(server)


def _of_messages(server: Queen) -> dict[str, str]:
    """Routes that name a message, for one message of each status."""
    routes = {}
    for status in _STATUSES:
        work = Asking([traffic.get(f"/api/v1/messages?limit=1&status={status}")])
        work.run(server)
        for name in traffic.transactions(work.body):
            routes[f"/api/v1/messages/:id ({status})"] = f"/api/v1/messages/{name.decode()}"
            routes["/api/v1/messages/:id/related"] = f"/api/v1/messages/{name.decode()}/related"
    return routes

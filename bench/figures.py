"""Statistics with a million messages in 1,000 partitions of 20 queues: each route's time, and memory.

python bench/figures.py [--messages 1000000] [--json FILE] [--folder DIR]

A fifth of the messages is consumed beforehand, in every partition, so that there are lags to speak of.
"""

import argparse
import json
import re
import signal
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from driver import drive, get, post
from served import Served, served

QUEUES, PARTITIONS = 20, 50
ROUNDS = 20
_FOUND = re.compile(rb'"transactionId": *"([^"]*)"')
ROUTES = (
    "/api/v1/analytics/queue/queue-7",
    "/api/v1/analytics/queues",
    "/api/v1/analytics/queue-depths",
    "/api/v1/analytics/throughput",
    "/api/v1/analytics/queue-lag",
    "/api/v1/analytics/queue-stats?queue=queue-7",
    "/api/v1/analytics?namespace=shop",
    "/api/v1/resources/queues",
    "/api/v1/resources/queues/queue-7",
    "/api/v1/resources/partitions",
    "/api/v1/resources/partitions?queue=queue-7",
    "/api/v1/resources/namespaces",
    "/api/v1/resources/tasks",
    "/api/v1/resources/overview",
)


def fill(server: Served, messages: int) -> None:
    """Push them, 1,000 to one partition at a time; a small fill leaves partitions empty."""
    turns = count()

    def following(connection: int, status: int, body: bytes) -> bytes | None:
        if status not in (0, 201):
            raise SystemExit(f"answered {status}: {body[:300]!r}")
        turn = next(turns)
        if turn * 1000 >= messages:
            return None
        queue, partition = turn % QUEUES, turn // QUEUES % PARTITIONS
        place = b'"queue":"queue-%d","partition":"p%d","namespace":"shop","task":"t%d"' % (queue, partition, queue % 4)
        item = b'{%s,"payload":"%s"}' % (place, b"x" * 254)
        return post("/api/v1/push", b'{"items":[%s]}' % b",".join([item] * min(1000, messages - turn * 1000)))

    drive(server.port, 4, following, seconds=3600)


def consume(server: Served) -> None:
    """Complete 200 messages of every partition, in four deliveries."""
    places = iter([place for _ in range(4) for place in range(QUEUES * PARTITIONS)])

    def following(connection: int, status: int, body: bytes) -> bytes | None:
        if body.startswith(b'{"messages"'):
            entries = [b'{"transactionId":"%s","status":"completed"}' % name for name in _FOUND.findall(body)]
            return post("/api/v1/ack/batch", b'{"acknowledgments":[%s]}' % b",".join(entries))
        place = next(places, None)
        if place is None:
            return None
        path = f"/api/v1/pop/queue/queue-{place % QUEUES}/partition/p{place // QUEUES}?batch=50"
        return get(path)

    drive(server.port, 4, following, seconds=3600)


def ask(server: Served, routes: Iterable[str] = ROUTES) -> dict[str, dict[str, float]]:
    """For each route the time of the first request, the median and the longest of the others, the mean of the server's
    processor time, and the answer's size."""
    found = {}
    for route in routes:
        rounds = iter(range(ROUNDS))
        size = 0

        def following(
            connection: int, status: int, body: bytes, route: str = route, rounds: Any = rounds
        ) -> bytes | None:
            nonlocal size
            if status not in (0, 200):
                raise SystemExit(f"{route} answered {status}: {body[:300]!r}")
            size = len(body)
            return None if next(rounds, None) is None else get(route)

        cpu = server.cpu_s()
        tally = drive(server.port, 1, following, seconds=3600)
        cpu = server.cpu_s() - cpu
        first, *others = [1000 * latency for latency in tally.latencies_s]
        others.sort()
        found[route] = {
            "first_ms": round(first, 2),
            "median_ms": round(others[len(others) // 2], 2),
            "longest_ms": round(others[-1], 2),
            "cpu_ms": round(1000 * cpu / len(tally.latencies_s), 1),
            "kb": round(size / 1000, 1),
        }
    return found


def measure(server: Served, messages: int) -> dict[str, Any]:
    report: dict[str, Any] = {"messages": messages}
    began = time.perf_counter()
    fill(server, messages)
    report["filled_s"] = round(time.perf_counter() - began, 1)
    consume(server)
    report["consumed_s"] = round(time.perf_counter() - began, 1)
    report["running"] = {"routes": ask(server), "memory_mb": server.memory_mb()}
    server.stop(signal.SIGKILL)
    report["start_s"] = round(server.start(), 2)
    report["restarted"] = {"routes": ask(server), "memory_mb": server.memory_mb()}
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="whose disk is measured; default: here")
    options = parser.parse_args()
    with served(options.folder) as server:
        report = measure(server, options.messages)
    for when in ("running", "restarted"):
        for route, times in report[when]["routes"].items():
            print(f"{when:10}{route:46}", "  ".join(f"{name} {value}" for name, value in times.items()))
        print(f"{when:10}memory", {name: round(size) for name, size in report[when]["memory_mb"].items()})
    print({name: value for name, value in report.items() if name not in ("running", "restarted")})
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

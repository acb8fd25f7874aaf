"""First pages of lists, single messages, groups and metrics with a million messages in 1,000 partitions of 20 queues.

python bench/lists.py [--messages 1000000] [--json FILE] [--folder DIR]

Of every partition 40 messages are completed, 5 have failed and 5 are dead letters; what is left of every second
partition is leased, so that the lists by status have to get past large blocks of other statuses to find theirs.
"""

import argparse
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from driver import drive, get, post
from figures import PARTITIONS, QUEUES, ask, fill
from served import Served, served

STATUSES = ("pending", "processing", "completed", "failed", "dead_letter")
_FOUND = re.compile(rb'"transactionId": *"([^"]*)"')
_POP = "/api/v1/pop/queue/queue-{}/partition/p{}?batch={}"
_OUTCOMES = [b"completed"] * 40 + [b"failed"] * 5 + [b"dead_letter"] * 5


def configure(server: Served) -> None:
    """The queues, before anything is in them: what fails has failed for good, and leases outlast the measurement."""
    bodies = iter(
        [
            b'{"queue":"queue-%d","namespace":"shop","options":{"retryLimit":0,"leaseTime":86400}}' % queue
            for queue in range(QUEUES)
        ]
    )
    _each(server, (post("/api/v1/configure", body) for body in bodies))


def settle(server: Served) -> None:
    """Give each partition its messages of every status."""
    places = iter([(place % QUEUES, place // QUEUES) for place in range(QUEUES * PARTITIONS)])

    def following(connection: int, status: int, body: bytes) -> bytes | None:
        if body.startswith(b'{"messages"'):
            entries = [
                b'{"transactionId":"%s","status":"%s"}' % (name, outcome)
                for name, outcome in zip(_FOUND.findall(body), _OUTCOMES, strict=False)
            ]
            return post("/api/v1/ack/batch", b'{"acknowledgments":[%s]}' % b",".join(entries))
        place = next(places, None)
        return None if place is None else get(_POP.format(*place, 50))

    drive(server.port, 4, following, seconds=3600)
    blocks = ((queue, part) for queue in range(QUEUES) for part in range(0, PARTITIONS, 2))
    _each(server, (get(_POP.format(*place, 1000)) for place in blocks))
    _each(server, (get(f"/api/v1/pop/queue/queue-{queue}?consumerGroup=billing") for queue in range(QUEUES)))


def _each(server: Served, requests: Iterator[bytes]) -> None:
    def following(connection: int, status: int, body: bytes) -> bytes | None:
        if status >= 400:
            raise SystemExit(f"answered {status}: {body[:300]!r}")
        return next(requests, None)

    drive(server.port, 1, following, seconds=3600)


def routes(server: Served) -> list[str]:
    """What is asked for; the messages are one of each status."""
    names = []

    def following(connection: int, status: int, body: bytes) -> bytes | None:
        names.extend(_FOUND.findall(body)[:1])
        return None if len(names) == len(STATUSES) else get(f"/api/v1/messages?limit=1&status={STATUSES[len(names)]}")

    drive(server.port, 1, following, seconds=60)
    return [
        "/api/v1/messages",
        "/api/v1/messages?queue=queue-7",
        "/api/v1/messages?queue=queue-7&partition=p1",
        *[f"/api/v1/messages?status={status}" for status in STATUSES],
        *[f"/api/v1/messages?queue=queue-7&status={status}" for status in STATUSES],
        "/api/v1/messages?queue=queue-7&partition=p0&status=completed",
        *[f"/api/v1/messages/{name.decode()}" for name in names],
        f"/api/v1/messages/{names[2].decode()}/related",
        "/api/v1/dlq",
        "/api/v1/dlq?queue=queue-7",
        "/api/v1/consumer-groups",
        "/api/v1/consumer-groups?queue=queue-7",
        "/metrics",
        "/metrics/prometheus",
        "/health",
    ]


def measure(server: Served, messages: int) -> dict[str, Any]:
    configure(server)
    fill(server, messages)
    settle(server)
    asked = routes(server)
    report: dict[str, Any] = {"running": {"routes": ask(server, asked), "memory_mb": server.memory_mb()}}
    server.stop(signal.SIGKILL)
    server.start()
    report["restarted"] = {"routes": ask(server, asked), "memory_mb": server.memory_mb()}
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="whose disk is measured; default: here")
    options = parser.parse_args()
    with served(options.folder) as server:
        report = measure(server, options.messages)
    for when, found in report.items():
        for route, times in found["routes"].items():
            print(f"{when:10}{route:70}", "  ".join(f"{name} {value}" for name, value in times.items()))
        print(f"{when:10}memory", {name: round(size) for name, size in found["memory_mb"].items()})
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()

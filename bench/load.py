"""Push, batch push, and consumption under load, each against a server of its own on a fresh store.

python bench/load.py [single] [batch] [consume] [--seconds 10] [--json FILE] [--folder DIR] [-- server options]
"""

import argparse
import json
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

from driver import Tally, drive, get, post, push_request
from served import Served, served

PARTITIONS = 100
WARM_UP_S = 1.0
_FOUND = re.compile(rb'"(transactionId|leaseId)": *"([^"]*)"')


def single(server: Served, seconds: float) -> dict[str, Any]:
    """64 connections, one message of 256 bytes a request."""
    return _pushes(server, seconds, connections=64, messages=1)


def batch(server: Served, seconds: float) -> dict[str, Any]:
    """16 connections, 100 messages a request, each request to one of 100 partitions."""
    return _pushes(server, seconds, connections=16, messages=100)


def consume(server: Served, seconds: float) -> dict[str, Any]:
    """16 consumers: pop 100, acknowledge them in one batch. Pushed beforehand; an empty queue ends it early."""
    fill(server, int((WARM_UP_S + seconds) * 60_000))
    pop = get("/api/v1/pop/queue/bench?batch=100")
    done = 0
    before = 0.0

    def started() -> None:
        nonlocal before, done
        before, done = server.cpu_s(), 0

    def following(connection: int, status: int, body: bytes) -> bytes | None:
        nonlocal done
        if status == 204:
            return None
        if body.startswith(b'{"messages"'):
            return _acknowledgement(body)
        if status == 200:
            done += body.count(b'"completed"')
        elif status:
            raise SystemExit(f"answered {status}: {body[:300]!r}")
        return pop

    tally = drive(server.port, 16, following, seconds, WARM_UP_S, started)
    return _figures(server, tally, done, before)


def fill(server: Served, messages: int) -> None:
    """Push so many messages, spread over all partitions."""
    requests = [push_request(partition, 1000) for partition in range(PARTITIONS)]
    turns = count()

    def following(connection: int, status: int, body: bytes) -> bytes | None:
        if status not in (0, 201):
            raise SystemExit(f"answered {status}: {body[:300]!r}")
        turn = next(turns)
        return requests[turn % PARTITIONS] if turn * 1000 < messages else None

    drive(server.port, 4, following, seconds=3600)


def _pushes(server: Served, seconds: float, connections: int, messages: int) -> dict[str, Any]:
    requests = [push_request(partition, messages) for partition in range(PARTITIONS)]
    turns = count()
    before = 0.0

    def started() -> None:
        nonlocal before
        before = server.cpu_s()

    def following(connection: int, status: int, body: bytes) -> bytes | None:
        if status not in (0, 201):
            raise SystemExit(f"answered {status}: {body[:300]!r}")
        return requests[next(turns) % PARTITIONS]

    tally = drive(server.port, connections, following, seconds, WARM_UP_S, started)
    return _figures(server, tally, tally.statuses.get(201, 0) * messages, before)


def _acknowledgement(popped: bytes) -> bytes:
    """Complete all that a pop brought, without decoding it: ids are picked out in the order in which they stand."""
    transactions = []
    lease = b""
    for name, value in _FOUND.findall(popped):
        if name == b"leaseId":
            lease = value
        else:
            transactions.append(value)
    entries = (b'{"transactionId":"%s","status":"completed","leaseId":"%s"}' % (tx, lease) for tx in transactions)
    return post("/api/v1/ack/batch", b'{"acknowledgments":[%s]}' % b",".join(entries))


def _figures(server: Served, tally: Tally, messages: int, cpu_before: float) -> dict[str, Any]:
    return {
        "messages_per_s": round(messages / tally.seconds),
        "requests_per_s": round(len(tally.latencies_s) / tally.seconds),
        "p50_ms": round(tally.latency_ms(0.5), 2),
        "p99_ms": round(tally.latency_ms(0.99), 2),
        "server_cpu_cores": round((server.cpu_s() - cpu_before) / tally.seconds, 2),
        "generator_cpu_cores": round(tally.cpu_s / tally.seconds, 2),
        "seconds": round(tally.seconds, 1),
        "server_rss_mb": round(server.memory_mb()["VmRSS"]),
    }


WORK = {"single": single, "batch": batch, "consume": consume}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", metavar="single|batch|consume", help="what to measure; default: all")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="whose disk is measured; default: here")
    own, theirs = sys.argv[1:], []
    if "--" in own:
        own, theirs = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    if unknown := set(options.work) - set(WORK):
        parser.error(f"unknown: {', '.join(unknown)}")
    report: dict[str, dict[str, Any]] = {}
    for name in options.work or WORK:
        with served(options.folder, *theirs) as server:
            report[name] = WORK[name](server, options.seconds)
        print(f"{name:8}", "  ".join(f"{figure} {value}" for figure, value in report[name].items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

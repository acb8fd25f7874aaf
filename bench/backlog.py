"""A backlog: what a million waiting messages cost in memory and on disk, and how long a restart takes on top of them.

python bench/backlog.py [--messages 1000000] [--json FILE] [--folder DIR]
"""

import argparse
import json
import signal
import time
from pathlib import Path
from typing import Any

from driver import drive, get
from load import PARTITIONS, fill
from served import Served, served


def measure(server: Served, messages: int) -> dict[str, Any]:
    report: dict[str, Any] = {"messages": messages, "partitions": PARTITIONS, "empty": server.memory_mb()}
    began = time.perf_counter()
    fill(server, messages)
    report["filled_in_s"] = time.perf_counter() - began
    report["filled"] = server.memory_mb()
    report["grown_mb"] = report["filled"]["VmRSS"] - report["empty"]["VmRSS"]
    report["disk_mb"] = server.disk_mb()
    for name, how in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
        report[f"{name}_stop_s"] = server.stop(how)
        report[f"{name}_start_s"] = server.start()
        report[f"{name}_first_pop_ms"] = _pop_ms(server)
        report[f"{name}_memory"] = server.memory_mb()
    return report


def _pop_ms(server: Served) -> float:
    """The time of one pop; a queue that is empty here has lost its messages."""

    def following(connection: int, status: int, body: bytes) -> bytes | None:
        if status not in (0, 200):
            raise SystemExit(f"the first pop after a restart answered {status}: {body[:300]!r}")
        return None if status else get("/api/v1/pop/queue/bench?batch=10")

    return drive(server.port, 1, following, seconds=60).latency_ms(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="whose disk is measured; default: here")
    options = parser.parse_args()
    with served(options.folder) as server:
        report = measure(server, options.messages)
    text = json.dumps(report, indent=2, default=str)
    print(json.dumps(json.loads(text, parse_float=lambda number: round(float(number), 2)), indent=2))
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

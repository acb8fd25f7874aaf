"""W6: Queen as a library. `python -m bench.embedded FOLDER SECONDS WARM_UP` prints its figures as JSON.

64 tasks push one message of 256 bytes at a time, each to a partition of its own, into a real store; nothing else runs.
"""

import gc
import json
import os
import sys

import trio

import queen
from bench.driver import Seen, now
from bench.traffic import PAYLOAD_BYTES

TASKS = 64


async def _run(folder: str, seconds: float, warm_up: float) -> None:
    seen = Seen(os.getpid())
    payload = "x" * (PAYLOAD_BYTES - 2)

    async def push(partition: str) -> None:
        latencies = seen.latencies
        while True:
            began = now()
            await broker.push("bench", payload, partition=partition)
            if latencies is not seen.latencies:
                latencies = seen.latencies
            latencies.append(now() - began)

    async with queen.open_broker(folder) as broker, trio.open_nursery() as nursery:
        gc.collect()
        gc.freeze()  # as a program would that has started all it needs
        for number in range(TASKS):
            nursery.start_soon(push, f"p{number}")
        await trio.sleep(warm_up)
        seen.begin()
        await trio.sleep(seconds)
        figures = seen.end(len(seen.latencies))
        nursery.cancel_scope.cancel()
    json.dump(figures, sys.stdout)


def main() -> None:
    """Measure."""
    folder, seconds, warm_up = sys.argv[1:]
    trio.run(_run, folder, float(seconds), float(warm_up))


if __name__ == "__main__":
    main()

"""SIGKILL under full load, again and again, on the real server and store; judged from what its clients saw.

    python -m tests.campaigns.crash            200 kills; about ten minutes
    python -m tests.campaigns.crash --small    4 kills; some seconds

Producers, consumers of two groups, strict and relaxed queues, autoAck, extended and forgotten leases, batches,
transactions, retries: `crash_load`. Kills come at random instants, every fourth while the server is starting. What is
concluded, and why, is in `crash_judge`. Exits with 1 on a violation, or where a start takes longer than it may.
"""

import argparse
import math
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from tests.campaigns.crash_history import History
from tests.campaigns.crash_judge import Judge
from tests.campaigns.crash_load import GROUPS, QUEUES, Load
from tests.campaigns.served import Client, NotReady, Server

STUCK_S: Final = 90.0
"""Without any progress, in the end, so long: what is left is stuck. Many leases' time."""
STRICT: Final = {queue for queue, ordering in QUEUES.items() if ordering == "strict"}


class Scale(NamedTuple):
    kills: int
    producers: int
    life_s: tuple[float, float]
    ready_s: float
    """In which a start must take work again."""


FULL = Scale(kills=200, producers=8, life_s=(0.1, 2.0), ready_s=3.0)
SMALL = Scale(kills=4, producers=3, life_s=(0.1, 0.8), ready_s=30.0)


class Result(NamedTuple):
    """What a campaign saw."""

    history: History
    starts: list[float]
    violations: list[str]


async def campaign(folder: Path, scale: Scale, seed: int) -> Result:
    """Run it in an empty folder."""
    chance = random.Random(seed)
    server = Server(folder)
    starts: list[float] = []
    load = Load(server.port, seed, scale.producers)
    violations = []
    try:
        await server.start()
        async with trio.open_nursery() as nursery:
            await nursery.start(load.run)
            try:
                await _kill_again_and_again(server, load, scale, chance, starts)
            except NotReady as error:
                violations = [f"start: {error}\n{server.words()[-2000:]}"]
            nursery.cancel_scope.cancel()
        if not violations:
            await _look_up(server.port, load.history)
            violations = list(Judge(load.history, STRICT, GROUPS).violations())
    finally:
        await server.end()
    violations += [f"start: ready after {took:.1f} s" for took in starts if took > scale.ready_s]
    violations += [f"logged: {line}" for line in server.words().splitlines() if "Traceback" in line or " 500" in line]
    return Result(load.history, starts, violations)


async def _kill_again_and_again(
    server: Server, load: Load, scale: Scale, chance: random.Random, starts: list[float]
) -> None:
    """Every fourth kill hits a server that is starting. Afterwards everything is consumed in peace."""
    for number in range(scale.kills):
        await trio.sleep(chance.uniform(*scale.life_s))
        await server.end()
        if number % 4 == 2:
            server.spawn()
            await trio.sleep(chance.uniform(0, 1.5 * sorted(starts)[len(starts) // 2]))
        else:
            starts.append(await server.start())
        if number % 20 == 19:
            print(f"... killed {number + 1} times, {len(load.history.pops)} pops", flush=True)
    await server.end()
    await server.start()
    load.pushing, load.calm = False, True
    await _drained(server.port)


async def _drained(port: int) -> None:
    """Wait until nothing is left for anybody. Raises `NotReady` where no more of it gets done."""
    client = Client(port)
    least, since = math.inf, trio.current_time()
    lags: dict[tuple[str, str | None], Any] = {}
    while trio.current_time() - since < STUCK_S:
        _, answer = await client.request("GET", "/api/v1/consumer-groups")
        lags = {
            (place["queue"], group["consumerGroup"]): place["lag"]
            for group in answer["groups"]
            for place in group["queues"]
            if place["lag"]["messages"]
        }
        if not lags:
            # Answers to the last pops and acknowledgements are still to be written down.
            await trio.sleep(1)
            client.close()
            return
        left = sum(lag["messages"] for lag in lags.values())
        if left < least:
            least, since = left, trio.current_time()
        await trio.sleep(0.1)
    raise NotReady(f"messages are left, and nobody gets on with them: {lags}")


async def _look_up(port: int, history: History) -> None:
    """What is stored of pushes without an answer, and what the server counts."""
    client = Client(port)
    known = {item.name for push in history.pushes if push.answers is not None for item in push.items}
    for push in history.pushes:
        if push.answers is None and push.stored is None:
            push.stored = [item.name in known or await _is_stored(client, item.name) for item in push.items]
    for queue in QUEUES:
        _, answer = await client.request("GET", f"/api/v1/analytics/queue/{queue}")
        totals = answer["totals"]
        history.counts[queue] = {name: totals[name] for name in ("pending", "processing", "completed", "total")}
    client.close()


async def _is_stored(client: Client, name: str) -> bool:
    status, _ = await client.request("GET", f"/api/v1/messages/{name}")
    assert status in (200, 404), status
    return status == 200


def _figures(result: Result) -> dict[str, int]:
    history = result.history
    pops = history.pops
    return {
        "pushes answered": sum(push.answers is not None for push in history.pushes),
        "pushes without an answer": sum(push.answers is None for push in history.pushes),
        "messages stored": sum(counts["total"] for counts in history.counts.values()),
        "deliveries": sum(len(pop.messages) for pop in pops),
        "pops without an answer": sum(not pop.answered for pop in pops),
        "acknowledgements answered": sum(ack.results is not None for ack in history.acks),
        "acknowledgements without an answer": sum(ack.results is None for ack in history.acks),
        "transactions": sum(ack.with_push is not None for ack in history.acks),
        "leases extended": sum(extend.answered for extend in history.extends),
        "highest retryCount": max((got.retry_count for pop in pops for got in pop.messages), default=0),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the version of some seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the choices")
    parser.add_argument("--kills", type=int, help="another number of them")
    options = parser.parse_args()
    scale = SMALL if options.small else FULL
    if options.kills:
        scale = scale._replace(kills=options.kills)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="queen-crash-") as folder:
        result = trio.run(campaign, Path(folder), scale, options.seed)
    print(f"{scale.kills:>9,}  kills, {len(result.starts)} starts waited for, seed {options.seed}")
    for name, count in _figures(result).items():
        print(f"{count:>9,}  {name}")
    starts = sorted(result.starts) or [0.0]
    print(f"{starts[len(starts) // 2]:>9.2f}  seconds until a start took work, the longest {starts[-1]:.2f}")
    print(f"{time.monotonic() - began:>9.1f}  seconds")
    for violation in result.violations[:20]:
        print(f"VIOLATION {violation}")
    print(f"{len(result.violations)} violations")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())

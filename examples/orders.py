"""A shop's orders through a server that is killed again and again, with proof that nothing went wrong.

Producers push orders, some of them twice; consumers take them in batches, fail some, and now and then die or oversleep
with a lease in their hands; meanwhile the server is killed (SIGKILL) every few seconds and started again. In the end
the books that all of them kept are judged: every order accepted was completed, unchanged and once; each partition's
orders in their order; no partition in two hands at a time; retries counted right.

    python examples/orders.py            50,000 orders, 500 partitions, 8 producers, 8 consumers
    python examples/orders.py --small    2,000 orders, 40 partitions, 2 + 2; some seconds

Exits with 1 if any promise was broken, or if nothing moves for a while. `shop/judge.py` says what is concluded and why.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from shop import consumer, producer
from shop.judge import judge
from shop.progress import Progress
from shop.server import Server

STUCK_S = 60.0
TELL_EVERY_S = 10.0
SPAWN = get_context("spawn")


class Scale(NamedTuple):
    orders: int
    partitions: int
    producers: int
    consumers: int
    lease_time_s: int
    kill_every_s: tuple[float, float]
    pause_s: float  # of a producer, at most: so that pushes meet the kills as well
    habits: consumer.Habits


FULL = Scale(50_000, 500, 8, 8, 5, (2.0, 5.0), 0.5, consumer.Habits(die=1 / 150, oversleep=1 / 300))
SMALL = Scale(2_000, 40, 2, 2, 2, (0.7, 1.5), 0.2, consumer.Habits(die=1 / 60, oversleep=1 / 100))


class Stuck(Exception):
    """The run can't be finished: the sentence says why."""


class Crew:
    """The processes of one run; a consumer that died on purpose is replaced."""

    def __init__(self, scale: Scale, port: int, books: Path, seed: int) -> None:
        self._scale, self._port, self._books, self._seed = scale, port, books, seed
        self._members: dict[str, BaseProcess] = {}
        self._lives = [0] * scale.consumers

    def start(self) -> None:
        for i in range(self._scale.producers):
            mine = [n for n in range(self._scale.orders) if n % self._scale.partitions % self._scale.producers == i]
            self._spawn(f"producer-{i}", producer.run, mine, self._scale.partitions, self._scale.pause_s)
        for i in range(self._scale.consumers):
            self._spawn(f"consumer-{i}-0", consumer.run, self._scale.habits)

    def tend(self) -> None:
        """Replace the dead, let go of the finished. Raises `Stuck` if one ended that should not have."""
        for name, process in list(self._members.items()):
            if process.exitcode is None:
                continue
            del self._members[name]
            kind, i, *_ = name.split("-")
            if kind == "consumer" and process.exitcode == consumer.DIED:
                self._lives[int(i)] += 1
                self._spawn(f"consumer-{i}-{self._lives[int(i)]}", consumer.run, self._scale.habits)
            elif kind != "producer" or process.exitcode != 0:
                raise Stuck(f"{name} ended with exit code {process.exitcode}")

    def stop(self) -> None:
        for process in self._members.values():
            process.kill()
        for process in self._members.values():
            process.join()

    def _spawn(self, name: str, target: Callable[..., None], *rest: object) -> None:
        arguments = (self._port, self._books / f"{name}.jsonl", f"{self._seed} {name}", *rest)
        self._members[name] = SPAWN.Process(target=target, args=arguments, name=name, daemon=True)
        self._members[name].start()


def drive(scale: Scale, server: Server, books: Path, seed: int) -> Progress:
    """Run the shop until all is done and has stayed done for longer than a lease. Raises `Stuck`."""
    chance = random.Random(seed)
    crew = Crew(scale, server.port, books, seed)
    progress = Progress(books, scale.orders)
    next_kill = time.monotonic() + chance.uniform(*scale.kill_every_s)
    next_word = time.monotonic() + TELL_EVERY_S
    try:
        crew.start()
        while True:
            time.sleep(0.1)
            crew.tend()
            progress.look()
            if time.monotonic() > next_word:
                print(f"... {progress}; server killed {server.kills} times", flush=True)
                next_word += TELL_EVERY_S
            if progress.faults:
                raise Stuck(progress.faults[0])
            if progress.quiet_s > STUCK_S:
                raise Stuck(f"nothing has moved for {STUCK_S:.0f} s: {progress}")
            if progress.done:
                # An order whose confirmation was lost would come back within a lease's time, if it were not completed.
                if progress.quiet_s > scale.lease_time_s + 1.5:
                    return progress
            elif time.monotonic() > next_kill:
                server.kill()
                server.start()
                next_kill = time.monotonic() + chance.uniform(*scale.kill_every_s)
    finally:
        crew.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the version of some seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="repeat these choices")
    parser.add_argument("--keep", type=Path, help="an empty folder for data, books and log, which is kept")
    options = parser.parse_args()
    scale = SMALL if options.small else FULL
    with tempfile.TemporaryDirectory(prefix="queen-orders-") as temporary:
        return run(scale, options.keep or Path(temporary), options.seed)


def run(scale: Scale, folder: Path, seed: int) -> int:
    books = folder / "books"
    books.mkdir(parents=True)
    started = time.monotonic()
    print(f"{scale.orders} orders, {scale.partitions} partitions, seed {seed}", flush=True)
    server = Server(folder)
    try:
        server.start()
        server.configure(leaseTime=scale.lease_time_s, retryLimit=1_000_000)
        progress = drive(scale, server, books, seed)
    except (Stuck, TimeoutError) as error:
        print(f"STOPPED: {error}\nthe server's last words:\n{server.last_words()}")
        return 1
    finally:
        server.end()
    verdict = judge(progress.records)
    for name, count in verdict.counts.items():
        print(f"{count:>9,}  {name}")
    print(f"{server.kills:>9,}  times the server was killed")
    print(f"{time.monotonic() - started:>9.1f}  seconds")
    for violation in verdict.violations[:20]:
        print(f"VIOLATION {violation}")
    print(f"{len(verdict.violations)} violations")
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())

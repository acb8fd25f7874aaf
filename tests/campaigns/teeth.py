"""The teeth of the simulation: each known fault is planted by itself, and how many seeds it takes to notice it.

    python -m tests.campaigns.teeth [--limit 300] [--jobs 2] [name ...]

Exits 1 where one goes unnoticed.
"""

import argparse
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import pytest

from tests.sim.judge import judge
from tests.sim.plan import draw
from tests.sim.planted import FAULTS


class Bite(NamedTuple):
    """The first seed that notices a fault, and by which rule; None for none."""

    fault: str
    seed: int | None
    rule: str | None
    why: str


def bite(fault: str, seeds: Iterable[int]) -> Bite:
    """Plant a fault and try one seed after another."""
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[fault](patch)
        for seed in seeds:
            verdict = judge(draw(seed))
            if verdict.broken is not None:
                return Bite(fault, seed, verdict.broken, verdict.why)
    return Bite(fault, None, None, "")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Plant known faults, and see whether the simulation notices them.")
    parser.add_argument("--limit", type=int, default=300, help="seeds to try for each fault")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("words", nargs="*", help="only faults whose name has one of these in it")
    given = parser.parse_args()
    faults = [fault for fault in FAULTS if not given.words or any(word in fault for word in given.words)]
    unnoticed = 0
    print(f"{'planted':<55} {'seeds':>5}  noticed by")
    with ProcessPoolExecutor(given.jobs) as pool:
        for found in pool.map(bite, faults, [range(given.limit)] * len(faults)):
            unnoticed += found.seed is None
            seeds = f">{given.limit}" if found.seed is None else str(found.seed + 1)
            print(f"{found.fault:<55} {seeds:>5}  {found.rule}: {found.why[:90]}", flush=True)
    print(f"{len(faults) - unnoticed} of {len(faults)} noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Simulated worlds from seeds, each checked against the semantics.

    python -m tests.campaigns.simulate --seeds 10000 --start 0 --jobs 2
    python -m tests.campaigns.simulate --seed 4711            # one again, cut down if it fails, with its transcript

Prints figures, and for each seed that breaks a rule what is left of it when all is cut away that it doesn't need.
Exits 1 where a rule was broken.
"""

import argparse
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.sim.judge import Verdict, judge
from tests.sim.plan import draw
from tests.sim.shrink import shrink

SLICE = 50
"""Seeds that a process takes at a time."""


class Report(NamedTuple):
    """What some worlds came to."""

    worlds: int
    figures: Counter[str]
    broken: list[tuple[int, str]]


def run(seeds: range) -> Report:
    """Judge the worlds of some seeds."""
    began = time.process_time()
    figures: Counter[str] = Counter()
    broken = []
    for seed in seeds:
        verdict = judge(draw(seed))
        figures.update(_figures(verdict))
        if verdict.broken is not None:
            broken.append((seed, verdict.why))
    figures["CPU ms"] += round((time.process_time() - began) * 1000)
    return Report(len(seeds), figures, broken)


def _figures(verdict: Verdict) -> Counter[str]:
    world, history = verdict.world, verdict.world.history
    counted = Counter(
        {
            "simulated s": round(max((a.began.time for a in history.attempts), default=0)),
            "records": len(world.platter.frames),
            "commits": len(world.platter.commits),
            "engines": len(history.epochs),
            "notices": sum(len(heard) for _, heard in history.heard),
            "crashes": len(history.crashes),
        }
    )
    for attempt in history.attempts:
        counted[f"{attempt.what} {attempt.outcome}"] += 1
    for fault in world.plan.faults:
        counted[f"fault {fault.kind}"] += 1
    return counted


def show(seed: int, tries: int) -> None:
    """What is left of a failing seed, as a transcript."""
    plan = draw(seed)
    verdict = judge(plan)
    print(f"seed {seed}: {verdict.why or 'nothing is broken'}")
    if verdict.broken is not None and tries:
        smaller = shrink(plan, verdict.broken, tries)
        print(f"{len(plan.parts)} steps and faults, of which {len(smaller.parts)} are needed:")
        verdict = judge(smaller)
        print("\n".join(f"  {part}" for part in smaller.parts))
        print(f"  → {verdict.why}")
    print("\n".join(verdict.world.history.transcript()), flush=True)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Run simulated worlds and check them.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--tries", type=int, default=300, help="worlds to spend on cutting down a failing one")
    parser.add_argument("--show", type=int, default=3, help="failing seeds to cut down and show")
    given = parser.parse_args()
    if given.seed is not None:
        show(given.seed, given.tries)
        return int(judge(draw(given.seed)).broken is not None)
    began, worlds, total, broken = time.monotonic(), 0, Counter[str](), list[tuple[int, str]]()
    stop = given.start + given.seeds
    slices = [range(first, min(first + SLICE, stop)) for first in range(given.start, stop, SLICE)]
    with ProcessPoolExecutor(given.jobs) as pool:
        for report in pool.map(run, slices):
            worlds += report.worlds
            total.update(report.figures)
            broken += report.broken
            for seed, why in report.broken:
                print(f"seed {seed}: {why[:300]}", flush=True)
            if worlds % (10 * SLICE) == 0:
                print(f"{worlds} worlds, {len(broken)} broken, {time.monotonic() - began:.0f} s", flush=True)
    print("\n".join(f"{name:<26}{count:>12,}" for name, count in sorted(total.items())))
    spent = total["CPU ms"] / max(1, worlds)
    print(f"{worlds} worlds, {len(broken)} broken; {spent:.0f} ms of CPU each, {time.monotonic() - began:.0f} s in all")
    for seed, _ in broken[: given.show]:
        show(seed, given.tries)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())

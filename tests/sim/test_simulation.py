"""The short form of the simulation: some worlds, the same twice, and that faults are noticed. The long form:

python -m tests.campaigns.simulate --seeds 10000 --jobs 2
python -m tests.campaigns.teeth
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.campaigns.teeth import bite
from tests.sim.judge import judge
from tests.sim.machine import Injected, crash_task
from tests.sim.plan import draw
from tests.sim.planted import FAULTS, SEEDS
from tests.sim.shrink import shrink

ROOT = Path(__file__).parents[2]
AGAIN = "python -m tests.campaigns.simulate --seed"


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_worlds_keep_the_semantics(first: int) -> None:
    for seed in range(first, first + 20):
        verdict = judge(draw(seed))
        assert verdict.broken is None, f"{verdict.why}\n{AGAIN} {seed}"


def test_a_seed_is_one_world(tmp_path: Path) -> None:
    """Byte for byte: the journal, and all that clients were told; whatever strings hash to."""
    seeds = [3, 7, 11]
    here = [judge(draw(seed)).digest for seed in seeds]
    assert here == [judge(draw(seed)).digest for seed in seeds]
    assert len(set(here)) == len(seeds)
    imports = "from tests.sim.judge import judge\nfrom tests.sim.plan import draw\n"
    code = f"{imports}for seed in {seeds}: print(judge(draw(seed)).digest)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        told = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, check=True)
        assert told.stdout.decode().split() == here


@pytest.mark.parametrize("fault", list(FAULTS)[::4])
def test_a_planted_fault_is_noticed(fault: str) -> None:
    """By the seed that is known to do it, or else by one of the first; `tests.campaigns.teeth` shows all faults."""
    found = bite(fault, [SEEDS[fault], *range(30)])
    assert found.rule is not None, f"{fault} goes unnoticed"


def test_a_failing_plan_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = "A4: a stale lease is accepted"
    FAULTS[fault](monkeypatch)
    plan = draw(SEEDS[fault])
    rule = judge(plan).broken
    assert rule is not None
    smaller = shrink(plan, rule, tries=60)
    assert len(smaller.parts) <= len(plan.parts) / 3
    verdict = judge(smaller)
    assert verdict.broken == rule
    assert "ack" in "\n".join(verdict.world.history.transcript())


def test_a_task_crashes_where_it_waits() -> None:
    """The private way on which `crash_task` goes is still there."""
    seen: list[str] = []

    async def victim() -> None:
        try:
            await trio.sleep(10)
        except Injected as error:
            seen.append(str(error))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(victim, name="the victim")
            await trio.testing.wait_all_tasks_blocked()
            root = trio.lowlevel.current_task()
            assert crash_task(root, "nobody", 0, Injected()) is None
            assert crash_task(root, "the", 3, Injected("here")) == "the victim"

    trio.run(main)
    assert seen == ["here"]

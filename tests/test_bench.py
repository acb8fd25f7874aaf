"""The benchmarks run, and find a figure for every goal: in moments, so what they find here means nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.goals import SIZE, SPEED
from bench.report import size_text, speed_text

ROOT = Path(__file__).parents[1]


def bench(folder: Path, *arguments: str) -> Any:
    results = folder / "results.json"
    command = [sys.executable, "-m", "bench", *arguments, "--dir", str(folder), "--json", str(results)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["results.json"], "a store was left behind"
    return json.loads(results.read_text())


def test_speed_has_a_figure_for_every_goal(tmp_path: Path) -> None:
    results = bench(tmp_path, "speed", "--runs", "1", "--seconds", "0.3", "--warm-up", "0.1")
    assert [goal.words for goal in SPEED if goal.found(results) is None] == []
    assert results["ratios"].keys() == {"W1 edge"}
    assert "edge without storing" in speed_text(results)


def test_size_has_a_figure_for_every_goal(tmp_path: Path) -> None:
    results = bench(tmp_path, "size", "--scale", "0.001")
    assert [goal.words for goal in SIZE if goal.found(results) is None] == []
    assert "Scale 0.001" in size_text(results)

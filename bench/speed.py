"""`python -m bench speed`: the works W1 to W7, each run on a fresh store, and what the generator and the edge could do.

Runs of different works take turns, so that a slow minute of the machine falls on all of them alike.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import profile
from bench.echo import recorded
from bench.goals import WORKS
from bench.machine import machine
from bench.report import speed_text
from bench.served import Queen, child, other, queen, scratch
from bench.traffic import get
from bench.works import FILLED_AHEAD

EDGE: Final = "W1 edge"
_ECHOED: Final = ("W1", "W2", "W3", "W4", "W7")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be said about a measurement."""
    parser.add_argument("--works", default=",".join(WORKS), help="which; default: %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="of each work; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=8.0, help="that each run is measured; default: %(default)s")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds before; default: %(default)s")
    parser.add_argument(
        "--quick", action="store_true", help="2 seconds, half a second of warm-up: to see that it works"
    )
    parser.add_argument("--no-ceilings", action="store_true", help="leave out the echo server and the edge alone")
    parser.add_argument("--profile", action="store_true", help="one more run of each work under py-spy")
    parser.add_argument("--server", default="", help="options for `queen serve`, in one argument")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    works = options.works.split(",")
    if unknown := set(works) - set(WORKS):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}")
    if options.quick:
        options.seconds, options.warm_up = 2.0, 0.5
    results: dict[str, Any] = {
        "command": " ".join(["python -m bench", *sys.argv[1:]]),
        "machine": machine(options.dir),
        "runs": options.runs,
        "seconds": options.seconds,
        "works": {},
        "ceilings": {},
        "ratios": {},
    }
    bench = _Bench(options)
    runs: dict[str, list[dict[str, Any]]] = {}
    ceilings: dict[str, list[dict[str, Any]]] = {}
    for turn in range(options.runs):
        for work in works:
            runs.setdefault(work, []).append(bench.run(work))
            _say(turn, work, runs[work][-1])
            if work == "W1" and not options.no_ceilings:
                ceilings.setdefault(EDGE, []).append(bench.edge())
                _say(turn, EDGE, ceilings[EDGE][-1])
    for work in works if not options.no_ceilings else ():
        if work in _ECHOED:
            ceilings[work] = [bench.echo(work)]
            _say(0, f"{work} echo", ceilings[work][0])
    results["works"] = {work: _summary(found) for work, found in runs.items()}
    results["ceilings"] = {work: _summary(found) for work, found in ceilings.items()}
    if EDGE in ceilings:
        # Of one turn each: what slows the machine then slows both.
        pairs = zip(runs["W1"], ceilings[EDGE], strict=True)
        results["ratios"][EDGE] = median(one["messages_per_s"] / two["messages_per_s"] for one, two in pairs)
    if options.profile:
        results["profiles"] = {work: bench.profiled(work) for work in works}
    return results


class _Bench:
    """Runs, each with its own server and its own generator."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._folder: Path = options.dir
        self._seconds: float = options.seconds
        self._warm_up: float = options.warm_up
        self._server: Sequence[str] = options.server.split()

    def run(self, work: str) -> dict[str, Any]:
        """One run of a work."""
        if work == "W6":
            with scratch(self._folder) as place:
                return child("bench.embedded", str(place / "data"), str(self._seconds), str(self._warm_up))
        with queen(self._folder, self._server) as server:
            self._fill(work, server)
            return self._generate(work, server.port, server.pid)

    def edge(self) -> dict[str, Any]:
        """W1 against the edge alone."""
        with other(self._folder, "bench.edge") as server:
            figures = self._generate("W1", server.port, server.pid)
            if server.ask(get("/api/v1/resources/queues/bench")) != 404:
                raise SystemExit("the edge has stored something: bench/edge.py does not fit the broker any more")
            return figures

    def echo(self, work: str) -> dict[str, Any]:
        """A work against a server that only echoes what Queen answered to the same requests."""
        with scratch(self._folder) as place:
            with queen(place) as server:
                answers = place / "answers.json"
                answers.write_text(json.dumps(recorded(server.port, work)))
            with other(place, "bench.echo", str(answers)) as echo:
                return self._generate(work, echo.port, echo.pid)

    def profiled(self, work: str) -> profile.Profile:
        """Where the server's time goes in a run of a work."""
        if work == "W6":
            with scratch(self._folder) as place:
                command = ["bench.embedded", str(place / "data"), str(self._seconds), str(self._warm_up)]
                return profile.of_command(command, place, place / "data" / "journal", self._warm_up, self._seconds)
        with queen(self._folder, self._server) as server:
            self._fill(work, server)
            with profile.of_process(server.pid, server.data.parent, self._seconds) as found:
                self._generate(work, server.port, server.pid)
            return found

    def _fill(self, work: str, server: Queen) -> None:
        if work == "W3":
            messages = int((self._seconds + self._warm_up) * FILLED_AHEAD)
            child("bench.generate", "fill", str(server.port), "backlog", str(messages))

    def _generate(self, work: str, port: int, pid: int) -> dict[str, Any]:
        return child("bench.generate", work, str(port), str(self._seconds), str(self._warm_up), str(pid))


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Median, least and most of each figure, and all runs."""
    known = {name: sorted(run[name] for run in runs) for name in runs[0] if all(run[name] is not None for run in runs)}
    return {
        "median": {name: median(values) for name, values in known.items()},
        "least": {name: values[0] for name, values in known.items()},
        "most": {name: values[-1] for name, values in known.items()},
        "runs": runs,
    }


def _say(turn: int, work: str, figures: dict[str, Any]) -> None:
    print(f"run {turn + 1}: {work} {figures['messages_per_s']:,.0f}/s", file=sys.stderr, flush=True)


def main(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print."""
    results = measure(options)
    print(speed_text(results))
    return results

"""Results as tables: for the terminal and, by `python -m bench report FILE…`, for `docs/performance.md`."""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.goals import SIZE, SPEED, WORKS, Goal
from bench.profile import Profile

_LEAST_SHARE: Final = 0.03


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which results."""
    parser.add_argument("files", nargs="+", type=Path, help="what --json has written")
    parser.add_argument("--into", type=Path, help="a page whose tables are to be replaced, as docs/performance.md")


def main(options: argparse.Namespace) -> None:
    """Print them as Markdown, or put them where a page has those of an earlier measurement."""
    for path in options.files:
        results = json.loads(path.read_text())
        command = "size" if "situations" in results else "speed"
        tables = size_text(results) if command == "size" else speed_text(results)
        if options.into is None:
            print(tables, end="\n\n")
        else:
            options.into.write_text(replaced(options.into.read_text(), command, tables))


def replaced(page: str, command: str, tables: str) -> str:
    """The page with these tables between `<!-- speed -->` or `<!-- size -->` and the next `<!-- end -->`."""
    before, mark, rest = page.partition(f"<!-- {command} -->")
    _, end, after = rest.partition("<!-- end -->")
    if not end:
        raise SystemExit(f"no place for the tables of {command}")
    return f"{before}{mark}\n{tables}\n{end}{after}"


def speed_text(results: dict[str, Any]) -> str:
    """The tables of `speed`."""
    parts = [_machine(results), _goals(SPEED, results), _works(results)]
    if results["ceilings"]:
        parts.append(_ceilings(results))
    parts += [_profiles(results["profiles"])] if "profiles" in results else []
    return "\n\n".join(parts)


def size_text(results: dict[str, Any]) -> str:
    """The tables of `size`."""
    parts = [_machine(results)]
    if results["scale"] != 1:
        parts.append(f"Scale {results['scale']}: so much of the messages, partitions and polls that the goals name.")
    parts.append(_goals(SIZE, results))
    parts += [_situation(name, found) for name, found in results["situations"].items()]
    return "\n\n".join(parts)


def _situation(name: str, found: dict[str, Any]) -> str:
    """All that was seen in one situation: figures, and tables of routes."""
    figures, tables = [], []
    for path, value in _leaves((), found):
        if path[-1] == "routes":
            tables.append(_routes((name, *path[:-1]), value))
        else:
            figures.append((" ".join(path), _number(value)))
    return "\n\n".join([table((name, ""), figures), *tables])


def _routes(where: tuple[str, ...], routes: dict[str, dict[str, float]]) -> str:
    columns = ("p50_ms", "max_ms", "cpu_ms", "kb")
    rows = [(f"`{route}`", *(_number(times.get(name)) for name in columns)) for route, times in routes.items()]
    return table((", ".join(where), "p50 ms", "longest ms", "cpu ms", "answer kB"), rows)


def _leaves(path: tuple[str, ...], found: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in found.items():
        if not isinstance(value, dict) or name == "routes":
            yield (*path, name), value
        elif "p50_ms" in value:
            yield (*path, f"{name} p50 ms"), value["p50_ms"]
            yield (*path, f"{name} longest ms"), value["max_ms"]
            if "cpu_ms" in value:
                yield (*path, f"{name} cpu ms"), value["cpu_ms"]
        else:
            yield from _leaves((*path, name), value)


def _machine(results: dict[str, Any]) -> str:
    found = results["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return (
        f"{found['date']}, commit {found['commit']}: {found['processor']}, {found['cores']} cores, "
        f"{found['memory_gb']} GB, Linux {found['kernel']}, a synced write of 4 KiB takes {found['sync_ms']} ms, "
        f"load before {found['load_before']:.2f}. CPython {found['python']}, {versions}. `{results['command']}`"
    )


def _goals(goals: Sequence[Goal], results: dict[str, Any]) -> str:
    rows = []
    for goal in goals:
        measured = goal.found(results)
        if measured is not None:
            limit = f"{'at most' if goal.most else 'at least'} {_number(goal.figure)} {goal.unit}"
            rows.append((goal.words, limit, _number(measured), "yes" if goal.met(measured) else "**no**"))
    return table(("goal", "must reach", "measured", "met"), rows)


def _works(results: dict[str, Any]) -> str:
    rows = []
    for work, found in results["works"].items():
        middle, least, most = found["median"], found["least"], found["most"]
        rows.append(
            (
                f"{work} {WORKS[work]}",
                _number(middle["messages_per_s"]),
                f"{_number(least['messages_per_s'])}–{_number(most['messages_per_s'])}",
                *(_number(middle.get(name)) for name in ("p50_ms", "p99_ms", "p999_ms")),
                f"{middle['server_user_s']:.1f} + {middle['server_system_s']:.1f}",
                _number(middle.get("server_us_per_message")),
            )
        )
    times = ("p50 ms", "p99 ms", "p99.9 ms")
    names = ("work", "messages/s", "least–most", *times, "server CPU s, user + system", "µs/message")
    return table(names, rows)


def _ceilings(results: dict[str, Any]) -> str:
    rows = []
    for work, found in results["ceilings"].items():
        middle = found["median"]
        served = results["works"].get(work[:2])
        rate = middle["messages_per_s"]
        share = served["median"]["messages_per_s"] / rate if served and rate else None
        who = "the edge without storing" if "edge" in work else "an echo"
        rows.append((work[:2], who, _number(rate), _number(middle.get("p50_ms")), _number(share)))
    return table(("work", "answered by", "messages/s", "p50 ms", "Queen's share of it"), rows)


def _profiles(profiles: dict[str, Profile]) -> str:
    rows = []
    for work, found in profiles.items():
        for thread, shares in found.items():
            modules = [f"{module} {share:.0%}" for module, share in shares["modules"].items() if share >= _LEAST_SHARE]
            rows.append((work, thread, f"{shares['busy']:.0%}", ", ".join(modules)))
    return table(("work", "thread", "busy", f"modules with {_LEAST_SHARE:.0%} of the time and more"), rows)


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table that can be read as it stands."""
    lines = [list(names), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _number(value: float | None) -> str:
    """Three figures that count, with commas."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"

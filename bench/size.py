"""`python -m bench size`: fills the stores of "Size" and measures each."""

import argparse
import sys
from typing import Any

from bench.machine import machine
from bench.report import size_text
from bench.served import allow_many_files, scratch
from bench.situations import SITUATIONS


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be said about a measurement."""
    parser.add_argument("--situations", default=",".join(SITUATIONS), help="which; default: %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, help="of messages, partitions and polls; default: all")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    names = options.situations.split(",")
    if unknown := set(names) - set(SITUATIONS):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}")
    allow_many_files()
    results: dict[str, Any] = {
        "command": " ".join(["python -m bench", *sys.argv[1:]]),
        "machine": machine(options.dir),
        "scale": options.scale,
        "situations": {},
    }
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        with scratch(options.dir) as place:
            results["situations"][name] = SITUATIONS[name](place, options.scale)
    return results


def main(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print."""
    results = measure(options)
    print(size_text(results))
    return results

"""Hostile input from all sides: no 500, no accident, no wrong answer, no growth, nobody else held up.

    python -m tests.campaigns.hostile                 everything, about an hour on a slow machine
    python -m tests.campaigns.hostile --small         everything, a minute or two
    python -m tests.campaigns.hostile http --count 20000 --seed 7

Parts: `http` (both lanes against each other), `sockets`, `files` (one damaged byte at a time), `decoding` (with
atheris, if it is installed). Prints figures; exits with 1 on a fault.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from tests.campaigns import hostile_files, hostile_http, hostile_sockets

ROOT: Final = Path(__file__).parents[2]
FULL: Final = {"http": 20_000, "sockets": 5_000, "files": 2_000, "decoding": 2_000_000}
SMALL: Final = {"http": 100, "sockets": 60, "files": 25, "decoding": 20_000}


def decoding(count: int, seed: int) -> bool:
    """In a process of its own, which atheris ends as it likes."""
    with tempfile.TemporaryDirectory(prefix="queen-hostile-") as corpus:
        command = [sys.executable, "-m", "tests.campaigns.hostile_decoding", str(count), str(seed), corpus]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        print(f"FAULT decoding: {done.stderr[-3000:]}")
    return not done.returncode


def http(count: int, seed: int) -> bool:
    """See `hostile_http`."""
    return trio.run(hostile_http.run, count, seed)


def sockets(count: int, seed: int) -> bool:
    """See `hostile_sockets`."""
    return trio.run(hostile_sockets.run, count, seed)


PARTS: Final[dict[str, Callable[[int, int], bool]]] = {
    "decoding": decoding,
    "http": http,
    "sockets": sockets,
    "files": hostile_files.run,
}


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all of them where none is named")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts = SMALL if given.small else FULL
    sound = True
    for name in given.parts or PARTS:
        sound &= PARTS[name](given.count or counts[name], given.seed)
    print("nothing wrong" if sound else "FAULTS, see above", flush=True)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())

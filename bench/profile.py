"""Where a process spends its time, by py-spy: for each sample, the innermost of Queen's modules in the stack.

What a C extension does counts for the module that called it, and so does waiting for the disk (`lmdb_journal`). Threads
that wait for work do not count.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.served import ROOT

Share = tuple[str, float]
"""A module, and its share of the samples, from 0 to 1."""

_RATE: Final = 250
_OUTERMOST: Final = ("queen/cli.py", "queen/__main__.py")
"""They run Trio: with nothing of ours further in, it is Trio itself."""
_IDLE: Final = ("EpollIOManager.get_events", "WorkerThread._work")
"""Where Trio waits for something to do. py-spy takes some of that for work when it does not stop the process."""
_FRAME: Final = re.compile(r"\(([^():]*?)(?::\d+)?\)$")


@contextmanager
def of_process(pid: int, folder: Path, seconds: float) -> Iterator[list[Share]]:
    """Watch a process while the block runs, `seconds` at most; the list is filled when it has ended."""
    shares: list[Share] = []
    stacks = folder / "stacks.txt"
    spy = subprocess.Popen(
        [*_command(stacks), "--duration", str(max(1, int(seconds))), "--pid", str(pid)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield shares
    spy.wait()
    shares.extend(_shares(stacks))


def of_command(command: Sequence[str], folder: Path) -> list[Share]:
    """Watch a module of the benchmark's from its start to its end."""
    stacks = folder / "stacks.txt"
    subprocess.run(
        [*_command(stacks), "--", sys.executable, "-m", *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return _shares(stacks)


def _command(stacks: Path) -> list[str]:
    spy = Path(sys.executable).with_name("py-spy")
    if not spy.exists():
        raise SystemExit("--profile needs py-spy: pip install py-spy")
    # Without --nonblocking the server stands still for every sample.
    return [str(spy), "record", "--nonblocking", "--format", "raw", "--rate", str(_RATE), "--output", str(stacks)]


def _shares(stacks: Path) -> list[Share]:
    found: Counter[str] = Counter()
    for line in stacks.read_text().splitlines():
        text, _, number = line.rpartition(" ")
        stack = text.split(";")
        if not stack[-1].startswith(_IDLE):
            found[_module(stack)] += int(number)
    whole = sum(found.values())
    return [(module, samples / whole) for module, samples in found.most_common()]


def _module(stack: list[str]) -> str:
    """The innermost module of ours; failing that, the package that the stack is in."""
    paths = [match[1] for frame in reversed(stack) if (match := _FRAME.search(frame))]
    for path in paths:
        at = path.rfind("queen/")
        if at >= 0 and path[at:] not in _OUTERMOST:
            return path[at:]
    return "trio" if any("trio/" in path for path in paths) else "other"

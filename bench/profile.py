"""Where a process spends its time, by py-spy: for the main thread and for all others together, how much of the time
they were at work, and in which of Queen's modules.

A sample counts for the innermost of Queen's modules in its stack, so what a C extension does counts for the module that
called it, and so does waiting for the disk (`store/lmdb_journal.py`) or for the interpreter's lock.
"""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.served import ROOT

Profile = dict[str, dict[str, Any]]
"""For "main" and "others": `busy`, the share of the time of the run that they were at work, all threads added up; and
`modules`, by name, each one's share of it."""

_RATE: Final = 250
_FRAME: Final = re.compile(r"\(([^():]*?)(?::\d+)?\)$")
_WAITING: Final = ("EpollIOManager.get_events", "WorkerThread._work", "CommitThread._serve")
"""The innermost functions of threads that wait for something to do."""
_OUTERMOST: Final = ("queen/cli.py", "queen/__main__.py")
"""They run Trio: with nothing of ours further in, it is Trio itself."""


@contextmanager
def of_process(pid: int, folder: Path, seconds: float) -> Iterator[Profile]:
    """Watch a process while the block runs, `seconds` at most; the profile is filled when it has ended."""
    found: Profile = {}
    stacks = folder / "stacks.txt"
    spy = subprocess.Popen(
        [*_command(stacks), "--duration", str(max(1, int(seconds))), "--pid", str(pid)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield found
    spy.wait()
    found.update(_profile(stacks))


def of_command(command: Sequence[str], folder: Path, started: Path, wait: float, seconds: float) -> Profile:
    """Watch a module of the benchmark's, from `wait` seconds after `started` is there."""
    with subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while not started.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(wait)
        with of_process(process.pid, folder, seconds) as found:
            process.wait()
    return found


def _command(stacks: Path) -> list[str]:
    spy = Path(sys.executable).with_name("py-spy")
    if not spy.exists():
        raise SystemExit("--profile needs py-spy: pip install py-spy")
    # Without --nonblocking the server stands still for every sample; so py-spy can't tell who waits, and we do.
    options = ["--nonblocking", "--idle", "--threads", "--format", "raw", "--rate", str(_RATE)]
    return [str(spy), "record", *options, "--output", str(stacks)]


def _profile(stacks: Path) -> Profile:
    whole = 0  # samples of the main thread
    found: dict[str, Counter[str]] = {"main": Counter(), "others": Counter()}
    for line in stacks.read_text().splitlines():
        text, _, number = line.rpartition(" ")
        thread, *stack = text.split(";")
        main = "MainThread" in thread
        whole += int(number) if main else 0
        if stack and not stack[-1].startswith(_WAITING):
            found["main" if main else "others"][_module(stack)] += int(number)
    return {
        thread: {
            "busy": samples.total() / whole,
            "modules": {module: count / whole for module, count in samples.most_common()},
        }
        for thread, samples in found.items()
    }


def _module(stack: list[str]) -> str:
    """The innermost module of ours; failing that, the package that the stack is in."""
    paths = [match[1] for frame in reversed(stack) if (match := _FRAME.search(frame))]
    for path in paths:
        at = path.rfind("queen/")
        if at >= 0 and path[at:] not in _OUTERMOST:
            return path[at + len("queen/") :]
    return "trio" if any("trio/" in path for path in paths) else "other"

"""Loss of power: only what was synced survives, and everything that had been answered is there.

    python -m tests.campaigns.power            1,500 points, up to five images of each; some minutes
    python -m tests.campaigns.power --small    60 points; some seconds
    python -m tests.campaigns.power --teeth    with each planted fault, which must be found

Records all writes, syncs and changes of names of a broker at work (compactions among it) by a small library in front of
libc, which needs a C compiler; rebuilds, for moments between and amid any two of them, the states that a disk may be in
(`power_disk`), and opens each (`power_judge`). Exits with 1 on a violation, with 2 where there is no compiler.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.campaigns.power_disk import Disk, Entry, Kind, Tree, read_record
from tests.campaigns.power_judge import NOTES, Verdict
from tests.campaigns.power_work import FAULTS

SHIM: Final = Path(__file__).with_name("power_record.c")
ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = 2
VOLATILE: Final = "lock.mdb"
"""LMDB's table of readers: memory that processes share, written without a call."""


class NoCompiler(Exception):
    """There is no C compiler here."""


class Scale(NamedTuple):
    steps: int
    points: int


FULL = Scale(steps=120, points=1_500)
SMALL = Scale(steps=45, points=60)


class Result(NamedTuple):
    """What a campaign found."""

    entries: int
    points: int
    images: int
    violations: list[str]


def compiler() -> str | None:
    """The C compiler, if there is one."""
    return next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def campaign(folder: Path, scale: Scale, seed: int, fault: str | None = None) -> Result:
    """Record, rebuild, judge; `folder` is empty. Raises `NoCompiler`."""
    record = _record(folder, scale.steps, seed, fault)
    entries = read_record(record)
    _check_complete(entries, folder / "work")
    points = _points(entries, scale.points, seed)
    verdicts = list(_judge(record, seed, points))
    found = [violation for verdict in verdicts for violation in verdict.violations]
    return Result(len(entries), len(verdicts), sum(verdict.images for verdict in verdicts), found)


def _record(folder: Path, steps: int, seed: int, fault: str | None) -> Path:
    found = compiler()
    if found is None:
        raise NoCompiler("no C compiler (cc, gcc or clang) is here, and the recorder needs one")
    shim, record, work = folder / "record.so", folder / "record", folder / "work"
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run([found, *flags, "-o", shim, SHIM, "-ldl", "-lpthread"], check=True)
    work.mkdir()
    environment = os.environ | {"LD_PRELOAD": str(shim), "POWER_ROOT": str(work), "POWER_LOG": str(record)}
    arguments = [str(work), str(seed), str(steps), *([fault] if fault else [])]
    command = [sys.executable, "-m", "tests.campaigns.power_work", *arguments]
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    return record


def _check_complete(entries: list[Entry], work: Path) -> None:
    """The record, played back, gives the folder as it is, to the byte: nothing was missed."""
    disk = Disk()
    for entry in entries:
        disk.do(entry)
    _compare(disk.image("everything", random.Random(0)), work)


def _compare(tree: Tree, folder: Path) -> None:
    assert set(tree) == {path.name for path in folder.iterdir()}, f"the record missed names in {folder}"
    for name, content in tree.items():
        if not isinstance(content, bytes):
            _compare(content, folder / name)
        elif name != VOLATILE:
            assert (folder / name).read_bytes() == content, f"the record missed writes to {folder / name}"


def _points(entries: list[Entry], most: int, seed: int) -> list[int]:
    """Entries to fail amid: every change of names (creation, compactions) and what is next to it, others by chance."""
    telling = {Kind.CREATE, Kind.MKDIR, Kind.RENAME, Kind.UNLINK, Kind.TRUNCATE}
    near = {index + step for index, entry in enumerate(entries) if entry.kind in telling for step in (-1, 0, 1, 2, 3)}
    about = [index for index, entry in enumerate(entries) if entry.path != NOTES]
    chosen = sorted(near & set(about))
    chance = random.Random(seed)
    if len(chosen) > most // 2:
        chosen = chance.sample(chosen, most // 2)
    rest = sorted(set(about) - set(chosen))
    return sorted([*chosen, *chance.sample(rest, min(most - len(chosen), len(rest)))])


def _judge(record: Path, seed: int, points: list[int]) -> Iterator[Verdict]:
    """Spread over worker processes; one that dies, dies of an image."""
    scratch = Path(tempfile.mkdtemp(prefix="queen-power-", dir=_memory()))
    try:
        workers = []
        for number in range(WORKERS):
            share = [str(point) for point in points[number::WORKERS]]
            output = record.with_name(f"verdicts-{number}")
            arguments = [str(record), str(scratch / str(number)), str(output), str(seed), *share]
            command = [sys.executable, "-m", "tests.campaigns.power_judge", *arguments]
            with record.with_name(f"log-{number}").open("wb") as log:
                workers.append((subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log), output))
        for worker, output in workers:
            code = worker.wait()
            lines = [msgspec.json.decode(line, type=Verdict) for line in output.read_bytes().splitlines()]
            yield from (verdict for verdict in lines if verdict.images)
            if code != 0:
                yield Verdict(lines[-1].point, 1, [f"point {lines[-1].point}: the process died with code {code}"])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _memory() -> str | None:
    """Images are many and short-lived: memory, where it can be had as a folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the version of some seconds")
    parser.add_argument("--teeth", action="store_true", help="plant each fault, and fail if one is not found")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="repeat these choices")
    parser.add_argument("--points", type=int, help="another number of them")
    options = parser.parse_args()
    scale = SMALL if options.small else FULL
    if options.points:
        scale = scale._replace(points=options.points)
    try:
        if options.teeth:
            return 0 if all([_bites(fault, scale, options.seed) for fault in FAULTS]) else 1
        return _report(scale, options.seed)
    except NoCompiler as error:
        print(f"NOT RUN: {error}")
        return 2


def _report(scale: Scale, seed: int) -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="queen-power-") as folder:
        result = campaign(Path(folder), scale, seed)
    print(f"{result.entries:>9,}  writes, syncs and changes of names recorded, seed {seed}")
    print(f"{result.points:>9,}  points at which the power failed")
    print(f"{result.images:>9,}  images opened")
    print(f"{time.monotonic() - started:>9.1f}  seconds")
    for violation in result.violations[:20]:
        print(f"VIOLATION {violation}")
    print(f"{len(result.violations)} violations")
    return 1 if result.violations else 0


def _bites(fault: str, scale: Scale, seed: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="queen-power-") as folder:
        result = campaign(Path(folder), scale, seed, fault)
    first = result.violations[0] if result.violations else "NOT FOUND"
    print(f"{fault}: {len(result.violations)} violations in {result.images} images; {first}", flush=True)
    return bool(result.violations)


if __name__ == "__main__":
    sys.exit(main())

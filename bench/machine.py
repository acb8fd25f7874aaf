"""What was measured on: the machine, its disk, the versions of everything that counts, and when."""

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.served import ROOT

_PACKAGES: Final = ("trio", "hypercorn", "quart-trio", "lmdb", "msgspec", "httptools", "cbor2")
_SYNCS: Final = 200


def machine(folder: Path) -> dict[str, Any]:
    """All of it; `folder` is where the stores lie."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "processor": _line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(_line("/proc/meminfo", "MemTotal").split()[0]) * 1024 / 1e9, 1),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "sync_ms": round(_sync_ms(folder), 3),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
    }


def _commit() -> str:
    """The commit that is measured, with a + where files differ from it."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _line(path: str, name: str) -> str:
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "unknown")


def _sync_ms(folder: Path) -> float:
    """The median time of a synced write of 4 KiB."""
    times = []
    path = folder / f".bench-sync-{os.getpid()}"
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for turn in range(_SYNCS):
            began = time.perf_counter()
            os.pwrite(number, b"x" * 4096, turn * 4096)
            os.fdatasync(number)
            times.append(time.perf_counter() - began)
    finally:
        os.close(number)
        path.unlink()
    return sorted(times)[_SYNCS // 2] * 1000

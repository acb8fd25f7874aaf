"""Resources run out: what the server refuses then, what goes on, and that it recovers by itself.

    python -m tests.campaigns.resources                 everything, in full; some minutes
    python -m tests.campaigns.resources --small         everything, in small; some seconds each
    python -m tests.campaigns.resources files names     these parts alone

Each part starts a server of its own and prints its figures. Exits with 1 on a violation. A part that this machine does
not allow (mounting a small disk takes root) is not run, and says so.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

from tests.campaigns import resources_clients as clients
from tests.campaigns import resources_disk as disk
from tests.campaigns import resources_names as names
from tests.campaigns.resources_report import NotAllowed, Report

Part = Callable[[Path, bool, Report], Awaitable[None]]

PARTS: Final[dict[str, Part]] = {
    "disk": disk.full_disk,
    "map": disk.full_map,
    "files": clients.no_files,
    "connections": clients.many_connections,
    "sockets": clients.many_sockets,
    "slow": clients.slow_clients,
    "bodies": clients.large_bodies,
    "names": names.many_names,
    "again": names.again_and_again,
    "strangers": names.strangers,
}


def run(part: str, folder: Path, small: bool) -> Report:
    """One part in an empty folder. Raises `NotAllowed`."""
    report = Report()
    trio.run(PARTS[part], folder, small, report)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--small", action="store_true", help="the version of some seconds")
    options = parser.parse_args()
    violations = 0
    for part in options.parts or PARTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="queen-resources-") as folder:
            try:
                report = run(part, Path(folder), options.small)
            except NotAllowed as error:
                print(f"{part}: NOT RUN: {error}")
                continue
        print(f"{part}: {time.monotonic() - began:.1f} s, {len(report.violations)} violations")
        for figure in report.figures:
            print(f"    {figure}")
        for violation in report.violations:
            print(f"    VIOLATION {violation}")
        violations += len(report.violations)
    print(f"{violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

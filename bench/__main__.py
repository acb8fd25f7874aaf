"""`python -m bench`: the commands."""

import argparse
import json
import signal
import sys
from pathlib import Path

from bench import report, size, speed


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure Queen.")
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (speed, size):
        command = commands.add_parser(module.__name__.removeprefix("bench."), description=module.__doc__)
        command.add_argument("--dir", type=Path, default=Path.cwd(), help="whose disk is measured; default: here")
        command.add_argument("--json", type=Path, help="write the results to this file as well")
        module.arguments(command)
        command.set_defaults(module=module)
    report.arguments(commands.add_parser("report", description=report.__doc__))
    options = parser.parse_args()
    if options.command == "report":
        report.main(options)
        return
    # Whoever ends the measurement ends its servers and removes their stores with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    options.dir = options.dir.resolve()  # servers have a working directory of their own
    results = options.module.main(options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

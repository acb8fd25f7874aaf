"""The load generator's process, which prints its figures as JSON.

`python -m bench.generate WORK PORT SECONDS WARM_UP PID`, or `python -m bench.generate fill PORT KIND MESSAGES`.
"""

import json
import sys

from bench.filling import fill
from bench.works import WORKS


def main() -> None:
    """Generate."""
    work, *numbers = sys.argv[1:]
    if work == "fill":
        port, kind, messages = numbers
        figures = fill(int(port), kind, int(messages))
    else:
        port, seconds, warm_up, watched = numbers
        figures = WORKS[work](int(port), float(seconds), float(warm_up), int(watched))
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()

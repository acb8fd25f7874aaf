"""The load generator's process: `python -m bench.generate WORK PORT SECONDS WARM_UP PID` prints its figures as JSON."""

import json
import sys

from bench.works import WORKS, fill


def main() -> None:
    work, *numbers = sys.argv[1:]
    if work == "fill":
        figures = fill(int(numbers[0]), int(numbers[1]))
    else:
        port, seconds, warm_up, watched = numbers
        figures = WORKS[work](int(port), float(seconds), float(warm_up), int(watched))
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()

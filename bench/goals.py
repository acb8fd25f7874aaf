"""What must be reached, as data: each goal, where in the results its figure stands, and which way is better."""

from typing import Any, Final, NamedTuple


class Goal(NamedTuple):
    """One figure. `path` leads to it in the results; with `most` it is the most that is allowed, else the least."""

    words: str
    path: tuple[str, ...]
    figure: float
    unit: str
    most: bool = False

    def found(self, results: dict[str, Any]) -> float | None:
        """What was measured, if it was."""
        place: Any = results
        for step in self.path:
            if not isinstance(place, dict) or step not in place:
                return None
            place = place[step]
        return None if place is None else float(place)

    def met(self, measured: float) -> bool:
        """Whether that is good enough."""
        return measured <= self.figure if self.most else measured >= self.figure


WORKS: Final = {
    "W1": "push, one 256-byte message a request, 64 connections",
    "W2": "push, 100 a request, 16 connections, 100 partitions",
    "W3": "pop 100 + ack/batch 100, 16 consumers, 100 partitions",
    "W4": "push, pop and ack side by side, 10 a request, 8 + 8 clients",
    "W5": "end-to-end latency at 500 messages/s, long-polling consumers",
    "W6": "embedded (no HTTP): push one at a time from 64 tasks",
    "W7": "1-consumer loop: push, pop, ack, one message at a time",
}

_RATE: Final = "messages_per_s"

SPEED: Final = (
    Goal("W1 " + WORKS["W1"], ("works", "W1", "median", _RATE), 8_000, "messages/s"),
    Goal("W1 over the same edge without storing", ("ratios", "W1 edge"), 0.5, ""),
    Goal("W2 " + WORKS["W2"], ("works", "W2", "median", _RATE), 120_000, "messages/s"),
    Goal("W3 " + WORKS["W3"], ("works", "W3", "median", _RATE), 50_000, "messages/s"),
    Goal("W4 " + WORKS["W4"], ("works", "W4", "median", _RATE), 15_000, "messages/s"),
    Goal("W5 " + WORKS["W5"] + ", p50", ("works", "W5", "median", "p50_ms"), 2, "ms", most=True),
    Goal("W5, p99", ("works", "W5", "median", "p99_ms"), 10, "ms", most=True),
    Goal("W6 " + WORKS["W6"], ("works", "W6", "median", _RATE), 20_000, "messages/s"),
    Goal("W7 " + WORKS["W7"], ("works", "W7", "median", _RATE), 600, "rounds/s"),
)

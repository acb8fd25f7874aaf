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

_BACKLOG: Final = ("situations", "backlog")
_PARTITIONS: Final = ("situations", "partitions")
_POLLS: Final = ("situations", "polls")

# Memory is the process's own: the pages of mapped files, Queen's store above all, are the kernel's to take back.
SIZE: Final = (
    Goal(
        "idle server, resident, mapped files counted", ("situations", "idle", "memory_mb", "resident"), 80, "MB", True
    ),
    Goal("10 million messages in 100 partitions, resident", (*_BACKLOG, "memory_mb", "own"), 300, "MB", True),
    Goal("a pop there over a pop with 10,000, medians", (*_BACKLOG, "pop_ratio"), 1.25, "", True),
    Goal("restart there, clean, until a pop is answered", (*_BACKLOG, "restarts", "clean", "pop_s"), 3, "s", True),
    Goal("restart there after SIGKILL", (*_BACKLOG, "restarts", "killed", "pop_s"), 3, "s", True),
    Goal(
        "1 million partitions, one message each, resident", (*_PARTITIONS, "memory_at_once_mb", "own"), 1000, "MB", True
    ),
    Goal("any of them popped, longest of 300", (*_PARTITIONS, "pop", "max_ms"), 10, "ms", True),
    Goal("the same after a restart", (*_PARTITIONS, "pop_after_restart", "max_ms"), 10, "ms", True),
    Goal("restart there, clean, until a pop is answered", (*_PARTITIONS, "restarts", "clean", "pop_s"), 15, "s", True),
    Goal("restart there after SIGKILL", (*_PARTITIONS, "restarts", "killed", "pop_s"), 15, "s", True),
    Goal("10,000 idle long polls, resident", (*_POLLS, "memory_mb", "resident"), 700, "MB", True),
    Goal("a push reaches the right one, longest of 300", (*_POLLS, "push_to_poll", "max_ms"), 20, "ms", True),
    Goal("on disk over payload bytes, indexes included", (*_BACKLOG, "disk_over_payload"), 1.6, "", True),
    Goal("the same where senders gave transactionIds", ("situations", "named", "disk_over_payload"), 1.6, "", True),
    Goal("figures and /metrics, 10 million, slowest request", (*_BACKLOG, "slowest_route", "max_ms"), 20, "ms", True),
    Goal("message by transactionId there, longest", (*_BACKLOG, "by_transaction", "max_ms"), 5, "ms", True),
)

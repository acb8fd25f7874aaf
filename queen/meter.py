"""Counts and histograms of what the server does, as plain numbers: what a measurement costs on the hot path is an
addition. Nothing here knows how figures are told; `web/metrics.py` does.

They count from the broker's opening and outlive its engines.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from queen.replies import Receipt

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WAITS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LAGS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)


MINUTE: Final = 60_000_000
_SECOND: Final = 1_000_000


class Histogram:
    """How many values fell between which bounds; `counts` has one more entry, for what is above the last."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Take in a value that was seen so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class Flow(NamedTuple):
    """Messages that were stored, and those that the default group completed."""

    created: int
    completed: int


class Recent:
    """Running totals, with a look at them once a second: what the last minute brought, to a second. µs."""

    __slots__ = ("_looks", "_next", "completed", "created")

    def __init__(self) -> None:
        self.created = 0
        self.completed = 0
        self._looks: deque[tuple[int, int, int]] = deque(maxlen=64)
        self._next = 0

    def add(self, now: int, created: int, completed: int) -> None:
        """Count what a record brings. `now` never runs backwards."""
        if now >= self._next:
            self._looks.append((now, self.created, self.completed))
            self._next = now + _SECOND
        self.created += created
        self.completed += completed

    def minute(self, now: int) -> Flow:
        """What the minute before `now` brought."""
        for at, created, completed in self._looks:
            if at > now - MINUTE:
                return Flow(self.created - created, self.completed - completed)
        return Flow(0, 0)


class Meter:
    """What has been done since the broker was opened.

    `pushed`, `duplicates`, `delivered` and `acknowledged` (by outcome) count what is durable and was answered.
    `commit_s` and `commit_records` are one value per commit, `pop_wait_s` one per pop that got something, `lag_s` one
    per completed message and group (from its push to its completion); a completion counts when it is decided, so a
    commit that fails leaves its part in there; `recent` likewise. `dropped` counts notices that slow subscribers never
    got.
    """

    __slots__ = (
        "acknowledged",
        "commit_records",
        "commit_s",
        "delivered",
        "dropped",
        "duplicates",
        "lag_s",
        "pop_wait_s",
        "pushed",
        "recent",
    )

    def __init__(self) -> None:
        self.pushed = 0
        self.duplicates = 0
        self.delivered = 0
        self.dropped = 0
        self.acknowledged: dict[str, int] = {}
        self.recent = Recent()
        self.commit_s = Histogram(SECONDS)
        self.commit_records = Histogram(SIZES)
        self.pop_wait_s = Histogram(WAITS)
        self.lag_s = Histogram(LAGS)

    def committed(self, seconds: float, records: int) -> None:
        """A commit took so long and held so many records; one of tables alone holds none."""
        self.commit_s.add(seconds)
        if records:
            self.commit_records.add(records)

    def receipts(self, receipts: Sequence[Receipt]) -> None:
        """A push was answered with these."""
        queued = sum([receipt.status == "queued" for receipt in receipts])
        self.pushed += queued
        self.duplicates += len(receipts) - queued

    def popped(self, messages: int, waited_s: float) -> None:
        """A pop was answered with so many messages."""
        self.delivered += messages
        self.pop_wait_s.add(waited_s)

    def acked(self, outcomes: Iterable[str]) -> None:
        """Acknowledgements were answered with these outcomes."""
        counts = self.acknowledged
        for outcome in outcomes:
            counts[outcome] = counts.get(outcome, 0) + 1

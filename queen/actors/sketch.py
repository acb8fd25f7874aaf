"""How durations are distributed, in little memory: counts in buckets that grow by a constant factor. Pure.

Quantiles are off by 1 % of the value at most (S4). Sketches can be added up, and, since a bucket is a plain count,
taken out of a sum again when they leave the window: this is why it is not the DDSketch of PyPI, of which the
buckets are (that one also keeps a boxed float per bucket, and brings `six`).
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import ceil, log
from operator import add, sub

ACCURACY = 0.0099
"""The bound on the relative error; below S4's 1 % by what rounding to whole µs may add to a duration of 10 ms."""
BUCKETS = 2048
"""Enough for 10^17 µs; what is longer counts as that. So no sketch takes more than 16 KiB."""

_FACTOR = (1 + ACCURACY) / (1 - ACCURACY)
_SCALE = 1 / log(_FACTOR)
_MIDDLE = 2 / (_FACTOR + 1)


class Sketch:
    """Counts by bucket. Bucket i holds durations from above factor^(i-1) to factor^i µs; shorter ones count as 1 µs."""

    __slots__ = ("_counts", "_first", "count", "total")

    def __init__(self, count: int = 0, total: int = 0, first: int = 0, counts: Sequence[int] = ()) -> None:
        """The sketch that `parts` describes."""
        self.count = count
        self.total = total
        self._first = first
        self._counts = array("Q", counts)

    def parts(self) -> tuple[int, int, int, list[int]]:
        """What makes the same sketch again."""
        return self.count, self.total, self._first, self._counts.tolist()

    def add(self, duration: int, times: int = 1) -> None:
        """Count a duration, in µs."""
        bucket = min(BUCKETS - 1, ceil(log(duration) * _SCALE)) if duration > 1 else 0
        self._cover(bucket, bucket + 1)
        self._counts[bucket - self._first] += times
        self.count += times
        self.total += duration * times

    def merge(self, other: "Sketch") -> None:
        """Add all that the other has counted."""
        if not other._counts:
            return
        self._cover(other._first, other._first + len(other._counts))
        start = other._first - self._first
        stop = start + len(other._counts)
        self._counts[start:stop] = array("Q", map(add, self._counts[start:stop], other._counts))
        self.count += other.count
        self.total += other.total

    def take_out(self, other: "Sketch") -> None:
        """Undo a `merge` of the other."""
        start = other._first - self._first
        stop = start + len(other._counts)
        self._counts[start:stop] = array("Q", map(sub, self._counts[start:stop], other._counts))
        self.count -= other.count
        self.total -= other.total
        self._trim()

    def copy(self) -> "Sketch":
        """One of the same content."""
        return Sketch(self.count, self.total, self._first, self._counts)

    @property
    def average(self) -> float:
        """The mean of the durations, exactly; 0 where there are none."""
        return self.total / self.count if self.count else 0.0

    def quantiles(self, *shares: float) -> list[float]:
        """For each share the smallest duration that this share of all does not exceed; 0 where there are none."""
        if not self.count:
            return [0.0] * len(shares)
        sums = list(accumulate(self._counts))
        ranks = [max(1, ceil(share * self.count)) for share in shares]
        return [_MIDDLE * _FACTOR ** (self._first + bisect_left(sums, rank)) for rank in ranks]

    def _cover(self, start: int, stop: int) -> None:
        """Have room for the buckets from `start` to before `stop`."""
        if not self._counts:
            self._first = start
        if start < self._first:
            self._counts[:0] = array("Q", bytes(8 * (self._first - start)))
            self._first = start
        missing = stop - self._first - len(self._counts)
        if missing > 0:
            self._counts.frombytes(bytes(8 * missing))

    def _trim(self) -> None:
        """Give back the room of empty buckets at both ends."""
        used = [index for index, count in enumerate(self._counts) if count]
        if used:
            self._counts = self._counts[used[0] : used[-1] + 1]
            self._first += used[0]
        else:
            self._counts = array("Q")

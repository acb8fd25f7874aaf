"""How durations are distributed, in little memory: counts in buckets that grow by a constant factor. Pure.

Quantiles are off by 1 % of the value at most (S4). Sketches can be added up, and, since a bucket is a plain count,
taken out of a sum again when they leave the window. The buckets are those of DDSketch; the package of that name can
add up only.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import ceil, log

ACCURACY = 0.0099
"""The bound on the relative error; below S4's 1 % by what rounding to whole µs may add to a duration of 10 ms."""
BUCKETS = 2048
"""Enough for 10^17 µs; what is longer counts as that. So no sketch takes more than 16 KiB."""

_FACTOR = (1 + ACCURACY) / (1 - ACCURACY)
_SCALE = 1 / log(_FACTOR)
# What a bucket stands for: the value of which no duration in it is further away than the accuracy says.
_VALUES = [_FACTOR**bucket * 2 / (_FACTOR + 1) for bucket in range(BUCKETS)]
_LANE = 64
"""Bits of a count; sums are made of all buckets at once, as one long number with a count in each lane."""


class Sketch:
    """Counts by bucket. Bucket i holds durations from above factor^(i-1) to factor^i µs; shorter ones count as 1 µs."""

    __slots__ = ("_counts", "_first", "_known", "count", "total")

    def __init__(self, count: int = 0, total: int = 0, first: int = 0, counts: Sequence[int] = ()) -> None:
        """The sketch that `parts` describes."""
        self.count = count
        self.total = total
        self._first = first
        self._counts = array("Q", counts)
        self._known: tuple[tuple[float, ...], list[float]] | None = None  # the last answer about quantiles

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
        self._known = None

    def merge(self, *others: "Sketch") -> None:
        """Add all that the others have counted."""
        parts = [sketch for sketch in (self, *others) if sketch._counts]
        if not parts:
            return
        first = min([sketch._first for sketch in parts])
        length = max([sketch._first + len(sketch._counts) for sketch in parts]) - first
        lanes = sum([sketch._lanes() << _LANE * (sketch._first - first) for sketch in parts])
        self._set(first, lanes, length)
        self.count += sum([sketch.count for sketch in others])
        self.total += sum([sketch.total for sketch in others])

    def take_out(self, other: "Sketch") -> None:
        """Undo a `merge` of the other."""
        if not other._counts:
            return
        lanes = self._lanes() - (other._lanes() << _LANE * (other._first - self._first))
        self._set(self._first, lanes, len(self._counts))
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
        if self._known is None or self._known[0] != shares:
            sums = list(accumulate(self._counts))
            ranks = [max(1, ceil(share * self.count)) for share in shares]
            self._known = shares, [_VALUES[self._first + bisect_left(sums, rank)] for rank in ranks]
        return self._known[1]

    def _lanes(self) -> int:
        return int.from_bytes(_little(self._counts[:]).tobytes(), "little")

    def _set(self, first: int, lanes: int, length: int) -> None:
        self._first = first
        self._counts = _little(array("Q", lanes.to_bytes(_LANE // 8 * length, "little")))
        self._known = None

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


def _little(counts: "array[int]") -> "array[int]":
    """The counts with their bytes in the order of a long number, or back."""
    if sys.byteorder == "big":
        counts.byteswap()
    return counts

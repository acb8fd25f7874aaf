"""A set of whole numbers kept as ranges: positions that are gone. Pure."""

from bisect import bisect_right
from collections.abc import Iterator


class RangeSet:
    """Disjoint ranges in order; costs memory per gap, not per number."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, ranges: list[tuple[int, int]] | None = None) -> None:
        """`ranges` are (start, stop) pairs as `ranges()` gives them."""
        self._starts = [start for start, _ in ranges or ()]
        self._stops = [stop for _, stop in ranges or ()]

    def __contains__(self, number: int) -> bool:
        if not self._starts:
            return False
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._stops[index]

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._starts == other._starts and self._stops == other._stops

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RangeSet({self.ranges()})"

    def ranges(self) -> list[tuple[int, int]]:
        """The (start, stop) pairs in order."""
        return list(zip(self._starts, self._stops, strict=True))

    def add(self, start: int, stop: int) -> None:
        """Include start <= n < stop, of which none may be included yet."""
        assert start < stop
        index = bisect_right(self._starts, start)
        joins_left = index > 0 and self._stops[index - 1] >= start
        joins_right = index < len(self._starts) and self._starts[index] <= stop
        assert not (joins_left and self._stops[index - 1] > start), "a number is included twice"
        assert not (joins_right and self._starts[index] < stop), "a number is included twice"
        if joins_left and joins_right:
            self._stops[index - 1] = self._stops.pop(index)
            del self._starts[index]
        elif joins_left:
            self._stops[index - 1] = stop
        elif joins_right:
            self._starts[index] = start
        else:
            self._starts.insert(index, start)
            self._stops.insert(index, stop)

    def skip(self, number: int) -> int:
        """The first number from `number` on that is not included."""
        index = bisect_right(self._starts, number) - 1
        if index >= 0 and number < self._stops[index]:
            return self._stops[index]
        return number

    def last_before(self, number: int) -> int:
        """The last number before `number` that is not included."""
        index = bisect_right(self._starts, number - 1) - 1
        if index >= 0 and number <= self._stops[index]:
            return self._starts[index] - 1
        return number - 1

    def count_from(self, number: int) -> int:
        """How many included numbers are `number` or greater."""
        index = bisect_right(self._starts, number) - 1
        total = 0
        if index >= 0 and number < self._stops[index]:
            total += self._stops[index] - number
        for later in range(index + 1, len(self._starts)):
            total += self._stops[later] - self._starts[later]
        return total

    def gaps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The (start, stop) pairs between `start` and `stop` that are not included."""
        position = self.skip(start)
        while position < stop:
            index = bisect_right(self._starts, position)
            end = min(stop, self._starts[index]) if index < len(self._starts) else stop
            yield position, end
            position = self.skip(end)


NO_RANGES = RangeSet()
"""The empty set that all share who hold none of their own; nothing is ever added to it."""

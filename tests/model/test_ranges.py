"""RangeSet against a plain set."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.actors.ranges import RangeSet

NUMBERS = st.integers(0, 60)
PAIRS = st.lists(st.tuples(NUMBERS, st.integers(1, 8)), max_size=25)


def build(pairs: list[tuple[int, int]]) -> tuple[RangeSet, set[int]]:
    """Add what does not overlap; both kinds of set."""
    ranges, plain = RangeSet(), set[int]()
    for start, length in pairs:
        numbers = set(range(start, start + length))
        if not numbers & plain:
            ranges.add(start, start + length)
            plain |= numbers
    return ranges, plain


@given(pairs=PAIRS, number=NUMBERS, length=st.integers(0, 40))
def test_every_question_is_answered_as_by_a_set(pairs: list[tuple[int, int]], number: int, length: int) -> None:
    ranges, plain = build(pairs)
    assert bool(ranges) == bool(plain)
    assert [n in ranges for n in range(80)] == [n in plain for n in range(80)]
    assert ranges.skip(number) == next(n for n in range(number, 100) if n not in plain)
    assert ranges.count_from(number) == sum(n >= number for n in plain)
    gaps = list(ranges.gaps(number, number + length))
    assert all(start < stop for start, stop in gaps)
    free = [n for start, stop in gaps for n in range(start, stop)]
    assert free == [n for n in range(number, number + length) if n not in plain]


@given(pairs=PAIRS)
def test_ranges_are_sorted_and_joined_and_build_the_same_set_again(pairs: list[tuple[int, int]]) -> None:
    ranges, _ = build(pairs)
    found = ranges.ranges()
    assert all(start < stop for start, stop in found)
    assert all(before[1] < after[0] for before, after in pairwise(found))
    assert RangeSet(found) == ranges
    assert str(found) in repr(ranges)


@pytest.mark.parametrize(("start", "stop"), [(2, 4), (4, 6), (1, 2), (0, 9), (3, 3)])
def test_what_is_included_already_is_a_bug(start: int, stop: int) -> None:
    ranges = RangeSet([(1, 5)])
    with pytest.raises(AssertionError):
        ranges.add(start, stop)


def test_a_range_set_equals_nothing_else() -> None:
    assert RangeSet() != set()

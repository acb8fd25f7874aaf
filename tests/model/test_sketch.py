"""Sketches: quantiles off by 1 % at most, sums that can be taken apart again (S4)."""

import math
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from queen.actors.sketch import BUCKETS, Sketch

DURATIONS = st.lists(
    st.one_of(st.integers(0, 10**15), st.integers(1, 2000), st.floats(0, 34).map(lambda power: int(math.e**power))),
    max_size=60,
)
SHARES = (0.01, 0.25, 0.5, 0.95, 0.99, 1.0)


def sketch_of(durations: list[int]) -> Sketch:
    sketch = Sketch()
    for duration in durations:
        sketch.add(duration)
    return sketch


@given(DURATIONS.filter(bool))
def test_quantiles_are_off_by_one_percent_at_most(durations: list[int]) -> None:
    durations.sort()
    sketch = sketch_of(durations)
    for share, found in zip(SHARES, sketch.quantiles(*SHARES), strict=True):
        exact = max(1, durations[math.ceil(share * len(durations)) - 1])
        assert abs(found - exact) <= 0.01 * exact
    assert sketch.average == sum(durations) / len(durations)


@given(st.lists(DURATIONS, max_size=4), DURATIONS)
def test_a_sum_is_the_sketch_of_everything(parts: list[list[int]], first: list[int]) -> None:
    sketch = sketch_of(first)
    assert sketch.quantiles(0.5) == sketch_of(first).quantiles(0.5)
    sketch.merge(*map(sketch_of, parts))
    everything = sketch_of(first + [duration for part in parts for duration in part])
    assert sketch.parts() == everything.parts()
    assert sketch.quantiles(*SHARES) == everything.quantiles(*SHARES)


@given(DURATIONS, DURATIONS)
def test_what_is_taken_out_was_never_there(stays: list[int], goes: list[int]) -> None:
    sketch = sketch_of(stays + goes)
    assert sketch.quantiles(0.5) == sketch_of(stays + goes).quantiles(0.5)
    sketch.take_out(sketch_of(goes))
    expected = sketch_of(stays)
    assert (sketch.count, sketch.total) == (expected.count, expected.total)
    assert sketch.quantiles(*SHARES) == expected.quantiles(*SHARES)
    if stays:
        assert sketch.parts() == expected.parts()


@given(DURATIONS)
def test_parts_make_the_same_sketch_again(durations: list[int]) -> None:
    sketch = sketch_of(durations)
    again = Sketch(*sketch.parts())
    again.add(7, 3)
    sketch.copy().add(9)
    sketch.add(7, 3)
    assert again.parts() == sketch.parts()


def test_the_longest_durations_fit_into_bounded_memory() -> None:
    sketch = sketch_of([1, 10**30])
    (longest,) = sketch.quantiles(1.0)
    assert 10**17 < longest < 10**18
    tracemalloc.start()
    sketch = sketch_of([1, 10**30])
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 8 * BUCKETS + 4000
    assert sketch.count == 2


def test_without_durations_everything_is_zero() -> None:
    assert Sketch().quantiles(0.5, 0.95) == [0.0, 0.0]
    assert Sketch().average == 0

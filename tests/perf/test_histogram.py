"""Percentiles of all values, to within one per cent, in bounded memory."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from penstock.perf import Histogram
from penstock.perf.histogram import BUCKETS, VALUE_MAX_US, bucket_end_us, bucket_of

VALUES = st.lists(st.integers(0, VALUE_MAX_US) | st.integers(0, 5000), min_size=1, max_size=300)
PERCENTS = (0, 1, 50, 90, 99, 99.9, 100)


def exact(values: list[int], percent: float) -> int:
    ordered = sorted(values)
    wanted = max(1, -(-len(ordered) * round(percent * 1000) // 100_000))
    return ordered[wanted - 1]


@given(VALUES)
def test_percentiles_are_never_too_small_and_at_most_one_per_cent_too_large(values: list[int]) -> None:
    histogram = Histogram(values)
    for percent in PERCENTS:
        truth, told = exact(values, percent), histogram.percentile_us(percent)
        assert truth <= told <= truth * (1 + 1 / 128)


@given(VALUES)
def test_count_sum_smallest_and_largest_are_exact(values: list[int]) -> None:
    histogram = Histogram(values)
    assert (histogram.count, histogram.sum_us) == (len(values), sum(values))
    assert (histogram.min_us, histogram.max_us) == (min(values), max(values))
    assert histogram.mean_us == sum(values) / len(values)
    assert histogram.percentile_us(100) == max(values)


@given(VALUES, VALUES)
def test_two_added_are_one_that_saw_everything(one: list[int], other: list[int]) -> None:
    added = Histogram(one)
    added.add(Histogram(other))
    together = Histogram(one + other)
    assert list(added.buckets()) == list(together.buckets())
    assert (added.count, added.sum_us, added.min_us, added.max_us) == (
        together.count, together.sum_us, together.min_us, together.max_us,
    )  # fmt: skip


@given(st.integers(0, VALUE_MAX_US))
def test_buckets_follow_each_other_without_gaps(value: int) -> None:
    index = bucket_of(value)
    assert 0 <= index < BUCKETS
    assert value <= bucket_end_us(index)
    assert index == 0 or bucket_end_us(index - 1) < value
    assert list(Histogram([value]).buckets()) == [(index, 1)]


def test_what_is_out_of_range_is_counted_at_its_end() -> None:
    histogram = Histogram([-5, VALUE_MAX_US + 10])
    assert (histogram.min_us, histogram.max_us) == (0, VALUE_MAX_US)


def test_an_empty_one_says_zero() -> None:
    histogram = Histogram()
    histogram.add(Histogram())
    assert (histogram.count, histogram.mean_us, histogram.percentile_us(99)) == (0, 0.0, 0)


def test_memory_does_not_grow_with_the_values() -> None:
    histogram = Histogram(range(1000))
    before = sys.getsizeof(histogram._counts)
    for start in range(0, 100_000, 1000):
        histogram.record_all(range(start * 1000, (start + 1000) * 1000, 1000))
    assert sys.getsizeof(histogram._counts) == before < 64 * 1024

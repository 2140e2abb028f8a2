"""Counts all latencies in bounded memory, each to within one per cent.

Buckets are one microsecond wide below 256 µs. From there on each doubling of the value doubles the width of its 128
buckets, as in HdrHistogram: a bucket is never wider than 1/128 of the values in it. Up to 2^40 µs, twelve days, that
makes some 4,300 counters, however many values there are. Percentiles are reported as the upper end of their bucket, so
they never look better than they were; count, sum, smallest and largest are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["VALUE_MAX_US", "Histogram"]

SUB_BITS = 7
SUB_BUCKETS = 1 << SUB_BITS
VALUE_BITS_MAX = 40
VALUE_MAX_US = (1 << VALUE_BITS_MAX) - 1
BUCKETS = (VALUE_BITS_MAX - SUB_BITS + 1) * SUB_BUCKETS


class Histogram:
    __slots__ = ("_counts", "count", "max_us", "min_us", "sum_us")

    def __init__(self, values_us: Iterable[int] = ()) -> None:
        self._counts = [0] * BUCKETS
        self.count = 0
        self.sum_us = 0
        self.min_us = 0
        self.max_us = 0
        self.record_all(values_us)

    def record(self, value_us: int) -> None:
        """Counts a value. Values below zero count as zero, values beyond the range as its end."""
        self.record_all((value_us,))

    def record_all(self, values_us: Iterable[int]) -> None:
        """Counts many values at once, to take little time from what is being measured."""
        counts = self._counts
        values = [0 if value < 0 else VALUE_MAX_US if value > VALUE_MAX_US else value for value in values_us]
        if not values:
            return
        for value in values:
            exponent = value.bit_length() - SUB_BITS - 1
            if exponent > 0:
                counts[(exponent << SUB_BITS) + (value >> exponent)] += 1
            else:
                counts[value] += 1
        low, high = min(values), max(values)
        self.min_us = low if not self.count else min(low, self.min_us)
        self.max_us = max(high, self.max_us)
        self.count += len(values)
        self.sum_us += sum(values)

    def add(self, other: Histogram) -> None:
        """Adds all counts of the other."""
        if not other.count:
            return
        self._counts = [one + two for one, two in zip(self._counts, other._counts, strict=True)]
        self.min_us = other.min_us if not self.count else min(self.min_us, other.min_us)
        self.max_us = max(self.max_us, other.max_us)
        self.count += other.count
        self.sum_us += other.sum_us

    @property
    def mean_us(self) -> float:
        return self.sum_us / self.count if self.count else 0.0

    def percentile_us(self, percent: float) -> int:
        """The smallest value that `percent` of all values do not exceed, to the width of its bucket; 0 if empty."""
        return self.percentiles_us((percent,))[0]

    def percentiles_us(self, percents: Iterable[float]) -> list[int]:
        """The same for several percentages."""
        return [self._percentile_us(percent) for percent in percents]

    def _percentile_us(self, percent: float) -> int:
        assert 0 <= percent <= 100, percent
        if not self.count:
            return 0
        # In whole thousandths of a per cent, so that 99.9 % of 1,000 is 999 and not a little more.
        wanted = max(1, -(-self.count * round(percent * 1000) // 100_000))
        seen = 0
        for index, count in self.buckets():
            seen += count
            if seen >= wanted:
                return min(bucket_end_us(index), self.max_us)
        return self.max_us

    def buckets(self) -> Iterator[tuple[int, int]]:
        """The non-empty buckets in order, with their counts."""
        return ((index, count) for index, count in enumerate(self._counts) if count)


def bucket_of(value_us: int) -> int:
    exponent = max(0, value_us.bit_length() - SUB_BITS - 1)
    return (exponent << SUB_BITS) + (value_us >> exponent)


def bucket_end_us(index: int) -> int:
    """The largest value in a bucket."""
    exponent = max(0, (index >> SUB_BITS) - 1)
    return ((index - (exponent << SUB_BITS) + 1) << exponent) - 1

"""Samples, and the two accumulators that produce them: latency histograms and one-minute rates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
RATE_INTERVAL_MS = 5_000
WINDOW_TICKS = 6
"""Ticks of `RATE_INTERVAL_MS` between two rotations of a histogram: quantiles cover the last 30 to 60 s."""
_ONE_MINUTE_ALPHA = 1 - 2.718281828459045 ** (-5 / 60)
_SLOTS = 280


class Sample(NamedTuple):
    """One line of the exposition. Samples with the same name form a family with one kind and one help text."""

    name: str
    kind: str
    help: str
    value: float
    labels: Labels = ()
    suffix: str = ""
    """Appended to the family's name: `_count`, `_sum`."""


def gauge(name: str, text: str, value: float, labels: Labels = ()) -> Sample:
    """A value that goes up and down."""
    return Sample(name, "gauge", text, value, labels)


def counter(name: str, text: str, value: float, labels: Labels = ()) -> Sample:
    """A value that only increases. By Prometheus' convention its name ends in `_total`."""
    return Sample(name, "counter", text, value, labels)


def summary(name: str, text: str, histogram: Histogram, labels: Labels = ()) -> Iterator[Sample]:
    """The quantiles, the count and the sum of a histogram."""
    for q in QUANTILES:
        yield Sample(name, "summary", text, histogram.quantile(q), (*labels, ("quantile", str(q))))
    yield Sample(name, "summary", text, histogram.count, labels, "_count")
    yield Sample(name, "summary", text, histogram.sum_ms, labels, "_sum")


def labelled(samples: Iterable[Sample], *labels: tuple[str, str]) -> list[Sample]:
    """The same samples with these labels placed before their own."""
    return [sample._replace(labels=(*labels, *sample.labels)) for sample in samples]


class Histogram:
    """Durations in log-linear buckets: eight per power of two of microseconds, so quantiles are accurate to 12 %.

    Count and sum cover the whole life. Quantiles cover a window: what was recorded since the rotation before the last
    one. An owner that calls `rotate` every 30 s thus has quantiles of the last 30 to 60 s; without rotations they cover
    the whole life too.
    """

    __slots__ = ("_begin", "_next_begin", "buckets", "count", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self._begin: list[int] | None = None
        """The buckets when the window began."""
        self._next_begin: list[int] | None = None
        self.buckets = [0] * _SLOTS
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0

    def record(self, duration_ms: float) -> None:
        micros = int(duration_ms * 1000)
        if micros < 16:
            slot = micros if micros > 0 else 0
        else:
            shift = micros.bit_length() - 4
            slot = (shift << 3) + (micros >> shift)
            if slot > 279:
                slot = 279
        self.buckets[slot] += 1
        self.count += 1
        self.sum_ms += duration_ms
        if duration_ms > self.max_ms:
            self.max_ms = duration_ms

    def rotate(self) -> None:
        """Move the window of the quantiles: it begins at the previous call from now on."""
        self._begin = self._next_begin
        self._next_begin = self.buckets[:]

    def quantile(self, q: float) -> float:
        """The upper bound, in ms, of the bucket that contains this quantile; 0 if the window is empty."""
        counts = self.buckets if self._begin is None else list(map(int.__sub__, self.buckets, self._begin))
        rank = q * sum(counts)
        seen = 0
        for slot, count in enumerate(counts):
            seen += count
            if count and seen >= rank:
                return min(_upper_micros(slot) / 1000, self.max_ms)
        return 0.0


def _upper_micros(slot: int) -> int:
    if slot < 16:
        return slot + 1
    shift = (slot >> 3) - 1
    return ((slot - (shift << 3)) + 1) << shift


class Rate:
    """Kafka's one-minute moving average of a counter. `tick` is called every `RATE_INTERVAL_MS`."""

    __slots__ = ("_last", "per_second")

    def __init__(self) -> None:
        self._last = 0
        self.per_second = 0.0

    def tick(self, value: int) -> None:
        now = (value - self._last) / (RATE_INTERVAL_MS / 1000)
        self._last = value
        self.per_second += _ONE_MINUTE_ALPHA * (now - self.per_second)

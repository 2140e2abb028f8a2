"""Raw samples to roll-ups per hour and day. Pure.

A roll-up is written when its window ends, and once in between every few minutes, so that a monitor that dies loses
little. Windows begin at multiples of their width since 1970, in UTC. A sample that is older than the open window of its
series (a clock that was set back) is counted in the open window: its own is complete and written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.monitor.samples import WIDTHS_MS, Kind, MetricSample, Rollup

SERIES_MAX: Final = 50_000
"""Series that are rolled up. Samples of further ones are only in the raw topic."""

_Key = tuple[Kind, str, str, int]


class _Window:
    __slots__ = ("changed", "count", "last", "maximum", "minimum", "sample", "start_ms", "total")

    def __init__(self, start_ms: int, sample: MetricSample) -> None:
        self.start_ms = start_ms
        self.sample = sample
        self.count = 0
        self.total = 0.0
        self.minimum = self.maximum = self.last = sample.value
        self.changed = False

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)
        self.last = value
        self.changed = True

    def rollup(self, width_ms: int) -> Rollup:
        one = self.sample
        return Rollup(
            start_ms=self.start_ms,
            width_ms=width_ms,
            cluster=one.cluster,
            kind=one.kind,
            name=one.name,
            metric=one.metric,
            unit=one.unit,
            count=self.count,
            mean=self.total / self.count,
            minimum=self.minimum,
            maximum=self.maximum,
            last=self.last,
            broker=one.broker,
            topic=one.topic,
            partition=one.partition,
            group=one.group,
        )


class Rollups:
    """The open windows of all series of one cluster."""

    def __init__(self, widths_ms: Iterable[int] = WIDTHS_MS, series_max: int = SERIES_MAX) -> None:
        self._widths_ms = tuple(widths_ms)
        self._windows_max = series_max * len(self._widths_ms)
        self._windows: dict[_Key, _Window] = {}
        self.dropped = 0
        """Samples that were not rolled up because there are too many series."""

    def add(self, samples: Iterable[MetricSample]) -> Iterator[Rollup]:
        """Takes samples; yields the roll-ups of windows that they close."""
        for sample in samples:
            for width_ms in self._widths_ms:
                key = (sample.kind, sample.name, sample.metric, width_ms)
                start_ms = sample.time_ms - sample.time_ms % width_ms
                window = self._windows.get(key)
                if window is None and len(self._windows) >= self._windows_max:
                    self.dropped += 1
                    continue
                if window is None or start_ms > window.start_ms:
                    if window is not None:
                        yield window.rollup(width_ms)
                    window = self._windows[key] = _Window(start_ms, sample)
                window.add(sample.value)

    def resume(self, found: Rollup) -> None:
        """Continues a window that an earlier monitor began, from its last partial roll-up."""
        key = (found.kind, found.name, found.metric, found.width_ms)
        known = self._windows.get(key)
        if found.width_ms not in self._widths_ms or (known is not None and known.start_ms > found.start_ms):
            return
        sample = MetricSample(
            time_ms=found.start_ms,
            cluster=found.cluster,
            kind=found.kind,
            name=found.name,
            metric=found.metric,
            value=found.last,
            unit=found.unit,
            broker=found.broker,
            topic=found.topic,
            partition=found.partition,
            group=found.group,
        )
        window = self._windows[key] = _Window(found.start_ms, sample)
        window.count, window.total = found.count, found.mean * found.count
        window.minimum, window.maximum = found.minimum, found.maximum

    def partial(self, now_ms: int) -> Iterator[Rollup]:
        """The open windows that changed since the last call. Windows that ended are closed: their series has gone."""
        for key, window in list(self._windows.items()):
            width_ms = key[3]
            if window.changed:
                window.changed = False
                yield window.rollup(width_ms)
            if window.start_ms + width_ms <= now_ms - width_ms:
                del self._windows[key]

"""Samples for tests of alerts."""

from __future__ import annotations

from penstock.monitor.samples import METRICS, Kind, MetricSample

NOW_MS = 1_763_430_000_000


def sample(metric: str, value: float, name: str = "g", kind: Kind = Kind.GROUP, time_ms: int = NOW_MS) -> MetricSample:
    return MetricSample(
        time_ms=time_ms, cluster="c", kind=kind, name=name, metric=metric, value=value,
        unit=METRICS[kind, metric].unit,
    )  # fmt: skip

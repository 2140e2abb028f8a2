"""The newest samples as Prometheus series: `penstock_monitor_<kind>_<metric>`, labelled with what they are about. Pure.

Percentages stay shares (0 to 1), and times keep the unit of the metric, which is part of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.monitor.samples import METRICS, Kind, MetricSample
from penstock.telemetry.samples import Labels, Sample, gauge

PREFIX: Final = "penstock_monitor"
SERIES_MAX: Final = 100_000


def series_name(kind: Kind, metric: str) -> str:
    return f"{PREFIX}_{kind}_{metric}"


def expose(samples: Iterable[MetricSample]) -> Iterator[Sample]:
    """At most `SERIES_MAX` series, in the order of the samples."""
    for count, one in enumerate(samples):
        if count >= SERIES_MAX:
            return
        about = METRICS.get((one.kind, one.metric))
        text = f"{about.text} ({about.unit})" if about is not None else one.unit
        yield gauge(series_name(one.kind, one.metric), text, one.value, labels_of(one))


def labels_of(sample: MetricSample) -> Labels:
    labels: list[tuple[str, str]] = [("cluster", sample.cluster)]
    if sample.kind is Kind.PIPELINE:
        labels.append(("pipeline", sample.name))
    if sample.broker is not None:
        labels.append(("broker", str(sample.broker)))
    if sample.topic is not None:
        labels.append(("topic", sample.topic))
    if sample.partition is not None:
        labels.append(("partition", str(sample.partition)))
    if sample.group is not None:
        labels.append(("group", sample.group))
    return tuple(labels)

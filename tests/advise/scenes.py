"""Clusters in a given state, for tests of advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.advise import Situation
from penstock.monitor.derive import samples
from penstock.monitor.observed import BrokerShape, GroupView, Observed, PartitionShape, Shape, TopicShape
from penstock.monitor.samples import METRICS, Kind, MetricSample

NOW_MS = 1_763_430_000_000


def observed(partitions: int = 6, brokers: int = 3) -> Observed:
    """A healthy cluster with one topic."""
    nodes = list(range(1, brokers + 1))
    rows = tuple(
        PartitionShape(number, nodes[number % brokers], _turned(nodes, number), _turned(nodes, number))
        for number in range(partitions)
    )
    return Observed(
        shape=Shape(
            cluster_id="c",
            controller_id=1,
            brokers={node: BrokerShape(node, f"host:{node}", None, True, 1.0) for node in nodes},
            topics={"orders": TopicShape("orders", b"", False, rows)},
            under_min_isr=(),
        )
    )


def _turned(nodes: list[int], number: int) -> tuple[int, ...]:
    start = number % len(nodes)
    return tuple(nodes[start:] + nodes[:start])


def written(state: Observed, rates: list[float]) -> Observed:
    """So many records per second were written to each partition."""
    state.ends.take({"orders": [1_000_000] * len(rates)}, 0.0)
    state.ends.take({"orders": [1_000_000 + int(rate * 10) for rate in rates]}, 10.0)
    return state


def read(
    state: Observed, *, members: int, lag: int, per_s: float, lag_s: float = 0.0, assignor: str = "cooperative-sticky"
) -> Observed:
    """A group has so many members, unread records (in all) and reads so fast."""
    rows = (state.ends.value or {})["orders"]
    each = lag // len(rows)
    for at_s in (0.0, 10.0):
        moved = per_s * (10.0 - at_s) / len(rows)
        committed = {("orders", number): int(end - each - moved) for number, end in enumerate(rows)}
        view = GroupView("shipping", "Stable" if members else "Empty", "classic", 1, committed, members, assignor)
        state.groups.take({"shipping": view}, at_s)
    state.lag_s = {"shipping": lag_s}
    return state


def situation(state: Observed, figures: Mapping[str, Mapping[str, float]] | None = None, **more: object) -> Situation:
    """`figures` are those of brokers, by id and metric."""
    taken = [
        *samples(state, NOW_MS),
        *(
            MetricSample(
                time_ms=NOW_MS, cluster="c", kind=Kind.BROKER, name=broker, metric=metric, value=value,
                unit=METRICS[Kind.BROKER, metric].unit, broker=int(broker),
            )
            for broker, own in (figures or {}).items()
            for metric, value in own.items()
        ),
    ]  # fmt: skip
    return Situation(observed=state, samples=taken, **more)  # type: ignore[arg-type]


def topic_figure(found: Situation, metric: str, value: float) -> Situation:
    """The same, with another figure of the topic."""
    sample = MetricSample(
        time_ms=NOW_MS, cluster="c", kind=Kind.TOPIC, name="orders", metric=metric, value=value,
        unit=METRICS[Kind.TOPIC, metric].unit, topic="orders",
    )  # fmt: skip
    return replace(found, samples=[*found.samples, sample])

"""Compares latencies with the latency budget, the needs of each class of use, and the expected cost of each acks level.

The budget of an important record: 2 ms from the producer to the broker, 3 ms to the replicas, 2 ms to the consumer.
That is 7 ms in the median, and 20 ms at the 99th percentile. Classes of use need less or more, and each acks level has
a range; both are judged at the 99th percentile. The measurement is compared with each, so that a reader sees for which
uses a cluster is fast enough now.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.perf.histogram import Histogram

__all__ = ["BUDGET_P50_MS", "BUDGET_P99_MS", "CLASSES", "Verdict", "verdicts"]

BUDGET_STAGES_MS = (("to the broker", 2.0), ("to the replicas", 3.0), ("to the consumer", 2.0))
"""The stages of a record's way in the median: network, processing and disk write of each."""
BUDGET_P50_MS = sum(stage_ms for _, stage_ms in BUDGET_STAGES_MS)
BUDGET_P99_MS = 20.0

CLASSES = (("real-time", 10.0), ("events", 50.0), ("batch", 1_000.0), ("logs", 5_000.0))
"""The 99th percentile allowed for each, from the producer's call to the consumer's receipt."""
REPLICATION_P99_MS = 100.0
ACKS_P99_MS = {"0": (1.0, 2.0), "1": (5.0, 10.0), "all": (10.0, 20.0)}
"""The 99th percentile that a producer can expect for each level, from its call to the acknowledgement."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the report. `met` is None if nothing was measured; `note` gives the reason or the difference."""

    subject: str
    measure: str
    limit_ms: float
    measured_ms: float | None
    met: bool | None
    note: str = ""

    @property
    def word(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.met]


def verdicts(
    end_to_end: dict[str, Histogram], acknowledged: dict[str, Histogram], replication_factor: int
) -> list[Verdict]:
    """`end_to_end` and `acknowledged` by acks. Budget and classes are compared with the safest level measured."""
    found: list[Verdict] = []
    safest = next((acks for acks in ("all", "1", "0") if end_to_end.get(acks) and end_to_end[acks].count), None)
    if safest is not None:
        latencies = end_to_end[safest]
        p50_ms, p99_ms = (value / 1000 for value in latencies.percentiles_us((50, 99)))
        end = f"end to end, acks={safest}"
        stages = ", ".join(f"{stage_ms:g} ms {name}" for name, stage_ms in BUDGET_STAGES_MS)
        found.append(_judged("budget", f"p50 {end}", BUDGET_P50_MS, p50_ms, stages))
        found.append(_judged("budget", f"p99 {end}", BUDGET_P99_MS, p99_ms))
        found += [_judged(name, f"p99 {end}", limit_ms, p99_ms) for name, limit_ms in CLASSES]
    found.append(_replication(acknowledged.get("all"), replication_factor))
    for acks, (_, high_ms) in ACKS_P99_MS.items():
        latencies = acknowledged.get(acks, Histogram())
        if latencies.count:
            p99_ms = latencies.percentile_us(99) / 1000
            found.append(_judged(f"acks={acks}", "p99 until acknowledged", high_ms, p99_ms, _range(acks, p99_ms)))
    return found


def _judged(subject: str, measure: str, limit_ms: float, measured_ms: float, note: str = "") -> Verdict:
    return Verdict(subject, measure, limit_ms, measured_ms, measured_ms <= limit_ms, note)


def _replication(latencies: Histogram | None, replication_factor: int) -> Verdict:
    measure = "p99 until acknowledged, acks=all"
    if latencies is None or not latencies.count:
        return Verdict("replication", measure, REPLICATION_P99_MS, None, None, "acks=all was not asked for")
    if replication_factor < 2:
        return Verdict("replication", measure, REPLICATION_P99_MS, None, None, "the topic has one copy")
    p99_ms = latencies.percentile_us(99) / 1000
    return _judged("replication", measure, REPLICATION_P99_MS, p99_ms, f"{replication_factor} copies")


def _range(acks: str, measured_ms: float) -> str:
    low_ms, high_ms = ACKS_P99_MS[acks]
    expected = f"expected {low_ms:g} to {high_ms:g} ms"
    return f"{expected}; faster than that" if measured_ms < low_ms else expected

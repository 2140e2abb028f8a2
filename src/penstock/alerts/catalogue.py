"""The rules, as data: 000's critical and warning alerts, 002's thresholds, and a few of our own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.monitor.samples import METRICS, Kind
from penstock.planning.catalogue import Catalogue


class Severity(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    """Worth knowing, never a reason to wake somebody: such an alert is listed and not sent."""


class Comparison(StrEnum):
    ABOVE = ">"
    BELOW = "<"
    NOT = "!="

    def holds(self, value: float, bound: float) -> bool:
        if self is Comparison.ABOVE:
            return value > bound
        return value < bound if self is Comparison.BELOW else value != bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One alert: which metric, when it is bad, and what to do.

    `text`, `meaning` and `command` may name `{name}` (the resource), `{value}` and `{bound}`.
    """

    name: str
    severity: Severity
    kind: Kind
    metric: str
    bound: str
    """The value of the planning catalogue that the metric is compared with."""
    comparison: Comparison = Comparison.ABOVE
    for_s: int
    """How long the condition must hold."""
    resolve_share: float = 1.0
    """Hysteresis: it is resolved when the value is below this share of the bound (above, for BELOW)."""
    resolve_s: int = 60
    """How long the value must be good before it is resolved."""
    family: str = ""
    """Rules of one family are steps of one problem: only the worst that fires is reported."""
    text: str
    meaning: str
    command: str
    source: str

    def clear_bound(self, catalogue: Catalogue) -> float:
        """The bound that counts once the alert fires."""
        return catalogue[self.bound] * (self.resolve_share if self.comparison is not Comparison.NOT else 1.0)

    @property
    def unit(self) -> str:
        return METRICS[self.kind, self.metric].unit


_000: Final = "000, Alerting Rules"
_002_CAPACITY: Final = "002, Metrics for Capacity Planning"
_002_BROKERS: Final = "002, Broker Scaling Thresholds"
_002_CONSUMERS: Final = "002, Consumer Scaling Guidelines"
_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
_CLUSTER, _BROKER, _GROUP = Kind.CLUSTER, Kind.BROKER, Kind.GROUP


def _cluster() -> Iterator[Rule]:
    yield Rule(
        name="OfflinePartitions", severity=_CRITICAL, kind=_CLUSTER, metric="offline_partitions",
        bound="alert.offline_partitions", for_s=30, text="{value} partitions have no leader",
        meaning="Nobody can write to them or read from them.",
        command="penstock cluster describe", source=_000,
    )  # fmt: skip
    yield Rule(
        name="UnderMinIsrPartitions", severity=_CRITICAL, kind=_CLUSTER, metric="under_min_isr_partitions",
        bound="alert.under_min_isr_partitions", for_s=30, text="{value} partitions are below min.insync.replicas",
        meaning="Writes with acks=all fail (NOT_ENOUGH_REPLICAS).",
        command="penstock cluster describe", source="Penstock: added to 000's rules",
    )  # fmt: skip
    yield Rule(
        name="UnderReplicatedPartitionsMany", severity=_CRITICAL, kind=_CLUSTER, metric="under_replicated_unexplained",
        bound="alert.under_replicated_partitions", for_s=60, family="under-replicated",
        text="{value} partitions lack in-sync replicas", meaning="The next failure may make them unavailable.",
        command="penstock brokers list", source=_000,
    )  # fmt: skip
    yield Rule(
        name="UnderReplicatedPartitions", severity=_WARNING, kind=_CLUSTER, metric="under_replicated_unexplained",
        bound="alert.under_replicated_any", for_s=300, family="under-replicated",
        text="{value} partitions lack in-sync replicas", meaning="They survive fewer failures than they should.",
        command="penstock brokers list", source="000, Key Metrics",
    )  # fmt: skip
    yield Rule(
        name="ActiveControllerCount", severity=_CRITICAL, kind=_CLUSTER, metric="active_controllers",
        bound="alert.active_controllers", comparison=Comparison.NOT, for_s=30,
        text="there are {value} active controllers", meaning="Without one, no leader is elected and no topic created.",
        command="penstock cluster quorum", source=_000,
    )  # fmt: skip
    yield Rule(
        name="BrokerDown", severity=_CRITICAL, kind=_CLUSTER, metric="brokers_down", bound="alert.brokers_down",
        for_s=300, text="{value} brokers are down",
        meaning="Their replicas fall behind; partitions on one more lost broker may go offline.",
        command="penstock brokers list", source=_000,
    )  # fmt: skip


def _brokers() -> Iterator[Rule]:
    yield Rule(
        name="RequestLatency", severity=_WARNING, kind=_BROKER, metric="request_p99_ms", bound="alert.request_p99_ms",
        for_s=300, resolve_share=0.8, text="Produce requests of broker {name} take {value} ms at p99",
        meaning="Producers wait: disk, CPU or replication is slow.", command="penstock advise", source=_000,
    )  # fmt: skip
    for level, severity in (("warning", _INFO), ("scale", _WARNING), ("emergency", _CRITICAL)):
        yield Rule(
            name=f"RequestLatencyP95{level.capitalize()}", severity=severity, kind=_BROKER, metric="request_p95_ms",
            bound=f"threshold.request_p95_ms_{level}", for_s=300, resolve_share=0.8, family="request-p95",
            text="Produce requests of broker {name} take {value} ms at p95",
            meaning="The broker is near its limit.", command="penstock advise", source=_002_BROKERS,
        )  # fmt: skip
        yield Rule(
            name=f"PartitionCount{level.capitalize()}", severity=severity, kind=_BROKER, metric="partitions",
            bound=f"threshold.partitions_{level}", for_s=300, resolve_share=0.95, family="partitions",
            text="broker {name} holds {value} replicas", meaning="Failover and start take longer with each.",
            command="penstock brokers add", source=_002_BROKERS,
        )  # fmt: skip
        for metric, what in (
            ("host_cpu_share", "CPU"), ("memory_share", "Memory"), ("network_share", "Network"),
            ("disk_busy_share", "DiskTime"),
        ):  # fmt: skip
            yield Rule(
                name=f"{what}Utilisation{level.capitalize()}",
                severity=severity, kind=_BROKER, metric=metric, bound=f"threshold.utilisation_{level}", for_s=600,
                resolve_share=0.9, family=f"utilisation-{metric}",
                text=f"{METRICS[_BROKER, metric].text}: {{percent}} on broker {{name}}",
                meaning="There is no room for a burst or for the load of a failed neighbour.",
                command="penstock advise", source=_002_BROKERS,
            )  # fmt: skip
    yield Rule(
        name="ReplicaLag", severity=_WARNING, kind=_BROKER, metric="replica_lag_ms", bound="alert.replica_lag_ms",
        for_s=60, resolve_share=0.5, text="a replica on broker {name} has been behind for {value} ms",
        meaning="Slow disk, network or CPU, or an overloaded broker; it may leave the ISR.",
        command="penstock advise", source=_000,
    )  # fmt: skip
    yield Rule(
        name="DiskUsage", severity=_WARNING, kind=_BROKER, metric="disk_used_share", bound="alert.disk_used",
        for_s=60, resolve_share=0.95, text="the disk of broker {name} is {percent} full",
        meaning="A full disk stops the broker. Shorten retention, move partitions, or add brokers.",
        command="penstock brokers describe {name}", source=_000,
    )  # fmt: skip
    yield Rule(
        name="CPUUsage", severity=_WARNING, kind=_BROKER, metric="cpu_share", bound="alert.cpu", for_s=300,
        resolve_share=0.9, text="the process of broker {name} uses {percent} of a core",
        meaning="A Penstock broker uses one core: latency grows from here on.",
        command="penstock advise", source=_000,
    )  # fmt: skip
    for metric, what, bound in (
        ("messages_in_per_s", "records/s in", "messages_in_healthy"),
        ("bytes_in_per_s", "bytes/s in", "bytes_in_healthy"),
        ("bytes_out_per_s", "bytes/s out", "bytes_out_healthy"),
    ):
        yield Rule(
            name=f"Idle{metric.title().replace('_', '').removesuffix('PerS')}", severity=_INFO, kind=_BROKER,
            metric=metric, bound=f"alert.{bound}", comparison=Comparison.BELOW, for_s=600,
            text=f"broker {{name}} has {{value}} {what}", meaning="It is idle. That is no fault.",
            command="penstock monitor --once", source="000, Key Metrics",
        )  # fmt: skip


def _groups() -> Iterator[Rule]:
    for name, severity, bound, for_s in (
        ("ConsumerLagCritical", _CRITICAL, "alert.lag_records_critical", 120),
        ("ConsumerLagScale", _WARNING, "consumer.lag_records_scale", 300),
        ("ConsumerLag", _WARNING, "alert.lag_records_warning", 300),
    ):
        yield Rule(
            name=name, severity=severity, kind=_GROUP, metric="lag_records", bound=bound, for_s=for_s,
            resolve_share=0.8, family="lag", text="group {name} has {value} unread records",
            meaning="It reads more slowly than its topics are written, or it has stopped.",
            command="penstock groups describe {name}", source=_000 if "Scale" not in name else _002_CONSUMERS,
        )  # fmt: skip
    for name, bound in (("ConsumerLagTimeScale", "scale"), ("ConsumerLagTime", "warning")):
        yield Rule(
            name=name, severity=_WARNING, kind=_GROUP, metric="lag_s", bound=f"consumer.lag_s_{bound}", for_s=300,
            resolve_share=0.8, family="lag-time", text="group {name} is {value} s behind",
            meaning="The oldest unread record has waited that long.",
            command="penstock groups describe {name}", source=_002_CONSUMERS,
        )  # fmt: skip
    yield Rule(
        name="PipelineDown", severity=_CRITICAL, kind=Kind.PIPELINE, metric="up", bound="alert.pipeline_up",
        comparison=Comparison.BELOW, for_s=60, text="pipeline {name} does not answer",
        meaning="It has stopped, or its endpoint cannot be reached.",
        command="penstock pipeline status", source="Penstock",
    )  # fmt: skip


RULES: Final[tuple[Rule, ...]] = (*_cluster(), *_brokers(), *_groups())
"""In a family, the worst comes first."""
UNREACHABLE: Final = "ClusterUnreachable"
"""The alert that needs no sample: no broker answers."""
UNREACHABLE_FOR_S: Final = 60
_ORDER: Final = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def worse(one: Severity, other: Severity) -> bool:
    """Whether the first is more urgent."""
    return _ORDER.index(one) < _ORDER.index(other)

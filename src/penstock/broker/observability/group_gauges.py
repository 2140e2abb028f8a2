"""Metrics of groups, computed at each scrape, under Kafka's names: those of the old coordinator, which dashboards use
(`GroupMetadataManager`), and those of the new one (`group-coordinator-metrics`)."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.coordination import Coordinator, GroupKind
from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicState
from penstock.coordinators.groups.shard import GroupShard
from penstock.telemetry.samples import Sample, counter, gauge

GROUPS_COUNTED_MAX = 50_000
"""With more groups only totals are reported, so that a scrape does not block the loop."""

MANAGER = "kafka_coordinator_group_groupmetadatamanager"
METRICS = "kafka_server_group_coordinator_metrics"
CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")


class GroupGauges:
    def __init__(self, coordinators: Coordinator[GroupShard]) -> None:
        self._coordinators = coordinators
        assert isinstance(coordinators.kind, GroupKind)
        self._kind = coordinators.kind

    def samples(self) -> Iterable[Sample]:
        yield from self._groups()
        yield from self._hosts()
        yield from self._totals()

    def _groups(self) -> Iterable[Sample]:
        shards = [host.shard for host in self._coordinators.hosts()]
        total = sum(len(shard.groups) + len(shard.offsets.groups) for shard in shards)
        if total > GROUPS_COUNTED_MAX:
            yield gauge(f"{MANAGER}_numgroups", "Groups (an upper estimate)", total)
            return
        classic = {state.value: 0 for state in ClassicState}
        consumer = dict.fromkeys(CONSUMER_STATES, 0)
        for shard in shards:
            _count(shard, classic, consumer)
        groups = sum(classic.values()) + sum(consumer.values())
        yield gauge(f"{MANAGER}_numgroups", "Groups", groups)
        yield gauge(f"{MANAGER}_numoffsets", "Committed offsets", sum(shard.offsets.count for shard in shards))
        for state, count in classic.items():
            yield gauge(f"{MANAGER}_numgroups{state.lower()}", f"Classic groups in the state {state}", count)
        text = "Groups by protocol"
        for protocol, count in (("classic", sum(classic.values())), ("consumer", sum(consumer.values()))):
            yield gauge(f"{METRICS}_group_count", text, count, (("protocol", protocol),))
        text = "Consumer groups by state"
        for state, count in consumer.items():
            yield gauge(f"{METRICS}_consumer_group_count", text, count, (("state", state.lower()),))

    def _hosts(self) -> Iterable[Sample]:
        counts = self._coordinators.counts()
        text = "Partitions of __consumer_offsets that this broker coordinates, by state"
        for state, count in (("loading", counts.loading), ("active", counts.active), ("failed", counts.failed)):
            yield gauge(f"{METRICS}_num_partitions", text, count, (("state", state),))
        times = self._coordinators.load_times
        yield gauge(f"{METRICS}_partition_load_time_max", "Longest load of a partition, in ms", times.max_ms)
        average_ms = times.sum_ms / times.count if times.count else 0.0
        yield gauge(f"{METRICS}_partition_load_time_avg", "Average load of a partition, in ms", average_ms)
        waiting = "Requests waiting for a rebalance or a commit"
        yield gauge("penstock_coordinator_waiting_requests", waiting, counts.waiting)
        memory = "Estimated memory of groups, limited by penstock.group.state.bytes.max"
        yield gauge("penstock_group_state_bytes", memory, self._kind.memory.used)

    def _totals(self) -> Iterable[Sample]:
        written = self._kind
        for name, text, value in (
            ("offset_commit_count", "Offsets committed", written.offsets),
            ("offset_deletion_count", "Offsets deleted or expired", written.offset_tombstones),
            ("group_completed_rebalance_count", "Assignments of classic groups", written.classic_groups),
            ("consumer_group_rebalance_count", "New epochs of consumer groups", written.consumer_epochs),
        ):
            yield counter(f"{METRICS}_{name}_total", text, value)
        for name, text, value in (
            ("batches", "Batches written by coordinators", self._coordinators.batches),
            ("records", "Records written by coordinators", self._coordinators.records),
            ("failures", "Coordinators that failed and were reloaded", self._coordinators.failures),
        ):
            yield counter(f"penstock_coordinator_{name}_total", text, value)


def _count(shard: GroupShard, classic: dict[str, int], consumer: dict[str, int]) -> None:
    for group_id in shard.table.group_ids():
        group = shard.groups.get(group_id)
        if group is None:
            # It has only offsets, or was loaded and has not been used yet.
            classic[ClassicState.EMPTY.value] += 1
        elif isinstance(group, ClassicGroup):
            classic[group.state.value] += 1
        else:
            consumer[group.state] += 1

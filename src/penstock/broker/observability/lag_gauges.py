"""Consumer lag, computed at each scrape, under the names that common Kafka exporters use.

A broker knows the committed offsets of the groups that it coordinates and the ends of the partitions that it leads. It
reports lag where it knows both. Elsewhere two brokers report one half each, and a monitoring system that scrapes both
can subtract. `penstock groups describe` reports lag in seconds with a verdict; that needs the timestamps of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.broker.coordination import Coordinator
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.coordinators.groups import GroupShard
from penstock.coordinators.groups.records import decode_offset_value
from penstock.telemetry.samples import Sample, gauge

OFFSETS_TOLD_MAX = 5_000
"""With more committed offsets, or more partitions, they are omitted, so that a scrape does not block the loop."""

END = "kafka_topic_partition_current_offset"
COMMITTED = "kafka_consumergroup_current_offset"
LAG = "kafka_consumergroup_lag"
LAG_SUM = "kafka_consumergroup_lag_sum"


class LagGauges:
    def __init__(self, coordinators: Coordinator[GroupShard], table: PartitionTable) -> None:
        self._coordinators = coordinators
        self._table = table

    def samples(self) -> Iterable[Sample]:
        ends = self._ends()
        if len(ends) <= OFFSETS_TOLD_MAX:
            for (topic, partition), end in sorted(ends.items()):
                labels = (("topic", topic), ("partition", str(partition)))
                yield gauge(END, "High watermark of a partition that this broker leads", end, labels)
        if sum(host.shard.offsets.count for host in self._coordinators.hosts()) <= OFFSETS_TOLD_MAX:
            yield from self._groups(ends)

    def _ends(self) -> dict[tuple[str, int], int]:
        return {
            (name.decode(), partition.index): partition.leader.high_watermark
            for name, partitions in self._table.by_name.items()
            for partition in partitions
            if partition.leader is not None and not name.startswith(b"__")
        }

    def _groups(self, ends: dict[tuple[str, int], int]) -> Iterator[Sample]:
        sums: dict[str, int] = {}
        for group_id, topic, partition, offset in sorted(self._committed()):
            labels = (("consumergroup", group_id), ("topic", topic), ("partition", str(partition)))
            yield gauge(COMMITTED, "Offset committed by a group", offset, labels)
            end = ends.get((topic, partition))
            if end is not None:
                lag = max(0, end - offset)
                sums[group_id] = sums.get(group_id, 0) + lag
                yield gauge(LAG, "Records that the group has not committed yet", lag, labels)
        for group_id, lag in sums.items():
            text = "Lag of a group, summed over the partitions that this broker leads"
            yield gauge(LAG_SUM, text, lag, (("consumergroup", group_id),))

    def _committed(self) -> Iterator[tuple[str, str, int, int]]:
        for host in self._coordinators.hosts():
            offsets = host.shard.offsets
            for group_id in offsets.groups:
                for topic, partition, _, value in offsets.of_group(group_id):
                    yield group_id, topic, partition, decode_offset_value(value).offset

"""How far groups are behind, told when someone scrapes, under the names that exporters for Kafka have made common.

A broker knows the offsets of the groups that it coordinates and the ends of the partitions that it leads. Lag is told
where it knows both; elsewhere the two halves are told by two brokers, and whoever scrapes them all can subtract.
In seconds, and with a verdict, lag is told by `penstock groups describe`: that needs the times of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.broker.coordination import Coordinator
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.coordinators.groups import GroupShard
from penstock.coordinators.groups.records import decode_offset_value
from penstock.telemetry.samples import Sample, gauge

OFFSETS_TOLD_MAX = 5_000
"""Above so many committed offsets, and above so many partitions, they are left out: a scrape must not hold the loop."""

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
            yield gauge(COMMITTED, "Offset that a group has committed", offset, labels)
            end = ends.get((topic, partition))
            if end is not None:
                lag = max(0, end - offset)
                sums[group_id] = sums.get(group_id, 0) + lag
                yield gauge(LAG, "Records that a group has not committed yet", lag, labels)
        for group_id, lag in sums.items():
            text = "The same over all partitions that this broker leads"
            yield gauge(LAG_SUM, text, lag, (("consumergroup", group_id),))

    def _committed(self) -> Iterator[tuple[str, str, int, int]]:
        for host in self._coordinators.hosts():
            offsets = host.shard.offsets
            for group_id in offsets.groups:
                for topic, partition, _, value in offsets.of_group(group_id):
                    yield group_id, topic, partition, decode_offset_value(value).offset

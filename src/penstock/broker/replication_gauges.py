"""What there is to know about copying partitions, looked up when someone scrapes."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.gauges import gauge
from penstock.broker.metrics import Sample
from penstock.broker.partition import Partition
from penstock.broker.partitions import PartitionManager


class ReplicationGauges:
    def __init__(self, manager: PartitionManager) -> None:
        self._manager = manager

    def samples(self) -> Iterable[Sample]:
        changes, fetchers = self._manager.isr_changes, self._manager.fetchers
        if changes is None or fetchers is None:
            return
        manager = "kafka_server_replicamanager"
        counters = (
            (f"{manager}_isrshrinks_total", "In-sync replicas that were dropped by leaders here", changes.shrinks),
            (f"{manager}_isrexpands_total", "In-sync replicas that joined leaders here", changes.expands),
            ("penstock_replica_fetch_failures_total", "Fetches from leaders without an answer", fetchers.failures),
            ("penstock_replica_truncations_total", "Logs cut back to their leader's", fetchers.truncations),
        )
        for name, text, value in counters:
            yield Sample(name, "counter", text, (), value)
        yield gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Committed records that the slowest replica here lacks",
            max((self._lag(partition) for partition in self._manager.table.all()), default=0),
        )

    @staticmethod
    def _lag(partition: Partition) -> int:
        follower, log = partition.follower, partition.log
        return 0 if follower is None or log is None else max(0, follower.leader_high_watermark - log.end_offset)

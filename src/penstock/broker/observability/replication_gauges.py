"""Metrics of replication, computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.apis.replica_fetch import ReplicaFetch
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.partitions import PartitionManager
from penstock.runtime import Runtime
from penstock.telemetry.samples import Sample, counter, gauge


class ReplicationGauges:
    def __init__(self, runtime: Runtime, manager: PartitionManager, sent: ReplicaFetch) -> None:
        self._runtime = runtime
        self._manager = manager
        self._sent = sent

    def samples(self) -> Iterable[Sample]:
        changes, fetchers = self._manager.roles.isr_changes, self._manager.roles.fetchers
        manager, topics = "kafka_server_replicamanager", "kafka_server_brokertopicmetrics"
        sent = self._sent
        counters = (
            (f"{manager}_isrshrinks_total", "Replicas removed from the ISR by leaders on this broker", changes.shrinks),
            (f"{manager}_isrexpands_total", "Replicas added to the ISR by leaders on this broker", changes.expands),
            (f"{topics}_replicationbytesin_total", "Bytes copied from leaders", fetchers.bytes_copied),
            (f"{topics}_replicationbytesout_total", "Bytes sent to followers", sent.bytes_sent),
            (f"{topics}_reassignmentbytesin_total", "Bytes copied to move replicas in", fetchers.bytes_copied_of_moved),
            (f"{topics}_reassignmentbytesout_total", "Bytes sent to move replicas out", sent.bytes_sent_of_moved),
            ("penstock_replica_fetch_failures_total", "Failed fetches from leaders", fetchers.failures),
            ("penstock_replica_truncations_total", "Truncations of logs to match their leader's", fetchers.truncations),
        )
        for name, text, value in counters:
            yield counter(name, text, value)
        throttles, now_ms = self._manager.throttles, self._runtime.now_ms()
        rates = (("leaderreplication", throttles.leader), ("followerreplication", throttles.follower))
        for name, throttle in rates:
            text = "Bytes per second of throttled replicas"
            yield gauge(f"kafka_server_{name}_byte_rate", text, throttle.quota.rate(now_ms))
        held = list(self._manager.table.all())
        damaged = sum(partition.damaged_at is not None for partition in held)
        yield gauge("penstock_damaged_partitions", "Partitions whose replica on this broker is damaged", damaged)
        stranded = sum(partition.leader is not None and partition.leader.stranded for partition in held)
        yield gauge("penstock_stranded_partitions", "Led partitions cut off from the ISR, unable to commit", stranded)
        yield gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Maximum number of committed records that a replica on this broker lacks",
            max((self._lag(partition) for partition in held), default=0),
        )

    @staticmethod
    def _lag(partition: Partition) -> int:
        follower, log = partition.follower, partition.log
        return 0 if follower is None or log is None else max(0, follower.leader_high_watermark - log.end_offset)

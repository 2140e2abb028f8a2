"""Metrics of transactions at partition leaders, under Kafka's names where Kafka has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.broker.produce.verifying import Verifier
from penstock.broker.replicas.partitions import PartitionManager
from penstock.config import BrokerConfig
from penstock.runtime import Runtime
from penstock.telemetry.samples import Sample, counter, gauge, summary

LATE_AFTER_MS = 5 * 60_000
"""A transaction that has outlived the longest permitted timeout by this much hangs, as in Kafka."""


class TransactionGauges:
    def __init__(
        self,
        runtime: Runtime,
        manager: PartitionManager,
        verifier: Verifier,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._runtime = runtime
        self._manager = manager
        self._verifier = verifier
        self._config = config

    def samples(self) -> Iterable[Sample]:
        now_ms = self._runtime.wall_ms()
        late_ms = now_ms - self._config().transaction_max_timeout_ms - LATE_AFTER_MS
        open_ones = late = held_back = 0
        for partition in self._manager.table.all():
            log = partition.log
            if log is None or log.transactions is None:
                continue
            open_ones += len(log.transactions)
            held_back = max(held_back, partition.high_watermark - partition.last_stable_offset)
            oldest = log.transactions.oldest_open()
            producer = None if oldest is None else log.producers.get(oldest)
            late += producer is not None and producer.last_append_ms < late_ms
        yield gauge(
            "kafka_server_replicamanager_partitionswithlatetransactionscount",
            "Partitions with a transaction that is open for longer than any timeout permits",
            late,
        )
        yield gauge("penstock_partition_transactions_open", "Open transactions, summed over all partitions", open_ones)
        yield gauge(
            "penstock_last_stable_offset_lag_max",
            "Records that open transactions hold back from readers of committed records, in the worst partition",
            held_back,
        )
        yield counter(
            "kafka_server_addpartitionstotxnmanager_verificationfailures_total",
            "Batches that a transaction coordinator did not accept",
            self._verifier.failures,
        )
        yield from summary(
            "kafka_server_addpartitionstotxnmanager_verificationtimems",
            "Time until a transaction coordinator had answered, in ms",
            self._verifier.times,
        )

"""Metrics of the transaction coordinator: Kafka's names where it has the metric, `penstock_` before the others."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.coordination import Coordinator, TransactionKind
from penstock.coordinators.transactions import TransactionShard
from penstock.telemetry.samples import Sample, counter, gauge, summary

METRICS = "kafka_server_transaction_coordinator_metrics"


class TransactionCoordinatorGauges:
    def __init__(self, coordinators: Coordinator[TransactionShard]) -> None:
        self._coordinators = coordinators
        assert isinstance(coordinators.kind, TransactionKind)
        self._kind = coordinators.kind

    def samples(self) -> Iterable[Sample]:
        counts = self._kind.counts
        yield gauge("penstock_transactions_open", "Open transactions that this broker coordinates", counts.open)
        yield gauge("penstock_transactional_ids", "Transactional ids that this broker coordinates", counts.ids)
        yield gauge(
            "penstock_transaction_markers_pending",
            "Markers of ended transactions that are not acknowledged by their partitions yet",
            counts.markers,
        )
        text = "Transactions that have ended, by result"
        for result, count in (("commit", counts.committed), ("abort", counts.aborted)):
            yield counter("penstock_transactions_ended_total", text, count, (("result", result),))
        text = "Transactions that were aborted without their producer, by reason"
        for reason, count in (("timeout", counts.timed_out), ("fenced", counts.fenced)):
            yield counter("penstock_transactions_aborted_by_coordinator_total", text, count, (("reason", reason),))
        for code in sorted(counts.errors):
            text = "Requests to the transaction coordinator that were refused, by error"
            yield counter("penstock_transaction_errors_total", text, counts.errors[code], (("error", code.name),))
        yield from summary(
            "penstock_transaction_duration_ms", "From the first partition to the last marker", self._kind.durations
        )
        yield from self._hosts()

    def _hosts(self) -> Iterable[Sample]:
        hosts = self._coordinators.counts()
        text = "Partitions of __transaction_state that this broker coordinates, by state"
        for state, count in (("loading", hosts.loading), ("active", hosts.active), ("failed", hosts.failed)):
            yield gauge("penstock_transaction_coordinator_partitions", text, count, (("state", state),))
        times = self._coordinators.load_times
        yield gauge(f"{METRICS}_partition_load_time_max", "Longest load of a partition, in ms", times.max_ms)
        average_ms = times.sum_ms / times.count if times.count else 0.0
        yield gauge(f"{METRICS}_partition_load_time_avg", "Average load of a partition, in ms", average_ms)
        for name, text, value in (
            ("batches", "Batches written by transaction coordinators", self._coordinators.batches),
            ("failures", "Transaction coordinators that failed and were reloaded", self._coordinators.failures),
        ):
            yield counter(f"penstock_transaction_coordinator_{name}_total", text, value)

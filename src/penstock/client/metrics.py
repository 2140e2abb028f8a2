"""Metrics of a producer or consumer for Prometheus, under the names that Kafka's clients use in JMX.

    kafka_producer_producer_metrics_record_send_rate{client_id="…"}
    kafka_consumer_consumer_fetch_manager_metrics_records_lag_max{client_id="…"}

Most values come from librdkafka's statistics, every `statistics.interval.ms`; a rate is computed between the last two.
The rest is counted here and always current. Pure: the owner passes in statistics and times. `docs/reference/client.md`
lists every metric, and says which ones librdkafka can only approximate.
"""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock.client.buffer import BufferAccount
from penstock.telemetry.exposition import exposition
from penstock.telemetry.samples import Sample, counter, gauge, labelled

log = logging.getLogger("penstock.client")

STATISTICS_BYTES_MAX = 64 * 1024 * 1024
"""librdkafka reports every partition it knows; beyond this size, parsing costs more than it is worth."""
PARTITIONS_TOLD_MAX = 2000

PRODUCER = "kafka_producer_producer_metrics_"
FETCHER = "kafka_consumer_consumer_fetch_manager_metrics_"
COORDINATOR = "kafka_consumer_consumer_coordinator_metrics_"

Json = Mapping[str, Any]


class Latency:
    """Durations measured here, in ms; average and maximum cover the last two statistics intervals."""

    __slots__ = ("_before", "count", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0
        self._before = (0, 0.0, 0.0)

    def record(self, duration_ms: float) -> None:
        self.count += 1
        self.sum_ms += duration_ms
        self.max_ms = max(self.max_ms, duration_ms)

    def turn(self) -> None:
        self._before = (self.count, self.sum_ms, self.max_ms)
        self.count, self.sum_ms, self.max_ms = 0, 0.0, 0.0

    @property
    def average_ms(self) -> float:
        count = self.count + self._before[0]
        return (self.sum_ms + self._before[1]) / count if count else 0.0

    @property
    def maximum_ms(self) -> float:
        return max(self.max_ms, self._before[2])


class ClientMetrics(ABC):
    """The metrics of one client; `render` is thread-safe."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self._lock = threading.Lock()
        self._statistics: Json = {}
        self._rates: dict[str, float] = {}
        self._totals: dict[str, float] = {}

    def take_statistics(self, text: str) -> None:
        """Takes librdkafka's statistics, as JSON text."""
        if len(text) > STATISTICS_BYTES_MAX:
            log.warning("ignored statistics of %d bytes, too large to parse: set statistics.interval.ms=0", len(text))
            return
        statistics: Json = json.loads(text)
        totals = self._totals_of(statistics)
        with self._lock:
            elapsed_s = (statistics.get("ts", 0) - self._statistics.get("ts", 0)) / 1e6
            if self._statistics and elapsed_s > 0:
                self._rates = {
                    name: max(0.0, (value - self._totals.get(name, 0.0)) / elapsed_s) for name, value in totals.items()
                }
            self._totals = totals
            self._statistics = statistics
            self._on_statistics()

    def render(self) -> str:
        """The metrics in Prometheus' text format."""
        return exposition(self.samples())

    def samples(self) -> list[Sample]:
        with self._lock:
            return labelled(self._samples(), ("client_id", self.client_id))

    def value(self, name: str) -> float:
        """One metric by the last part of its name, as Kafka writes it: `record-send-rate`."""
        wanted = name.replace("-", "_")
        for sample in self.samples():
            if sample.name.endswith(f"_{wanted}"):
                return sample.value
        raise KeyError(name)

    @abstractmethod
    def _totals_of(self, statistics: Json) -> dict[str, float]:
        """Totals since the start, from librdkafka's statistics, by kind."""

    def _on_statistics(self) -> None:  # noqa: B027 - most subclasses do nothing here
        """Called after new statistics."""

    @abstractmethod
    def _samples(self) -> Iterator[Sample]:
        """All metrics, without their common labels."""

    def _counted(self, prefix: str, name: str, what: str, key: str) -> Iterator[Sample]:
        """A counter and its rate; Kafka has both for every count."""
        yield counter(f"{prefix}{name}_total", what, self._totals.get(key, 0.0))
        yield gauge(f"{prefix}{name}_rate", f"{what}, per second", self._rates.get(key, 0.0))

    def _brokers(self) -> list[Json]:
        brokers: Mapping[str, Json] = self._statistics.get("brokers", {})
        return list(brokers.values())

    def _topics(self) -> list[Json]:
        topics: Mapping[str, Json] = self._statistics.get("topics", {})
        return list(topics.values())


class ProducerMetrics(ClientMetrics):
    """`producer-metrics`."""

    def __init__(self, client_id: str, account: BufferAccount) -> None:
        super().__init__(client_id)
        self._account = account
        self.exhausted = 0
        self.waiting = 0
        self.slowed_records = 0
        self.slowed_ms = 0.0
        self.quota_bytes_per_s: float | None = None

    def _totals_of(self, statistics: Json) -> dict[str, float]:
        brokers = statistics.get("brokers", {}).values()
        return {
            "sent": statistics.get("txmsgs", 0),
            "failed": self._account.failed_records,
            "retries": sum(broker.get("txretries", 0) for broker in brokers),
            "requests": statistics.get("tx", 0),
            "bytes": statistics.get("tx_bytes", 0),
            "exhausted": self.exhausted,
        }

    def _samples(self) -> Iterator[Sample]:
        p = PRODUCER
        yield from self._counted(p, "record_send", "Records sent", "sent")
        self._totals["failed"] = self._account.failed_records
        self._totals["exhausted"] = self.exhausted
        yield from self._counted(p, "record_error", "Records that failed for good", "failed")
        yield from self._counted(p, "record_retry", "Requests sent again (librdkafka counts those)", "retries")
        yield from self._counted(p, "request", "Requests sent", "requests")
        yield from self._counted(p, "outgoing_byte", "Bytes sent on the wire", "bytes")
        yield from self._counted(p, "buffer_exhausted", "Records refused because the buffer stayed full", "exhausted")
        account = self._account
        yield gauge(f"{p}buffer_total_bytes", "Size of the buffer: buffer.memory", account.size_bytes)
        yield gauge(f"{p}buffer_available_bytes", "Free bytes of the buffer", account.available_bytes)
        yield gauge(f"{p}waiting_threads", "Senders waiting for room in the buffer", self.waiting)
        average = account.total_bytes / account.total_records if account.total_records else 0.0
        yield gauge(f"{p}record_size_avg", "Average bytes per record: key, value, headers", average)
        brokers, topics = self._brokers(), self._topics()
        rtt = _window(broker.get("rtt") for broker in brokers)
        yield gauge(f"{p}request_latency_avg", "Average request latency in ms", rtt.average / 1000)
        yield gauge(f"{p}request_latency_max", "Maximum request latency in ms", rtt.maximum / 1000)
        yield gauge(f"{p}request_latency_p99", "99th percentile of request latency in ms", rtt.p99 / 1000)
        queued = _window(broker.get("int_latency") for broker in brokers)
        yield gauge(f"{p}record_queue_time_avg", "Average ms from send to the socket", queued.average / 1000)
        yield gauge(f"{p}record_queue_time_max", "Maximum ms from send to the socket", queued.maximum / 1000)
        throttle = _window(broker.get("throttle") for broker in brokers)
        yield gauge(f"{p}produce_throttle_time_avg", "Average delay by a quota in ms", throttle.average)
        yield gauge(f"{p}produce_throttle_time_max", "Maximum delay by a quota in ms", throttle.maximum)
        size = _window(topic.get("batchsize") for topic in topics)
        count = _window(topic.get("batchcnt") for topic in topics)
        yield gauge(f"{p}batch_size_avg", "Average bytes per batch", size.average)
        yield gauge(f"{p}batch_size_max", "Maximum bytes per batch", size.maximum)
        yield gauge(f"{p}records_per_request_avg", "Average records per batch", count.average)
        plain = count.sum * average
        ratio = size.sum / plain if plain else 0.0
        yield gauge(f"{p}compression_rate_avg", "Compressed bytes per byte of records", ratio)
        in_flight = sum(broker.get("waitresp_cnt", 0) for broker in brokers)
        yield gauge(f"{p}requests_in_flight", "Requests that await a response", in_flight)
        up = sum(broker.get("state") == "UP" for broker in brokers)
        yield gauge(f"{p}connection_count", "Open connections", up)
        yield counter("penstock_producer_slowed_records_total", "Records delayed by a full buffer", self.slowed_records)
        yield counter("penstock_producer_slowed_seconds_total", "Total delay by a full buffer", self.slowed_ms / 1000)
        quota = self.quota_bytes_per_s or 0.0
        yield gauge("penstock_producer_quota_bytes", "Quota per second, given or estimated; 0: none", quota)


class ConsumerMetrics(ClientMetrics):
    """`consumer-fetch-manager-metrics` and `consumer-coordinator-metrics`."""

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.commit_latency = Latency()
        self.commits = 0
        self.failed_commits = 0

    def _totals_of(self, statistics: Json) -> dict[str, float]:
        brokers = list(statistics.get("brokers", {}).values())
        return {
            "records": statistics.get("rxmsgs", 0),
            "bytes": statistics.get("rxmsg_bytes", 0),
            "fetches": sum(broker.get("req", {}).get("Fetch", 0) for broker in brokers),
            "commits": self.commits,
            "rebalances": statistics.get("cgrp", {}).get("rebalance_cnt", 0),
        }

    def _on_statistics(self) -> None:
        self.commit_latency.turn()

    def _samples(self) -> Iterator[Sample]:
        f, c = FETCHER, COORDINATOR
        self._totals["commits"] = self.commits
        yield from self._counted(f, "records_consumed", "Records fetched", "records")
        yield from self._counted(f, "bytes_consumed", "Bytes of records fetched", "bytes")
        yield from self._counted(f, "fetch", "Fetch requests", "fetches")
        fetches = self._totals.get("fetches", 0.0)
        per_fetch = self._totals.get("records", 0.0) / fetches if fetches else 0.0
        yield gauge(f"{f}records_per_request_avg", "Average records per fetch", per_fetch)
        size = self._totals.get("bytes", 0.0) / fetches if fetches else 0.0
        yield gauge(f"{f}fetch_size_avg", "Average bytes per fetch", size)
        brokers = self._brokers()
        rtt = _window(broker.get("rtt") for broker in brokers)
        what = "Average fetch latency in ms, including the wait for data"
        yield gauge(f"{f}fetch_latency_avg", what, rtt.average / 1000)
        yield gauge(f"{f}fetch_latency_max", "Maximum fetch latency in ms", rtt.maximum / 1000)
        throttle = _window(broker.get("throttle") for broker in brokers)
        yield gauge(f"{f}fetch_throttle_time_avg", "Average delay by a quota in ms", throttle.average)
        lags = list(self._lags())
        most = max((lag for *_, lag in lags), default=0)
        yield gauge(f"{f}records_lag_max", "Lag of the partition with the most", most)
        for topic, partition, lag in lags[:PARTITIONS_TOLD_MAX]:
            yield gauge(f"{f}records_lag", "Lag in records", lag, (("topic", topic), ("partition", partition)))
        yield from self._counted(c, "commit", "Commits", "commits")
        yield counter(f"{c}commit_failed_total", "Commits that failed", self.failed_commits)
        latency = self.commit_latency
        yield gauge(f"{c}commit_latency_avg", "Average commit latency in ms", latency.average_ms)
        yield gauge(f"{c}commit_latency_max", "Maximum commit latency in ms", latency.maximum_ms)
        group: Json = self._statistics.get("cgrp", {})
        assigned = group.get("assignment_size", 0)
        yield gauge(f"{c}assigned_partitions", "Partitions assigned to this member", assigned)
        yield counter(f"{c}rebalance_total", "Rebalances", self._totals.get("rebalances", 0.0))
        hourly = self._rates.get("rebalances", 0.0) * 3600
        yield gauge(f"{c}rebalance_rate_per_hour", "Rebalances per hour", hourly)
        since = group.get("rebalance_age", 0) / 1000
        yield gauge(f"{c}last_rebalance_seconds_ago", "Seconds since the last rebalance", since)

    def _lags(self) -> Iterator[tuple[str, str, int]]:
        for topic in self._topics():
            partitions: Mapping[str, Json] = topic.get("partitions", {})
            for number, partition in partitions.items():
                # librdkafka reports -1 for partitions that it does not read and for unknown values.
                if number != "-1" and partition.get("consumer_lag", -1) >= 0:
                    yield str(topic.get("topic", "")), number, int(partition["consumer_lag"])


class _Window(NamedTuple):
    """librdkafka's rolling windows of several brokers or topics, merged."""

    average: float
    maximum: float
    p99: float
    sum: float


def _window(windows: Iterable[Json | None]) -> _Window:
    known = [window for window in windows if window and window.get("cnt", 0) > 0]
    count = sum(window["cnt"] for window in known)
    total = sum(window["avg"] * window["cnt"] for window in known)
    return _Window(
        average=total / count if count else 0.0,
        maximum=max((window.get("max", 0) for window in known), default=0.0),
        p99=max((window.get("p99", 0) for window in known), default=0.0),
        sum=float(sum(window.get("sum", 0) for window in known)),
    )

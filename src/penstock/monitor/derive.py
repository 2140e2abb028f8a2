"""Turns what was observed into samples: rates, shares and lag. Pure.

A rate is the difference of two readings over the time between them. A counter that went down was reset (the broker
restarted, the topic was created again): that interval has no rate, and the next one does. Nothing is written for a
value that is not known; a gap is a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Final

from penstock.monitor.observed import Disk, GroupView, Observed, Reading, Scrape
from penstock.monitor.samples import METRICS, Kind, MetricSample

PARTITION_SAMPLES_MAX: Final = 1_000
"""With more partitions, samples are per topic only; `skew` tells that one partition is hotter than the others."""
RATE_INTERVAL_S_MIN: Final = 0.5
"""Two readings closer together than this give no rate."""

_BROKER: Final = "kafka_server_brokertopicmetrics_"
_REQUEST: Final = "kafka_network_requestmetrics_"
_HOST: Final = "penstock_host_"


def samples(observed: Observed, time_ms: int) -> list[MetricSample]:
    """All samples of this moment."""
    maker = _Maker(observed, time_ms)
    return [*maker.cluster(), *maker.brokers(), *maker.topics(), *maker.groups(), *maker.pipelines()]


def rate(now: float | None, before: float | None, seconds: float) -> float | None:
    """Growth per second; None if a value is missing, the time is too short, or the counter was reset."""
    if now is None or before is None or seconds < RATE_INTERVAL_S_MIN or now < before:
        return None
    return (now - before) / seconds


def topic_rates(observed: Observed) -> dict[str, list[float | None]]:
    """Records per second of every partition, by topic."""
    ends, before, seconds = observed.ends.value, observed.ends.before, observed.ends.interval_s
    found: dict[str, list[float | None]] = {}
    for name, row in (ends or {}).items():
        old = (before or {}).get(name, [])
        found[name] = [
            rate(end, old[number], seconds) if end >= 0 and number < len(old) and old[number] >= 0 else None
            for number, end in enumerate(row)
        ]
    return found


def lag_records(group: GroupView, ends: Mapping[str, list[int]]) -> dict[tuple[str, int], int]:
    """Unread records by partition, where the end of the log is known."""
    found = {}
    for (topic, number), offset in group.committed.items():
        row = ends.get(topic)
        if row is not None and number < len(row) and row[number] >= 0:
            found[topic, number] = max(0, row[number] - offset)
    return found


class _Maker:
    def __init__(self, observed: Observed, time_ms: int) -> None:
        self._observed = observed
        self._time_ms = time_ms
        self._rates = topic_rates(observed)
        self._topic_sizes = self._sizes()

    def _sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for reading in self._observed.disks.values():
            for topic, sizes in (reading.value.sizes if reading.value is not None else {}).items():
                found[topic] = found.get(topic, 0) + sum(sizes.values())
        return found

    def _one(
        self,
        kind: Kind,
        name: str,
        metric: str,
        value: float | None,
        interval_s: float = 0.0,
        *,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
    ) -> Iterator[MetricSample]:
        if value is not None:
            yield MetricSample(
                time_ms=self._time_ms,
                cluster=self._observed.shape.cluster_id,
                kind=kind,
                name=name,
                metric=metric,
                value=float(value),
                unit=METRICS[kind, metric].unit,
                interval_ms=int(interval_s * 1000),
                broker=broker,
                topic=topic,
                partition=partition,
                group=group,
            )

    def cluster(self) -> Iterator[MetricSample]:
        observed, shape = self._observed, self._observed.shape
        seconds = observed.ends.interval_s
        under_replicated = shape.under_replicated()
        known = [one for row in self._rates.values() for one in row if one is not None]
        bytes_in = [one for one in starmap(self._bytes_in, self._rates.items()) if one is not None]
        figures: tuple[tuple[str, float | None, float], ...] = (
            ("brokers", sum(one.is_up for one in shape.brokers.values()), 0),
            ("brokers_down", len(shape.down()), 0),
            ("topics", len(shape.topics), 0),
            ("partitions", shape.partition_count, 0),
            ("offline_partitions", len(shape.offline()), 0),
            ("under_replicated_partitions", len(under_replicated), 0),
            ("under_replicated_unexplained", sum(place not in shape.reassigning for place in under_replicated), 0),
            ("under_min_isr_partitions", None if shape.under_min_isr is None else len(shape.under_min_isr), 0),
            ("reassigning_partitions", len(shape.reassigning), 0),
            ("active_controllers", int(shape.controller_id >= 0), 0),
            ("messages_in_per_s", sum(known) if known else None, seconds),
            ("bytes_in_per_s", sum(bytes_in) if bytes_in else None, seconds),
            ("size_bytes", sum(self._topic_sizes.values()) if observed.disks else None, 0),
            ("unassessed", len(observed.problems), 0),
        )
        for metric, value, interval_s in figures:
            yield from self._one(Kind.CLUSTER, "", metric, value, interval_s)

    def brokers(self) -> Iterator[MetricSample]:
        observed, shape = self._observed, self._observed.shape
        led: dict[int, int] = {}
        held: dict[int, int] = {}
        led_rate: dict[int, float] = {}
        for topic in shape.topics.values():
            rates = self._rates.get(topic.name, [])
            for p in topic.partitions:
                led[p.leader] = led.get(p.leader, 0) + 1
                if p.number < len(rates) and (one := rates[p.number]) is not None:
                    led_rate[p.leader] = led_rate.get(p.leader, 0.0) + one
                for broker in p.replicas:
                    held[broker] = held.get(broker, 0) + 1
        down = set(shape.down())
        for broker in sorted(shape.brokers.keys() | down):
            figures: dict[str, tuple[float | None, float]] = {
                "up": (0 if broker in down else 1, 0),
                "partitions": (held.get(broker, 0), 0),
                "leaders": (led.get(broker, 0), 0),
                "messages_in_per_s": (led_rate.get(broker), observed.ends.interval_s),
            }
            if broker in shape.brokers:
                figures["answer_ms"] = (shape.brokers[broker].answer_ms, 0)
            if (disk := observed.disks.get(broker)) is not None and disk.value is not None:
                figures.update(self._disk_figures(broker, disk.value, disk.at_s))
            if (reading := observed.scrapes.get(broker)) is not None and reading.value is not None:
                figures.update(_scraped_figures(reading))
            for metric, (value, interval_s) in figures.items():
                yield from self._one(Kind.BROKER, str(broker), metric, value, interval_s, broker=broker)

    def _disk_figures(self, broker: int, disk: Disk, at_s: float) -> dict[str, tuple[float | None, float]]:
        since = [began_s for (node, _), began_s in self._observed.behind_since_s.items() if node == broker]
        figures: dict[str, tuple[float | None, float]] = {
            "size_bytes": (sum(sum(sizes.values()) for sizes in disk.sizes.values()), 0),
            "replica_lag_messages": (max(disk.behind.values(), default=0), 0),
            "replica_lag_ms": ((at_s - min(since)) * 1000 if since else 0, 0),
        }
        if disk.total_bytes and disk.usable_bytes is not None:
            used = disk.total_bytes - disk.usable_bytes
            figures["disk_total_bytes"] = (disk.total_bytes, 0)
            figures["disk_used_bytes"] = (used, 0)
            figures["disk_used_share"] = (used / disk.total_bytes, 0)
        return figures

    def topics(self) -> Iterator[MetricSample]:
        observed, shape = self._observed, self._observed.shape
        seconds = observed.ends.interval_s
        each = shape.partition_count <= PARTITION_SAMPLES_MAX
        for topic in shape.topics.values():
            name = topic.name
            rates = self._rates.get(name, [])
            known = [one for one in rates if one is not None]
            total = sum(known)
            figures: tuple[tuple[str, float | None, float], ...] = (
                ("partitions", len(topic.partitions), 0),
                ("messages_in_per_s", total if known else None, seconds),
                ("bytes_in_per_s", self._bytes_in(name, rates), seconds),
                ("size_bytes", self._topic_sizes.get(name), 0),
                ("skew", max(known) * len(known) / total if total else None, seconds),
                ("under_replicated_partitions", sum(len(p.in_sync) < len(p.replicas) for p in topic.partitions), 0),
                ("offline_partitions", sum(p.leader < 0 for p in topic.partitions), 0),
            )
            for metric, value, interval_s in figures:
                yield from self._one(Kind.TOPIC, name, metric, value, interval_s, topic=name)
            if not each or topic.is_internal:
                continue
            ends = (observed.ends.value or {}).get(name, [])
            for p in topic.partitions:
                end = ends[p.number] if p.number < len(ends) else -1
                disk = observed.disks.get(p.leader)
                sizes = disk.value.sizes.get(name, {}) if disk is not None and disk.value is not None else {}
                for metric, value, interval_s in (
                    ("messages_in_per_s", rates[p.number] if p.number < len(rates) else None, seconds),
                    ("end_offset", end if end >= 0 else None, 0),
                    ("size_bytes", sizes.get(p.number), 0),
                ):
                    full = f"{name}-{p.number}"
                    yield from self._one(
                        Kind.PARTITION, full, metric, value, interval_s, topic=name, partition=p.number
                    )

    def _bytes_in(self, name: str, rates: list[float | None]) -> float | None:
        """Records per second × the average size of a record on disk: the protocol tells no rate of bytes."""
        known = [one for one in rates if one is not None]
        if not known:
            return None
        total = sum(known)
        if not total:
            return 0.0
        shape = self._observed.shape.topics.get(name)
        ends = (self._observed.ends.value or {}).get(name, [])
        starts = self._observed.starts.get(name, [])
        stored_bytes = stored_records = 0
        for p in shape.partitions if shape is not None else ():
            disk = self._observed.disks.get(p.leader)
            size = disk.value.sizes.get(name, {}).get(p.number) if disk is not None and disk.value is not None else None
            if size is not None and p.number < len(ends) and p.number < len(starts) and starts[p.number] >= 0:
                stored_bytes += size
                stored_records += max(0, ends[p.number] - starts[p.number])
        return total * stored_bytes / stored_records if stored_records else None

    def groups(self) -> Iterator[MetricSample]:
        observed = self._observed
        now, before = observed.groups.value or {}, observed.groups.before or {}
        seconds, ends = observed.groups.interval_s, observed.ends.value or {}
        for name, group in now.items():
            lags = lag_records(group, ends)
            old = before.get(name)
            moved = [
                offset - old.committed[place]
                for place, offset in group.committed.items()
                if old is not None and place in old.committed
            ]
            # A step back is a reset of offsets and no negative rate.
            consumed = sum(moved) / seconds if moved and min(moved) >= 0 and seconds >= RATE_INTERVAL_S_MIN else None
            produced = [
                self._rates[topic][number]
                for topic, number in group.committed
                if topic in self._rates and number < len(self._rates[topic])
            ]
            known = [one for one in produced if one is not None]
            figures: tuple[tuple[str, float | None, float], ...] = (
                ("lag_records", sum(lags.values()) if lags else None, 0),
                ("lag_records_max", max(lags.values()) if lags else None, 0),
                ("lag_s", observed.lag_s.get(name), 0),
                ("consume_per_s", consumed, seconds),
                ("produce_per_s", sum(known) if known else None, observed.ends.interval_s),
                ("members", group.members, 0),
                ("partitions", len(group.committed), 0),
            )
            for metric, value, interval_s in figures:
                yield from self._one(Kind.GROUP, name, metric, value, interval_s, group=name)

    def pipelines(self) -> Iterator[MetricSample]:
        for name, is_up in self._observed.pipelines_up.items():
            yield from self._one(Kind.PIPELINE, name, "up", int(is_up))
            reading = self._observed.pipelines.get(name)
            if not is_up or reading is None or reading.value is None:
                continue
            now, before = _sums(reading.value), _sums(reading.before or {})
            read = "penstock_pipeline_rows_read_total"
            rows = rate(now.get(read), before.get(read), reading.interval_s)
            batch_s = _largest(reading.value, "penstock_pipeline_batch_seconds")
            yield from self._one(Kind.PIPELINE, name, "records_per_s", rows, reading.interval_s)
            yield from self._one(Kind.PIPELINE, name, "lag_records", now.get("penstock_pipeline_lag_records"))
            yield from self._one(Kind.PIPELINE, name, "batch_ms", None if batch_s is None else batch_s * 1000)


def _scraped_figures(reading: Reading[Scrape]) -> dict[str, tuple[float | None, float]]:
    """Figures from a broker's own endpoint."""
    now, before, seconds = reading.value or {}, reading.before or {}, reading.interval_s

    def per_s(name: str) -> float | None:
        return rate(now.get(name), before.get(name), seconds)

    def quantile(name: str, q: str) -> float | None:
        return now.get(f'{_REQUEST}{name}{{request="Produce",quantile="{q}"}}')

    produced, bytes_in = per_s(f'{_REQUEST}requests_total{{request="Produce"}}'), per_s(f"{_BROKER}bytesin_total")
    cores = now.get(f"{_HOST}cores")
    host_cpu = per_s(f"{_HOST}cpu_seconds_total")
    total, available = now.get(f"{_HOST}memory_total_bytes"), now.get(f"{_HOST}memory_available_bytes")
    received, sent = per_s(f"{_HOST}network_received_bytes_total"), per_s(f"{_HOST}network_sent_bytes_total")
    speed = now.get(f"{_HOST}network_speed_bytes")
    operations = [per_s(f"{_HOST}disk_reads_total"), per_s(f"{_HOST}disk_writes_total")]
    busy = per_s(f"{_HOST}disk_busy_seconds_total")
    found: dict[str, tuple[float | None, float]] = {
        "messages_in_per_s": (per_s(f"{_BROKER}messagesin_total"), seconds),
        "bytes_in_per_s": (bytes_in, seconds),
        "bytes_out_per_s": (per_s(f"{_BROKER}bytesout_total"), seconds),
        "produce_per_s": (produced, seconds),
        "bytes_per_produce": (bytes_in / produced if produced and bytes_in is not None else None, seconds),
        "request_p95_ms": (quantile("totaltimems", "0.95"), 0),
        "request_p99_ms": (quantile("totaltimems", "0.99"), 0),
        "queue_p99_ms": (quantile("requestqueuetimems", "0.99"), 0),
        "stall_p99_ms": (now.get('penstock_event_loop_stall_ms{quantile="0.99"}'), 0),
        "connections": (now.get("kafka_server_socket_server_metrics_connection_count"), 0),
        "cpu_share": (per_s("process_cpu_seconds_total"), seconds),
        "host_cpu_share": (min(1.0, host_cpu / cores) if host_cpu is not None and cores else None, seconds),
        "memory_share": (1 - available / total if total and available is not None else None, 0),
        "resident_bytes": (now.get("process_resident_memory_bytes"), 0),
        "disk_busy_share": (min(1.0, busy) if busy is not None else None, seconds),
        "disk_iops": (sum(one for one in operations if one is not None) if all_known(operations) else None, seconds),
        "disk_read_bytes_per_s": (per_s(f"{_HOST}disk_read_bytes_total"), seconds),
        "disk_write_bytes_per_s": (per_s(f"{_HOST}disk_written_bytes_total"), seconds),
        "network_in_bytes_per_s": (received, seconds),
        "network_out_bytes_per_s": (sent, seconds),
        "network_share": (max(received, sent) / speed if speed and received is not None and sent is not None else None,
                          seconds),
    }  # fmt: skip
    return {metric: figure for metric, figure in found.items() if figure[0] is not None}


def all_known(values: list[float | None]) -> bool:
    return all(one is not None for one in values)


def _sums(scrape: Scrape) -> dict[str, float]:
    """Sums over the labels of each name."""
    found: dict[str, float] = {}
    for series, value in scrape.items():
        name = series.partition("{")[0]
        found[name] = found.get(name, 0.0) + value
    return found


def _largest(scrape: Scrape, name: str) -> float | None:
    return max((value for series, value in scrape.items() if series.partition("{")[0] == name), default=None)

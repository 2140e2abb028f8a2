"""What the broker counts, under the names Kafka's operators know (as the usual JMX exporters print them).

On the hot path a count is an attribute that goes up by one; everything else (rates, percentiles, gauges that are
looked up) happens when someone scrapes. `docs/metrics.md` lists every metric with its healthy range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
RATE_INTERVAL_MS = 5_000
_ONE_MINUTE_ALPHA = 1 - 2.718281828459045 ** (-5 / 60)


class Histogram:
    """Durations in log-linear buckets: eight per power of two of microseconds, so a quantile is right to 12 %."""

    __slots__ = ("buckets", "count", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self.buckets = [0] * 280
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0

    def record(self, duration_ms: float) -> None:
        micros = int(duration_ms * 1000)
        if micros < 16:
            slot = micros if micros > 0 else 0
        else:
            shift = micros.bit_length() - 4
            slot = (shift << 3) + (micros >> shift)
            if slot > 279:
                slot = 279
        self.buckets[slot] += 1
        self.count += 1
        self.sum_ms += duration_ms
        if duration_ms > self.max_ms:
            self.max_ms = duration_ms

    def quantile(self, q: float) -> float:
        """The upper edge, in ms, of the bucket that holds this quantile; 0 if nothing was recorded."""
        rank = q * self.count
        seen = 0
        for slot, count in enumerate(self.buckets):
            seen += count
            if count and seen >= rank:
                return min(_upper_micros(slot) / 1000, self.max_ms)
        return 0.0


def _upper_micros(slot: int) -> int:
    if slot < 16:
        return slot + 1
    shift = (slot >> 3) - 1
    return ((slot - (shift << 3)) + 1) << shift


class Rate:
    """Kafka's one-minute moving average of a counter."""

    __slots__ = ("_last", "per_second")

    def __init__(self) -> None:
        self._last = 0
        self.per_second = 0.0

    def tick(self, value: int) -> None:
        now = (value - self._last) / (RATE_INTERVAL_MS / 1000)
        self._last = value
        self.per_second += _ONE_MINUTE_ALPHA * (now - self.per_second)


class RequestMetrics:
    """One API's requests."""

    __slots__ = ("at_once", "errors", "name", "queue", "requests", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.at_once = 0
        """Requests that waited for none before them; they enter `queue` when someone looks."""
        self.errors = 0
        self.total = Histogram()
        self.queue = Histogram()

    def settle(self) -> None:
        self.queue.buckets[0] += self.at_once
        self.queue.count += self.at_once
        self.at_once = 0


class Sample(NamedTuple):
    """One line of the exposition."""

    name: str
    kind: str
    help: str
    labels: tuple[tuple[str, str], ...]
    value: float


Gauge = Callable[[], Iterable[Sample]]


class BrokerMetrics:
    __slots__ = (
        "_gauges",
        "_rates",
        "bytes_in",
        "bytes_out",
        "connections_closed",
        "connections_created",
        "connections_refused",
        "failed_fetch",
        "failed_produce",
        "messages_in",
        "refused_frames",
        "requests",
        "stalls",
        "unexpected_errors",
    )

    COUNTERS = (
        ("messages_in", "kafka_server_brokertopicmetrics_messagesin", "Messages appended"),
        ("bytes_in", "kafka_server_brokertopicmetrics_bytesin", "Bytes appended"),
        ("bytes_out", "kafka_server_brokertopicmetrics_bytesout", "Bytes of records sent to consumers"),
        ("failed_produce", "kafka_server_brokertopicmetrics_failedproducerequests", "Produce parts refused"),
        ("failed_fetch", "kafka_server_brokertopicmetrics_failedfetchrequests", "Fetch parts refused"),
    )
    OWN_COUNTERS = (
        ("connections_created", "kafka_server_socket_server_metrics_connection_creation", "Connections accepted"),
        ("connections_closed", "kafka_server_socket_server_metrics_connection_close", "Connections closed"),
        ("connections_refused", "penstock_connections_refused", "Connections over a limit"),
        ("refused_frames", "penstock_frames_refused", "Connections closed because what they sent is no request"),
        ("unexpected_errors", "penstock_unexpected_errors", "Handlers that raised what they should not"),
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.failed_produce = 0
        self.failed_fetch = 0
        self.connections_created = 0
        self.connections_closed = 0
        self.connections_refused = 0
        self.refused_frames = 0
        self.unexpected_errors = 0
        self.stalls = Histogram()
        self.requests: dict[int, RequestMetrics] = {}
        self._rates = {name: Rate() for name, _, _ in self.COUNTERS}
        self._gauges: list[Gauge] = []

    def add_gauges(self, gauge: Gauge) -> None:
        """Values that are looked up at each scrape."""
        self._gauges.append(gauge)

    def tick(self) -> None:
        """Every `RATE_INTERVAL_MS`."""
        for name, rate in self._rates.items():
            rate.tick(getattr(self, name))

    def samples(self) -> Iterable[Sample]:
        for attribute, name, text in self.COUNTERS:
            yield Sample(name + "_total", "counter", text, (), getattr(self, attribute))
        for attribute, name, text in self.COUNTERS:
            rate = self._rates[attribute].per_second
            yield Sample(name + "persec_oneminuterate", "gauge", text + " per second, one-minute average", (), rate)
        for attribute, name, text in self.OWN_COUNTERS:
            yield Sample(name + "_total", "counter", text, (), getattr(self, attribute))
        requests = [metrics for _, metrics in sorted(self.requests.items()) if metrics.requests]
        for metrics in requests:
            labels = (("request", metrics.name),)
            yield Sample("kafka_network_requestmetrics_requests_total", "counter", "Requests", labels, metrics.requests)
        for metrics in requests:
            labels = (("request", metrics.name),)
            yield Sample("kafka_network_requestmetrics_errors_total", "counter", "Failed", labels, metrics.errors)
        total = "Time from the last byte of the request to its answer, in ms"
        for metrics in requests:
            yield from summary("kafka_network_requestmetrics_totaltimems", total, metrics.name, metrics.total)
        queue = "Time a whole request waited to be served, in ms"
        for metrics in requests:
            metrics.settle()
            yield from summary("kafka_network_requestmetrics_requestqueuetimems", queue, metrics.name, metrics.queue)
        stall = "How late the event loop was, in ms: what garbage collection is to a JVM"
        yield from summary("penstock_event_loop_stall_ms", stall, None, self.stalls)
        for gauge in self._gauges:
            yield from gauge()


def summary(name: str, text: str, request: str | None, histogram: Histogram) -> Iterable[Sample]:
    labels = () if request is None else (("request", request),)
    for q in QUANTILES:
        yield Sample(name, "summary", text, (*labels, ("quantile", str(q))), histogram.quantile(q))
    yield Sample(name + "_count", "summary", text, labels, histogram.count)
    yield Sample(name + "_sum", "summary", text, labels, histogram.sum_ms)


def exposition(samples: Iterable[Sample]) -> str:
    """Prometheus' text format."""
    lines: list[str] = []
    headed = ""
    for name, kind, text, labels, value in samples:
        family = name.removesuffix("_count").removesuffix("_sum") if kind == "summary" else name
        if family != headed:
            lines.append(f"# HELP {family} {text}")
            lines.append(f"# TYPE {family} {kind}")
            headed = family
        said = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels)
        lines.append(f"{name}{{{said}}} {_number(value)}" if said else f"{name} {_number(value)}")
    lines.append("")
    return "\n".join(lines)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

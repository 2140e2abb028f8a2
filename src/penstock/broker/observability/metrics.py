"""The broker's counters, under the names known to Kafka operators (as the usual JMX exporters print them).

On the hot path a counter is an attribute that is incremented. Everything else (rates, percentiles, gauges) is computed
at each scrape. `docs/reference/metrics.md` lists every metric with its healthy range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.telemetry.samples import WINDOW_TICKS, Histogram, Rate, Sample, counter, gauge, summary


class RequestMetrics:
    """The requests of one API."""

    __slots__ = ("at_once", "errors", "name", "queue", "requests", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.at_once = 0
        """Requests that did not queue; they are added to `queue` at a scrape."""
        self.errors = 0
        self.total = Histogram()
        self.queue = Histogram()

    def settle(self) -> None:
        self.queue.buckets[0] += self.at_once
        self.queue.count += self.at_once
        self.at_once = 0


Gauges = Callable[[], Iterable[Sample]]


class BrokerMetrics:
    __slots__ = (
        "_gauges",
        "_rates",
        "_ticks",
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
        ("failed_produce", "kafka_server_brokertopicmetrics_failedproducerequests", "Produce partitions refused"),
        ("failed_fetch", "kafka_server_brokertopicmetrics_failedfetchrequests", "Fetch partitions refused"),
    )
    OWN_COUNTERS = (
        ("connections_created", "kafka_server_socket_server_metrics_connection_creation", "Connections accepted"),
        ("connections_closed", "kafka_server_socket_server_metrics_connection_close", "Connections closed"),
        ("connections_refused", "penstock_connections_refused", "Connections refused because of a limit"),
        ("refused_frames", "penstock_frames_refused", "Connections closed because of an invalid request"),
        ("unexpected_errors", "penstock_unexpected_errors", "Unexpected exceptions in request handlers"),
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
        self._gauges: list[Gauges] = []
        self._ticks = 0

    def add_gauges(self, gauges: Gauges) -> None:
        """Add a source of values that are computed at each scrape."""
        self._gauges.append(gauges)

    def tick(self) -> None:
        """Called every `RATE_INTERVAL_MS` of `penstock.telemetry.samples`."""
        for name, rate in self._rates.items():
            rate.tick(getattr(self, name))
        self._ticks += 1
        if self._ticks % WINDOW_TICKS == 0:
            self.stalls.rotate()
            for requests in self.requests.values():
                requests.settle()
                requests.total.rotate()
                requests.queue.rotate()

    def samples(self) -> Iterable[Sample]:
        for attribute, name, text in self.COUNTERS:
            yield counter(name + "_total", text, getattr(self, attribute))
        for attribute, name, text in self.COUNTERS:
            rate = self._rates[attribute].per_second
            yield gauge(name + "persec_oneminuterate", text + " per second, one-minute average", rate)
        for attribute, name, text in self.OWN_COUNTERS:
            yield counter(name + "_total", text, getattr(self, attribute))
        total = "Time from the last byte of the request to its response, in ms"
        queue = "Time a complete request waited in the queue, in ms"
        for _, metrics in sorted(self.requests.items()):
            if metrics.requests:
                metrics.settle()
                labels = (("request", metrics.name),)
                prefix = "kafka_network_requestmetrics_"
                yield counter(prefix + "requests_total", "Requests", metrics.requests, labels)
                yield counter(prefix + "errors_total", "Failed", metrics.errors, labels)
                yield from summary(prefix + "totaltimems", total, metrics.total, labels)
                yield from summary(prefix + "requestqueuetimems", queue, metrics.queue, labels)
        stall = "Delay of the event loop, in ms; comparable to garbage-collection pauses of a JVM"
        yield from summary("penstock_event_loop_stall_ms", stall, self.stalls)
        for gauges in self._gauges:
            yield from gauges()

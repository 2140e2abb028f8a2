"""Serves `GET /metrics` for Prometheus, in its own thread.

with serve_metrics("127.0.0.1:9464", producer.metrics, consumer.metrics) as server:
    print(server.url)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from penstock.client.errors import SettingsError
from penstock.config import parse_host_port
from penstock.telemetry.background import BackgroundServer
from penstock.telemetry.endpoint import metrics_routes
from penstock.telemetry.samples import Sample


class HasSamples(Protocol):
    def samples(self) -> list[Sample]: ...


class MetricsServer(BackgroundServer):
    """Serves until it is closed."""

    @property
    def url(self) -> str:
        return f"http://{self.address}/metrics"


def serve_metrics(address: str, *metrics: HasSamples) -> MetricsServer:
    """Serves the metrics of these clients at HOST:PORT; port 0 picks a free one."""
    host, port = parse_host_port(address)

    def samples() -> Iterator[Sample]:
        for one in metrics:
            yield from one.samples()

    try:
        return MetricsServer(host, port, metrics_routes(samples))
    except OSError as problem:
        raise SettingsError("metrics", f"cannot listen on {address}: {problem.strerror}") from problem

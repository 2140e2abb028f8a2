"""`GET /metrics` for Prometheus, in a thread of its own.

    with serve_metrics("127.0.0.1:9464", producer.metrics, consumer.metrics) as server:
        print(server.url)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Protocol, Self

from penstock.client.errors import SettingsError
from penstock.client.metrics import Sample, render
from penstock.config import parse_host_port

REQUEST_TIMEOUT_S = 5
"""One request after another is served: none may keep the others waiting for longer."""


class HasSamples(Protocol):
    def samples(self) -> list[Sample]: ...


def serve_metrics(address: str, *metrics: HasSamples) -> MetricsServer:
    """Serves the metrics of these clients at HOST:PORT; port 0 takes one that is free."""
    host, port = parse_host_port(address)

    def rendered() -> str:
        return render(sample for one in metrics for sample in one.samples())

    try:
        return MetricsServer(host, port, rendered)
    except OSError as problem:
        raise SettingsError("metrics", f"cannot listen on {address}: {problem.strerror}") from problem


class MetricsServer:
    def __init__(self, host: str, port: int, rendered: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                known = self.path.partition("?")[0] in ("/metrics", "/")
                body = (rendered() if known else "only /metrics is served here\n").encode()
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """A scrape every few seconds is no news."""

        self._server = HTTPServer((host, port), Handler)
        self.host, self.port = host, self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="penstock-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""A run's figures for Prometheus, on a port of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.pipeline.model import PipelineError, Problem
from penstock.pipeline.progress import QueryFigures
from penstock.pipeline.status import RunStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_TIMEOUT_S = 10

_PER_QUERY: tuple[tuple[str, str, str, Callable[[QueryFigures], float | None]], ...] = (
    ("rows_read_total", "counter", "Records read from topics.", lambda q: q.rows_read),
    ("rows_written_total", "counter", "Rows handed to the sink.", lambda q: q.rows_written),
    ("bad_records_total", "counter", "Records that did not parse.", lambda q: q.bad),
    ("late_rows_total", "counter", "Rows that came behind the watermark, at least.", lambda q: q.late),
    ("batches_total", "counter", "Micro-batches.", lambda q: q.batches),
    ("rows_per_second", "gauge", "Rows per second of the last batch.", lambda q: q.rows_per_second),
    ("lag_records", "gauge", "Records between the last batch and the ends of the logs.", lambda q: q.lag),
    ("state_rows", "gauge", "Rows in the state store.", lambda q: q.state_rows),
    ("state_bytes", "gauge", "Bytes of the state store.", lambda q: q.state_bytes),
    ("batch_seconds", "gauge", "How long the last batch took.", lambda q: q.batch_ms / 1000),
    ("batch_id", "gauge", "The number of the last batch.", lambda q: q.batch),
    ("running", "gauge", "1 while the query runs.", lambda q: 1 if q.state in ("starting", "running") else 0),
)


def prometheus_text(status: RunStatus) -> str:
    """All figures in Prometheus' text format."""
    lines = []
    for name, kind, meaning, value_of in _PER_QUERY:
        lines += [f"# HELP penstock_pipeline_{name} {meaning}", f"# TYPE penstock_pipeline_{name} {kind}"]
        for query in list(status.queries.values()):
            value = value_of(query)
            if value is not None:
                labels = f'pipeline="{_escaped(status.pipeline)}",query="{_escaped(query.name)}"'
                lines.append(f"penstock_pipeline_{name}{{{labels}}} {value:g}" if value < 1e6 else
                             f"penstock_pipeline_{name}{{{labels}}} {value:.0f}")  # fmt: skip
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Answers GET /metrics until it is closed."""

    def __init__(self, host: str, port: int, status: RunStatus) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                found = self.path.partition("?")[0] in ("/", "/metrics")
                body = prometheus_text(status).encode() if found else b"see /metrics\n"
                with suppress(OSError):  # whoever asked is gone
                    self.send_response(200 if found else 404)
                    self.send_header("Content-Type", CONTENT_TYPE)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """A line per scrape would be all that one sees."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise PipelineError(
                Problem(f"cannot listen on {host}:{port} for metrics: {error.strerror}", "choose another --metrics")
            ) from None
        self.address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

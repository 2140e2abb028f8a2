"""A run's figures for Prometheus, on a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.pipeline.model import PipelineError, Problem
from penstock.pipeline.progress import QueryFigures
from penstock.pipeline.status import RunStatus
from penstock.telemetry.background import BackgroundServer
from penstock.telemetry.endpoint import metrics_routes
from penstock.telemetry.samples import Sample

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


def samples(status: RunStatus) -> Iterator[Sample]:
    """All figures of a run."""
    for name, kind, meaning, value_of in _PER_QUERY:
        for query in list(status.queries.values()):
            value = value_of(query)
            if value is not None:
                labels = (("pipeline", status.pipeline), ("query", query.name))
                yield Sample(f"penstock_pipeline_{name}", kind, meaning, value, labels)


def serve_metrics(host: str, port: int, status: RunStatus) -> BackgroundServer:
    """Answers GET /metrics until it is closed."""
    try:
        return BackgroundServer(host, port, metrics_routes(lambda: samples(status)))
    except OSError as error:
        raise PipelineError(
            Problem(f"cannot listen on {host}:{port} for metrics: {error.strerror}", "choose another --metrics")
        ) from None

"""Spark's reports as figures; the status file; the page for Prometheus."""

from __future__ import annotations

import fcntl
import io
import json
import os
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.pipeline_view import StatusView, heading, line_of, rows_of
from penstock.pipeline.checkpoints import LOCK_NAME, held, is_held
from penstock.pipeline.metrics import samples, serve_metrics
from penstock.pipeline.model import Pipeline, PipelineError
from penstock.pipeline.progress import QueryFigures, Report, lag_of, records_read
from penstock.pipeline.status import RunStatus, read_status, write_status
from penstock.telemetry.exposition import exposition

REPORT = {
    "id": "9c1d", "runId": "f3", "name": "revenue", "timestamp": "2026-01-31T12:00:00.000Z", "batchId": 7,
    "batchDuration": 1200, "numInputRows": 100, "inputRowsPerSecond": 50.0, "processedRowsPerSecond": 83.3,
    "durationMs": {"triggerExecution": 1200}, "eventTime": {"watermark": "2026-01-31T11:50:00.000Z"},
    "stateOperators": [
        {"operatorName": "stateStoreSave", "numRowsTotal": 12, "memoryUsedBytes": 5000, "numRowsDroppedByWatermark": 3,
         "customMetrics": {"rocksdbSstFileSize": 9000}}
    ],
    "sources": [
        {"endOffset": {"orders": {"0": 50, "1": 50}, "penstock": {"v": 1}},
         "latestOffset": {"orders": {"0": 60, "1": 50}}, "numInputRows": 100}
    ],
    "observedMetrics": {"source.orders": {"records": 100, "bad": 4}, "sink.rows": {"rows": 9}},
}  # fmt: skip


def figures(*reports: dict[str, object]) -> QueryFigures:
    query = QueryFigures("revenue", "table lake/revenue")
    for report in reports:
        query.add(report)
    return query


def test_a_report_becomes_figures() -> None:
    query = figures(REPORT)
    assert (query.batch, query.batches, query.rows_read, query.rows_written) == (7, 1, 100, 9)
    assert (query.bad, query.late, query.lag) == (4, 3, 10)
    assert (query.state_rows, query.state_bytes) == (12, 9000)
    assert (query.rows_per_second, query.batch_ms) == (83.3, 1200)
    assert (query.state, query.watermark) == ("running", "2026-01-31T11:50:00.000Z")


def test_a_record_counts_once_however_many_queries_read_it() -> None:
    clicks = {"endOffset": {"clicks": {"0": 7}}, "numInputRows": 7}
    both = {**REPORT, "numInputRows": 107, "sources": [*REPORT["sources"], clicks]}  # type: ignore[misc]
    revenue, dead_letters, joined = figures(REPORT, REPORT), figures(REPORT), figures(both)
    assert records_read([revenue, dead_letters]) == 200
    assert records_read([revenue, dead_letters, joined]) == 207
    assert records_read([]) == 0


def test_counts_add_up_and_an_idle_trigger_keeps_the_rate() -> None:
    idle = {**REPORT, "numInputRows": 0, "processedRowsPerSecond": 0.0, "batchId": 8, "batchDuration": 3,
            "observedMetrics": {}, "stateOperators": []}  # fmt: skip
    query = figures(REPORT, {**REPORT, "batchId": 8}, {**idle, "batchId": 9})
    assert (query.rows_read, query.bad, query.late, query.rows_written) == (200, 8, 6, 18)
    assert (query.rows_per_second, query.batch_ms) == (83.3, 1200)
    assert (query.batch, query.batches) == (8, 2), "nothing to do is no batch, and has the number of the next"


def test_how_far_a_query_read_comes_as_json_too() -> None:
    for end in ({"orders": {"1": 5}}, '{"orders": {"1": 5}}'):
        assert Report.read({"sources": [{"endOffset": end}]}).positions == {("orders", 1): 5}
    assert Report.read({"sources": [{"endOffset": None}]}).positions == {}


def test_a_report_of_another_sparks_making_is_no_crash() -> None:
    strange: dict[str, object] = {
        "batchId": None,
        "numInputRows": "x",
        "sources": [{}],
        "stateOperators": None,
        "eventTime": [],
    }
    query = figures({}, strange)
    assert (query.rows_read, query.lag) == (0, None)


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"a": {"0": 5}}, {"a": {"0": 7, "1": 3}}, 5),
        ('{"a": {"0": 5}}', '{"a": {"0": 5}}', 0),
        ({"a": {"0": 9}}, {"a": {"0": 7}}, 0),
        (None, {"a": {"0": 7}}, None),
        ("not json", "{", None),
    ],
)
def test_lag_is_what_lies_between_a_batch_and_the_end(end: object, latest: object, lag: int | None) -> None:
    assert lag_of({"endOffset": end, "latestOffset": latest}) == lag


def status(**changes: object) -> RunStatus:
    run = RunStatus("shop", "cp", "every 5 s", state="running", pid=os.getpid(), host=socket.gethostname())
    run.queries["revenue"] = figures(REPORT)
    for name, value in changes.items():
        setattr(run, name, value)
    return run


class TestStatusFile:
    def test_it_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        written = status()
        write_status(tmp_path / "s.json", written)
        with held(Pipeline(name="shop", checkpoint=str(tmp_path))):
            assert read_status(tmp_path / "s.json") == written

    def test_none_is_none(self, tmp_path: Path) -> None:
        assert read_status(tmp_path / "s.json") is None

    def test_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "s.json").write_text("{}")
        with pytest.raises(ValueError, match="no status of a pipeline"):
            read_status(tmp_path / "s.json")

    def test_what_another_version_added_is_passed_over(self, tmp_path: Path) -> None:
        document = status(state="stopped").as_json()
        document["weather"] = "fine"
        (tmp_path / "s.json").write_text(json.dumps(document))
        assert read_status(tmp_path / "s.json") == status(state="stopped")

    def test_a_run_that_holds_its_checkpoint_no_more_is_lost(self, tmp_path: Path) -> None:
        """Also where another process has its number now."""
        with held(Pipeline(name="shop", checkpoint=str(tmp_path))):
            pass
        write_status(tmp_path / "s.json", status(pid=os.getpid()))
        found = read_status(tmp_path / "s.json")
        assert found is not None
        assert found.state == "lost"
        assert "is gone" in found.error

    def test_to_look_at_a_run_keeps_no_other_away(self, tmp_path: Path) -> None:
        pipeline = Pipeline(name="shop", checkpoint=str(tmp_path))
        with held(pipeline):
            assert is_held(tmp_path) is True
        with (tmp_path / LOCK_NAME).open() as looking:
            fcntl.flock(looking, fcntl.LOCK_SH)
            threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
            with held(pipeline):
                assert is_held(tmp_path) is True
        assert is_held(tmp_path) is False

    def test_one_on_another_machine_is_believed(self, tmp_path: Path) -> None:
        write_status(tmp_path / "s.json", status(pid=2**22 + 12345, host="elsewhere"))
        found = read_status(tmp_path / "s.json")
        assert found is not None
        assert found.state == "running"


class TestMetrics:
    def test_every_figure_is_there_by_query(self) -> None:
        text = exposition(samples(status()))
        assert 'penstock_pipeline_rows_read_total{pipeline="shop",query="revenue"} 100' in text.splitlines()
        assert 'penstock_pipeline_lag_records{pipeline="shop",query="revenue"} 10' in text.splitlines()
        assert 'penstock_pipeline_late_rows_total{pipeline="shop",query="revenue"} 3' in text.splitlines()
        assert 'penstock_pipeline_bad_records_total{pipeline="shop",query="revenue"} 4' in text.splitlines()
        assert 'penstock_pipeline_batch_seconds{pipeline="shop",query="revenue"} 1.2' in text.splitlines()
        assert 'penstock_pipeline_running{pipeline="shop",query="revenue"} 1' in text.splitlines()

    def test_names_and_large_numbers_are_written_as_prometheus_reads_them(self) -> None:
        run = status(pipeline='a"b\\c')
        run.queries["revenue"].rows_read = 12_345_678_901
        line = exposition(samples(run)).splitlines()[2]
        assert line == 'penstock_pipeline_rows_read_total{pipeline="a\\"b\\\\c",query="revenue"} 12345678901'

    def test_they_are_served_over_http(self) -> None:
        server = serve_metrics("127.0.0.1", 0, status())
        try:
            with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=5) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                assert answer.read().decode() == exposition(samples(status()))
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://{server.address}/secrets", timeout=5)
            with pytest.raises(PipelineError, match="cannot listen on"):
                serve_metrics("127.0.0.1", int(server.address.rpartition(":")[2]), status())
        finally:
            server.close()


@pytest.mark.parametrize(("width", "shown"), [(60, 5), (80, 7), (120, 10), (200, 13)])
def test_a_narrow_terminal_shows_what_matters_most(width: int, shown: int) -> None:
    run = status(pid=4711)
    for name in ("revenue", "orders.dead_letters"):
        run.queries[name] = QueryFigures(
            name, "table lake/revenue", state="running", batch=1_000, rows_read=12_345_678, rows_written=2_345_678,
            lag=123_456, rows_per_second=123_456.0, state_rows=99_999, state_bytes=123_456_789, batch_ms=1_234,
        )  # fmt: skip
    console = Console(file=io.StringIO(), width=width, height=24)
    console.print(StatusView(run))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    [head] = [line for line in lines if "query" in line]
    assert head.count("┃") == shown + 1
    assert all(name in head for name in ("query", "state", "rows/s", "lag", "bad"))
    assert all(len(line) <= width for line in lines)
    assert sum("123,456" in line for line in lines) == 2, "a row is a line"


def test_a_person_sees_the_same_figures() -> None:
    run = status(metrics="127.0.0.1:9400", master="local[2]")
    assert heading(run).startswith("shop: running, every 5 s")
    assert "http://127.0.0.1:9400/metrics" in heading(run)
    head, [row] = rows_of(run)
    shown = dict(zip(head, row, strict=True))
    assert (shown["batch"], shown["read"], shown["lag"], shown["bad"], shown["late"]) == (7, "100", "10", "4", "≥3")
    assert shown["state size"] == "12 rows, 9.0 KB"
    assert line_of(run) == "shop running; revenue: batch 7, 100 read, 83/s, lag 10"

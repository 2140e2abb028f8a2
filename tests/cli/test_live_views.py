"""What moves on a terminal fits it: `pipeline run`, `pipeline status --watch`, `demo`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.checkpoints import held
from penstock.pipeline.model import Pipeline
from penstock.pipeline.progress import QueryFigures
from penstock.pipeline.status import RunStatus, status_path, write_status
from support.terminal import check_fits, frames_of, run_in_terminal

SIZES = [pytest.param(80, 24, marks=pytest.mark.long), (60, 20)]

RUN = """
import sys
import threading
import penstock.pipeline.running as running
from cli.test_live_views import figures

def run_pipeline(pipeline, *, stop, on_status, **other):
    status = figures()
    while not stop.wait(0.1):
        for query in status.queries.values():
            query.batch += 1
        on_status(status)
    if pipeline.name == "stuck":
        status.state = "stopping"
        on_status(status)
        threading.Event().wait(600)
    status.state = "stopped"
    return status

running.run_pipeline = run_pipeline
from penstock.__main__ import main
sys.argv = ["penstock", "pipeline", "run", sys.argv[1]]
sys.exit(main())
"""


def figures() -> RunStatus:
    status = RunStatus("revenue", "checkpoints/revenue", "every 5 s", master="local[*]", state="running", pid=4711)
    status.metrics, status.started = "127.0.0.1:9400", "2026-01-31T12:00:00Z"
    for name, writes in (("revenue", "table lake/revenue"), ("orders.dead_letters", "topic orders.dead")):
        status.queries[name] = QueryFigures(
            name, writes, state="running", batch=1_000, rows_read=12_345_678, rows_written=2_345_678, lag=123_456,
            rows_per_second=123_456.0, state_rows=99_999, state_bytes=123_456_789, batch_ms=1_234,
        )  # fmt: skip
    return status


def run_command(path: Path) -> list[str]:
    path.write_text("CREATE STREAM a (id STRING);\nCREATE TABLE b WITH (path = 'p') AS SELECT id FROM a;\n")
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{RUN}"
    return [sys.executable, "-c", script, str(path)]


def test_a_second_ctrl_c_does_not_wait_for_a_run(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    process = subprocess.Popen(run_command(tmp_path / "stuck.sql"), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "revenue running" in line or "revenue stopping" in line:
                process.send_signal(signal.SIGINT)
            if "revenue stopping" in line:
                break
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_run_fits_the_terminal(tmp_path: Path, columns: int, rows: int) -> None:
    pytest.importorskip("pyspark")
    code, written = run_in_terminal(run_command(tmp_path / "p.sql"), columns, rows, until="123,456")
    assert code == 0, written
    view = written[: written.rindex("\x1b[?25h")]
    assert len(frames_of(view)) > 2
    check_fits(view, columns, rows)
    assert "orders.dead_letters" in view


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("watch", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_status_fits_the_terminal(tmp_path: Path, columns: int, rows: int, watch: bool) -> None:
    path = status_path(str(tmp_path))
    assert path is not None
    write_status(path, figures())
    command = [sys.executable, "-m", "penstock", "pipeline", "status", str(tmp_path), *(["--watch"] if watch else [])]
    with held(Pipeline(name="revenue", checkpoint=str(tmp_path))):
        code, written = run_in_terminal(command, columns, rows, until="123,456", interrupt=watch)
    assert code == 0, written
    check_fits(written, columns, rows)
    assert "orders.dead_letters" in written
    assert "lag" in written


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_demo_fits_the_terminal(tmp_path: Path, columns: int, rows: int) -> None:
    command = [sys.executable, "-m", "penstock", "demo", "--data", str(tmp_path / "demo"), "--port", "0", "--no-spark"]
    code, written = run_in_terminal([*command, "--rate", "300"], columns, rows, until="visits")
    assert code == 0, written
    screen = written[written.index("\x1b[?1049h") : written.rindex("\x1b[?1049l")]
    assert len(frames_of(screen)) > 3
    check_fits(screen, columns, rows)

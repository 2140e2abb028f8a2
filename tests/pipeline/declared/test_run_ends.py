"""How runs begin and end around Spark, which is not there: whose checkpoint it is, and that nothing goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.pipeline import reports, running
from penstock.pipeline.identity import FILE_NAME, identity_of
from penstock.pipeline.model import Pipeline, PipelineError
from penstock.pipeline.sql_file import parse_sql
from penstock.pipeline.status import RunStatus, read_status, status_path, write_status

pytest.importorskip("pyspark")


def pipeline(checkpoint: Path, name: str = "shop") -> Pipeline:
    text = f"""SET checkpoint = '{checkpoint}'; SET bootstrap.servers = '127.0.0.1:1';
        CREATE STREAM s (x INT);
        CREATE TABLE a WITH (sink = 'noop') AS SELECT * FROM s;
        CREATE TABLE b WITH (sink = 'noop') AS SELECT * FROM s"""
    return parse_sql(text, name=name)


def test_a_run_with_the_checkpoint_of_another_pipeline_leaves_it_as_it_was(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(identity_of(pipeline(tmp_path, "other")).to_json())
    path = status_path(str(tmp_path))
    assert path is not None
    write_status(path, RunStatus("other", str(tmp_path), "once", state="finished"))
    with pytest.raises(PipelineError, match="belongs to the pipeline other"):
        running.run_pipeline(pipeline(tmp_path))
    found = read_status(path)
    assert found is not None
    assert (found.pipeline, found.state) == ("other", "finished")


def test_a_run_in_a_directory_of_something_else_leaves_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(PipelineError, match="is no checkpoint of a pipeline"):
        running.run_pipeline(pipeline(tmp_path))
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.txt"]


class Query:
    """A streaming query that goes on until it is stopped."""

    status = {"message": "Processing new data"}  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name = name
        self.isActive = True

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


class Session:
    def __init__(self) -> None:
        self.started: list[Query] = []
        self.listeners: list[object] = []
        self.conf = {"spark.master": "local[2]"}
        self.streams = self

    @property
    def active(self) -> list[Query]:
        return [one for one in self.started if one.isActive]

    def addListener(self, listener: object) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: object) -> None:
        self.listeners.remove(listener)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    session = Session()

    def start(rows: object, *, name: str, **words: object) -> Query:
        session.started.append(Query(name))
        return session.started[-1]

    planned = SimpleNamespace(sinks={"a": None, "b": None}, dead_letters={})
    for name, value in {
        "check_cluster": lambda pipeline: [],
        "check_plan": lambda pipeline, planned: [],
        "own_session": lambda spark, pipeline: session,
        "plan": lambda pipeline, session, starting: planned,
        "start_query": start,
    }.items():
        monkeypatch.setattr(running, name, value)
    return session


def interrupted(status: RunStatus) -> None:
    if status.state == "running":
        raise KeyboardInterrupt


def broken(status: RunStatus) -> None:
    if status.state != "starting":
        raise RuntimeError("the view broke")


@pytest.mark.parametrize(("on_status", "error"), [(interrupted, KeyboardInterrupt), (broken, RuntimeError)])
def test_a_run_that_is_interrupted_leaves_no_query_behind(
    session: Session, tmp_path: Path, on_status: Callable[[RunStatus], None], error: type[BaseException]
) -> None:
    with pytest.raises(error):
        running.run_pipeline(pipeline(tmp_path), spark=session, on_status=on_status)  # type: ignore[arg-type]
    assert [one.name for one in session.started] == ["a", "b"]
    assert session.active == []
    assert session.listeners == []
    saved = read_status(status_path(str(tmp_path)) or Path())
    assert saved is not None
    assert saved.state == "failed"


@pytest.mark.parametrize(("step", "started"), [("checking the queries", []), ("starting the query b", ["a"])])
def test_a_run_that_is_stopped_while_it_starts_starts_no_further_query(
    session: Session, tmp_path: Path, step: str, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "LAST_REPORTS_TIMEOUT_S", 0.0)  # these queries report nothing
    stop = threading.Event()

    def press(status: RunStatus) -> None:
        if status.doing == step:
            stop.set()

    status = running.run_pipeline(pipeline(tmp_path), spark=session, stop=stop, on_status=press)  # type: ignore[arg-type]
    assert [one.name for one in session.started] == started
    assert session.active == []
    assert (status.state, status.doing) == ("stopped", "")


def test_a_query_that_was_interrupted_while_it_started_is_stopped_too(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = running.start_query

    def second_fails(rows: object, *, name: str, **words: object) -> object:
        query = start(rows, name=name, **words)  # type: ignore[arg-type]
        if name == "b":
            raise KeyboardInterrupt
        return query

    monkeypatch.setattr(running, "start_query", second_fails)
    with pytest.raises(KeyboardInterrupt):
        running.run_pipeline(pipeline(tmp_path), spark=session)  # type: ignore[arg-type]
    assert [one.name for one in session.started] == ["a", "b"]
    assert session.active == []

"""`penstock pipeline`, as far as it needs no Spark."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from cli.running import Run
from penstock.cli import exit_codes
from penstock.pipeline.checkpoints import held
from penstock.pipeline.loading import load_pipeline
from penstock.pipeline.progress import QueryFigures
from penstock.pipeline.status import FILE_NAME, RunStatus, write_status

PIPELINE = "CREATE STREAM s (x INT) WITH (topic = 's');\nCREATE TABLE t WITH (path = 'lake/t') AS SELECT * FROM s;\n"


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["shop.sql", "shop.py"])
def test_init_writes_a_file_that_is_a_pipeline(run: Run, tmp_path: Path, name: str) -> None:
    result = run("pipeline", "init", name)
    assert result.code == 0
    assert f"penstock pipeline run {name}" in result.messages
    assert load_pipeline(tmp_path / name).sources[0].topic == "orders"


def test_init_leaves_a_file_that_is_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text("mine")
    result = run("pipeline", "init", "shop.sql")
    assert result.code == exit_codes.ALREADY_EXISTS
    assert (tmp_path / "shop.sql").read_text() == "mine"
    assert run("pipeline", "init", "shop.sql", "--force").code == 0


def test_init_names_what_there_is_to_start_from(run: Run) -> None:
    assert "sql\t" in run("pipeline", "init", "--list").output
    result = run("pipeline", "init", "--from", "archve")
    assert result.code == exit_codes.NOT_FOUND
    assert "there is no pipeline archve to start from; did you mean archive?" in result.messages


def test_every_file_to_start_from_is_a_pipeline(run: Run, tmp_path: Path) -> None:
    from penstock.pipeline.starters import templates

    for template in templates().values():
        path = tmp_path / f"{template.name}{template.suffix}"
        assert run("pipeline", "init", path.name, "--from", template.name, "--force").code == 0
        assert load_pipeline(path).name


def test_validate_shows_the_line_and_the_fix(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(PIPELINE.replace("topic =", "topci ="))
    result = run("pipeline", "validate", "shop.sql", "--no-spark", "--no-cluster")
    assert result.code == exit_codes.FAILED
    assert "error: shop.sql:1:31: a stream that is read has no option topci; did you mean topic?" in result.messages
    assert "    1 | CREATE STREAM s (x INT) WITH (topci = 's');" in result.messages
    assert "fix: it takes" in result.messages


def test_validate_for_scripts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(PIPELINE)
    result = run("pipeline", "validate", "shop.sql", "--no-spark", "--no-cluster", "--json")
    assert (result.code, json.loads(result.output)) == (0, {"pipeline": "shop", "problems": []})
    (tmp_path / "shop.sql").write_text("SELECT 1")
    result = run("pipeline", "validate", "shop.sql", "--no-spark", "--no-cluster", "--json")
    [problem] = json.loads(result.output)["problems"]
    assert result.code == exit_codes.FAILED
    assert (problem["file"], problem["line"], problem["message"]) == ("shop.sql", 1, "a query alone goes nowhere")


def test_validate_says_what_the_pipeline_does(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(PIPELINE)
    result = run("pipeline", "validate", "shop.sql", "--no-spark", "--no-cluster", "--set", "trigger=once")
    assert result.lines == ["shop is fine: trigger once, checkpoint checkpoints/shop", "  t: s → table lake/t"]


def test_a_setting_that_makes_no_sense(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(PIPELINE)
    result = run("pipeline", "validate", "shop.sql", "--no-spark", "--no-cluster", "--set", "trigger")
    assert result.code == exit_codes.USAGE
    result = run("pipeline", "run", "shop.sql", "--metrics", "nowhere")
    assert result.code == exit_codes.USAGE
    assert "127.0.0.1:9400" in result.messages


class TestStatus:
    def test_nothing_has_run(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "shop.sql").write_text(PIPELINE)
        result = run("pipeline", "status", "shop.sql")
        assert result.code == exit_codes.NOT_FOUND
        assert "penstock pipeline run shop.sql" in result.messages

    def test_of_a_run_in_another_terminal(self, run: Run, tmp_path: Path) -> None:
        self.write(tmp_path, "running")
        (tmp_path / "shop.sql").write_text(PIPELINE)
        with held(load_pipeline(tmp_path / "shop.sql")):
            result = run("pipeline", "status", "shop.sql")
            by_checkpoint = run("pipeline", "status", "checkpoints/shop", "--json")
        assert result.code == 0
        assert result.lines[0].startswith("shop: running, every 5 s")
        assert result.lines[2].split("\t")[:5] == ["t", "running", "table lake/t", "3", "1,000"]
        [query] = json.loads(by_checkpoint.output)["queries"]
        assert (query["name"], query["rows_read"], query["lag"]) == ("t", 1000, 5)

    def test_of_one_that_failed(self, run: Run, tmp_path: Path) -> None:
        self.write(tmp_path, "failed", "query t failed: no space")
        result = run("pipeline", "status", "checkpoints/shop")
        assert result.code == exit_codes.UNHEALTHY
        assert "query t failed: no space" in result.messages

    @staticmethod
    def write(tmp_path: Path, state: str, error: str = "") -> None:
        status = RunStatus("shop", "checkpoints/shop", "every 5 s", state=state, error=error)
        status.pid, status.host = os.getpid(), socket.gethostname()
        status.queries["t"] = QueryFigures("t", "table lake/t", state, batch=3, rows_read=1000, lag=5)
        (tmp_path / "checkpoints" / "shop").mkdir(parents=True)
        write_status(tmp_path / "checkpoints" / "shop" / FILE_NAME, status)


def test_the_graph_is_drawn_written_or_given_to_a_script(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(PIPELINE)
    assert run("pipeline", "graph", "shop.sql").lines == ["topic s", "└─ query t", "   └─ table lake/t"]
    assert run("pipeline", "graph", "shop.sql", "--svg", "shop.svg").messages == "wrote shop.svg\n"
    assert (tmp_path / "shop.svg").read_text().startswith("<svg ")
    told = json.loads(run("pipeline", "graph", "shop.sql", "--json").output)
    assert [node["kind"] for node in told["nodes"]] == ["topic", "query", "table"]
    assert told["edges"] == [{"from": 0, "to": 1}, {"from": 1, "to": 2}]
    (tmp_path / "shop.sql").write_text("SELECT 1")
    assert run("pipeline", "graph", "shop.sql").code == exit_codes.FAILED

"""Files that are no pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipeline.loading import load_pipeline
from penstock.pipeline.model import PipelineError, Place, Problem
from penstock.pipeline.reporting import describe


def message(path: Path, **overrides: str) -> str:
    with pytest.raises(PipelineError) as failed:
        load_pipeline(path, overrides=overrides)
    return describe(failed.value.problems, failed.value.path, "")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    found = message(tmp_path / "gone.sql")
    assert "cannot read" in found
    assert "penstock pipeline init" in found


def test_a_name_that_is_neither_sql_nor_python(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
    assert "ends neither in .sql nor in .py" in message(tmp_path / "photo.jpg")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes(b"SET trigger = 'once';\n\xff\xfe\x00")
    assert "line 2 is not UTF-8" in message(tmp_path / "a.sql")


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "d.sql").mkdir()
    assert "Is a directory" in message(tmp_path / "d.sql")


def test_a_file_of_megabytes(tmp_path: Path) -> None:
    (tmp_path / "big.sql").write_bytes(b" " * 1_000_001)
    assert "not a pipeline file" in message(tmp_path / "big.sql")


def test_a_variable_that_the_file_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("CREATE STREAM s (x INT) WITH (topic = '${TOPIC}')")
    found = message(tmp_path / "a.sql", TOPCI="x")
    assert "--set TOPCI" in found
    assert "TOPIC" in found


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes(b"\xef\xbb\xbfCREATE STREAM s (x INT) WITH (topic = 't')")
    assert load_pipeline(tmp_path / "a.sql").sources[0].topic == "t"


def test_a_problem_is_shown_with_its_line_and_a_mark() -> None:
    text = "SET trigger = 'once';\nCREATE\tSTRAEM x;\n"
    shown = describe([Problem("no", "do it so", Place(2, 8))], Path("a.sql"), text)
    assert shown == "a.sql:2:8: no\n    2 | CREATE STRAEM x;\n      |        ^\n  fix: do it so"


def test_a_problem_of_the_whole_file_has_no_line() -> None:
    assert describe([Problem("no", "")], Path("a.sql"), "x") == "a.sql: no"

"""`penstock tables`: Delta tables, looked after without Spark."""

from __future__ import annotations

import datetime
import json
import os
import time
from pathlib import Path

import pytest

from cli.running import Run
from penstock.cli import exit_codes

pytest.importorskip("deltalake")
pytest.importorskip("pyarrow")

from pipeline.lake.tables import DAY, Driver, ids_in

OLD = time.time() - 8 * 24 * 3600


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two days, three batches."""
    driver = Driver(tmp_path / "lake" / "orders", partition_by=("date",))
    for batch_id, day in enumerate([DAY, DAY + datetime.timedelta(days=1), DAY]):
        driver.run(batch_id, [10 * batch_id, 10 * batch_id + 1], day)
    return tmp_path / "lake" / "orders"


def test_a_table_is_described(run: Run, table: Path) -> None:
    result = run("tables", "describe", table)
    assert result.code == exit_codes.OK
    assert result.lines[0] == f"{table}  version 2"
    assert result.lines[1].startswith("6 rows in 3 files in 2 partitions, ")
    assert "date\tdate\tyes\tpartition" in result.lines
    assert f"1 partition could be compacted: penstock tables compact {table}" in result.messages
    told = json.loads(run("tables", "describe", table, "--json", "--version", 0).output)
    assert (told["version"], told["rows"], told["partition_by"]) == (0, 2, ["date"])
    assert told["columns"][0] == {"name": "id", "type": "long", "nullable": True, "is_partition": False}


def test_tables_are_listed(run: Run, table: Path, tmp_path: Path) -> None:
    assert run("tables", "list", tmp_path).lines[1].startswith(f"{table}\t2\t6\t3\t")
    (told,) = json.loads(run("tables", "list", tmp_path, "--json").output)
    assert told["path"] == str(table)
    (tmp_path / "empty").mkdir()
    assert "there is no Delta table in" in run("tables", "list", tmp_path / "empty").messages


def test_rows_are_shown(run: Run, table: Path) -> None:
    result = run("tables", "show", table, "--columns", "id,date", "--where", "id >= 10 AND id < 20")
    assert result.lines == ["id\tdate", "10\t2026-02-01", "11\t2026-02-01"]
    assert result.messages == ""
    some = run("tables", "show", table, "--limit", "2", "--json")
    assert all(set(json.loads(line)) >= {"id", "date"} for line in some.lines)
    assert len(some.lines) == 2
    assert "these are the first 2 rows: --limit N shows more" in some.messages
    assert run("tables", "show", table, "--version", 0, "--limit", 2).messages == ""
    wrong = run("tables", "show", table, "--where", "idd = 1")
    assert wrong.code == exit_codes.FAILED
    assert "idd" in wrong.messages
    assert run("tables", "show", table.parent / "nothing").code == exit_codes.NOT_FOUND


def test_tables_are_queried(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("tables", "query", tmp_path, "SELECT date, count(*) AS n FROM orders GROUP BY date ORDER BY date")
    assert result.lines == ["date\tn", "2026-01-31\t4", "2026-02-01\t2"]
    wrong = run("tables", "query", tmp_path, "SELECT * FROM ordres")
    assert wrong.code == exit_codes.FAILED
    assert "ordres" in wrong.messages
    assert "hint: there are orders" in wrong.messages
    refused = run("tables", "query", tmp_path, "DROP TABLE orders")
    assert "only queries that read are allowed here" in refused.messages
    (tmp_path / "empty").mkdir()
    assert "there is no Delta table in" in run("tables", "query", tmp_path / "empty", "SELECT 1").messages


def test_the_history_names_queries_and_batches(run: Run, table: Path) -> None:
    lines = run("tables", "history", table, "--limit", 2).lines
    assert [line.split("\t")[0] for line in lines] == ["version", "2", "1"]
    assert lines[1].endswith("\tWRITE\t2\tquery")
    told = json.loads(run("tables", "history", table, "--json").output)
    assert [(commit["version"], commit["batch_id"]) for commit in told] == [(2, 2), (1, 1), (0, 0)]


def test_small_files_are_compacted(run: Run, table: Path) -> None:
    told = json.loads(run("tables", "compact", table, "--json", "--partition", "date=2026-02-01").output)
    assert told["files_removed"] == 0
    result = run("tables", "compact", table)
    assert result.lines[0].startswith("2 files (")
    assert "became 1 file (" in result.lines[0]
    assert "penstock tables vacuum" in result.messages
    assert run("tables", "compact", table).lines == ["nothing to compact"]
    assert ids_in(table) == [0, 1, 10, 11, 20, 21]
    assert "compaction" in run("tables", "history", table).lines[1]


def test_vacuum_asks_and_deletes_what_nobody_names(run: Run, table: Path) -> None:
    (orphan,) = Driver(table, partition_by=("date",)).write([99])
    assert run("tables", "vacuum", table).lines == ["nothing to delete"]
    os.utime(table / orphan.path, (OLD, OLD))
    assert run("tables", "vacuum", table, "--dry-run").lines[1] == f"  {orphan.path}"
    refused = run("tables", "vacuum", table)
    assert refused.code == exit_codes.USAGE
    assert "rerun with --yes" in refused.messages
    assert (table / orphan.path).exists()
    told = json.loads(run("tables", "vacuum", table, "--yes", "--json").output)
    assert told["files"] == [orphan.path]
    assert not (table / orphan.path).exists()
    assert ids_in(table) == [0, 1, 10, 11, 20, 21]


def test_a_short_retention_needs_force(run: Run, table: Path) -> None:
    run("tables", "compact", table)
    refused = run("tables", "vacuum", table, "--retention-hours", 0, "--yes")
    assert refused.code == exit_codes.FAILED
    assert "a retention of 0 hours may delete files that readers still need" in refused.messages
    assert "--force" in refused.messages
    forced = run("tables", "vacuum", table, "--retention-hours", 0, "--yes", "--force")
    assert forced.lines[0].startswith("deleted 2 files")


def test_a_table_is_exported(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("tables", "export", table, tmp_path / "out", "--columns", "id,date", "--where", "id > 1")
    assert result.code == exit_codes.OK
    assert result.lines[0].startswith("4 rows of version 2 in 2 files (")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["date=2026-01-31", "date=2026-02-01"]
    again = run("tables", "export", table, tmp_path / "out")
    assert again.code == exit_codes.FAILED
    assert "is there already" in again.messages
    told = json.loads(run("tables", "export", table, tmp_path / "other", "--version", 0, "--json").output)
    assert (told["rows"], told["version"]) == (2, 0)


@pytest.mark.parametrize("command", ["describe", "history", "compact", "vacuum"])
def test_a_place_without_a_table_is_named(run: Run, tmp_path: Path, command: str) -> None:
    result = run("tables", command, tmp_path / "nothing")
    assert result.code == exit_codes.NOT_FOUND
    assert result.messages.startswith(f"error: there is no Delta table at {tmp_path / 'nothing'}\nhint: ")


def test_bad_options_are_refused(run: Run, table: Path) -> None:
    assert run("tables", "compact", table, "--partition", "date").code == exit_codes.USAGE
    result = run("tables", "compact", table, "--partition", "shop=1")
    assert result.code == exit_codes.FAILED
    assert "not partitioned by 'shop'" in result.messages
    assert "there are versions 0 to 2" in run("tables", "describe", table, "--version", 7).messages
    bad = run("tables", "export", table, table.parent / "out", "--where", "nonsense = 1")
    assert bad.code == exit_codes.FAILED
    assert bad.messages.startswith("error: cannot export the table")
    assert not (table.parent / "out").exists()

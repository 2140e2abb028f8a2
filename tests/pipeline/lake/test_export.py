"""Plain Parquet, and other readers of the same tables."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.pipeline.lake import LakeError, describe_table, export_parquet, find_tables, table_history
from pipeline.lake.tables import DAY, Driver, ids_in

NEXT_DAY = DAY + datetime.timedelta(days=1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    driver = Driver(tmp_path / "lake/t", partition_by=("date",))
    for batch_id, day in enumerate([DAY, NEXT_DAY, DAY]):
        driver.run(batch_id, [10 * batch_id, 10 * batch_id + 1], day)
    return tmp_path / "lake/t"


def test_an_export_is_plain_parquet_in_directories(table: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    done = export_parquet(table, tmp_path / "out", on_rows=lambda *rows: told.append(rows))
    assert (done.rows, done.version) == (6, 2)
    assert told[-1] == (6, 6)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"date=2026-01-31", "date=2026-02-01"}
    assert ds.dataset(tmp_path / "out", partitioning="hive").count_rows() == 6
    assert done.size_bytes == sum(file.stat().st_size for file in (tmp_path / "out").rglob("*.parquet"))


def test_a_version_some_columns_and_some_rows_can_be_exported(table: Path, tmp_path: Path) -> None:
    done = export_parquet(table, tmp_path / "out", version=1, columns=["id"], predicate="id >= 10")
    assert (done.rows, done.version) == (2, 1)
    found = pq.read_table(tmp_path / "out")
    assert found.column_names == ["id"]
    assert sorted(found.column("id").to_pylist()) == [10, 11]


def test_an_export_that_fails_leaves_nothing(table: Path, tmp_path: Path) -> None:
    next(table.rglob("part-*.parquet")).unlink()
    with pytest.raises(LakeError, match="cannot export the table"):
        export_parquet(table, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_nothing_is_overwritten(table: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    with pytest.raises(LakeError, match="is there already"):
        export_parquet(table, tmp_path / "out")
    with pytest.raises(LakeError, match="has no version 9") as caught:
        export_parquet(table, tmp_path / "new", version=9)
    assert caught.value.fix == "there are versions 0 to 2"


def test_a_table_is_described(table: Path) -> None:
    found = describe_table(table)
    assert (found.version, found.files, found.rows, found.partitions, found.partitions_to_compact) == (2, 3, 6, 2, 1)
    assert found.partition_by == ("date",)
    assert [(column.name, column.type, column.is_partition) for column in found.columns] == [
        ("id", "long", False), ("text", "string", False), ("date", "date", True),
    ]  # fmt: skip
    assert 0 < (found.smallest_bytes or 0) <= (found.largest_bytes or 0) <= found.size_bytes
    assert describe_table(table, version=0).rows == 2


def test_the_history_is_newest_first(table: Path) -> None:
    commits = table_history(table)
    assert [(commit.version, commit.batch_id, commit.query_id) for commit in commits] == [
        (2, 2, "query"), (1, 1, "query"), (0, 0, "query"),
    ]  # fmt: skip
    assert [commit.operation for commit in table_history(table, limit=1)] == ["WRITE"]


def test_tables_are_found_below_a_directory(table: Path, tmp_path: Path) -> None:
    Driver(tmp_path / "lake/deep/er").run(0, [0])
    assert find_tables(tmp_path) == [str(tmp_path / "lake/deep/er"), str(table)]
    with pytest.raises(LakeError, match="there is no directory"):
        find_tables(tmp_path / "nowhere")


def test_pandas_reads_the_table(table: Path) -> None:
    pytest.importorskip("pandas")
    from deltalake import DeltaTable

    frame = DeltaTable(str(table)).to_pandas()
    assert sorted(frame["id"]) == ids_in(table)
    assert set(frame["date"]) == {DAY, NEXT_DAY}


def test_polars_reads_the_table_and_prunes_partitions(table: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.scan_delta(str(table)).filter(polars.col("date") == NEXT_DAY).collect()
    assert sorted(frame["id"]) == [10, 11]
    assert polars.read_delta(str(table))["id"].sort().to_list() == ids_in(table)


def test_duckdb_reads_the_table(table: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    from deltalake import DeltaTable

    orders = DeltaTable(str(table)).to_pyarrow_dataset()  # noqa: F841  (duckdb finds it by its name)
    rows = duckdb.sql("SELECT id FROM orders WHERE date = DATE '2026-02-01' ORDER BY id").fetchall()
    assert rows == [(10,), (11,)]

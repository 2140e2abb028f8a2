"""Compaction and vacuum."""

from __future__ import annotations

import datetime
import os
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from penstock.pipeline.lake import LakeError, compact_table, export_parquet, upkeep, vacuum_table
from penstock.pipeline.lake.commits import Outcome, TableCommits
from penstock.pipeline.lake.compaction import small_files
from penstock.pipeline.lake.errors import TableMissing
from penstock.pipeline.lake.files import WrittenFile
from penstock.pipeline.lake.listing import TableFile
from penstock.pipeline.lake.locations import Location, locate
from penstock.pipeline.lake.schemas import Field
from penstock.pipeline.lake.writer import BackgroundCompaction
from pipeline.lake.tables import DAY, SCHEMA, Driver, ids_in, parquet_files

OLD = time.time() - 8 * 24 * 3600


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three days and rows without one, some in several files."""
    driver = Driver(tmp_path / "t", partition_by=("date",))
    days = [DAY, DAY, DAY + datetime.timedelta(days=1), None, None]
    for batch_id, day in enumerate(days):
        driver.run(batch_id, [batch_id], day)
    return tmp_path / "t"


def test_small_files_of_each_partition_become_one(table: Path) -> None:
    told: list[tuple[int, int, str]] = []
    done = compact_table(table, on_progress=lambda *progress: told.append(progress))
    assert (done.partitions, done.files_removed, done.files_added) == (2, 4, 2)
    assert done.passed_over == 0
    assert done.bytes_removed > 0 < done.bytes_added
    assert told == [(0, 2, "date=None"), (1, 2, "date=2026-01-31"), (2, 2, "")]
    assert ids_in(table) == [0, 1, 2, 3, 4]
    again = compact_table(table)
    assert (again.partitions, again.files_removed, again.version) == (0, 0, done.version)


def test_one_partition_can_be_chosen(table: Path) -> None:
    assert compact_table(table, partitions={"date": "2026-01-31"}).files_removed == 2
    assert compact_table(table, partitions={"date": ""}).files_removed == 2
    with pytest.raises(LakeError, match="not partitioned by 'shop'") as caught:
        compact_table(table, partitions={"shop": "7"})
    assert caught.value.fix == "its partition columns are date"


def test_partitions_with_one_small_file_are_left_alone() -> None:
    sizes = ((1, "a"), (9, "a"), (1, "b"), (2, "b"))
    files = [TableFile(f"f{number}", size, 1, 0, (value,)) for number, (size, value) in enumerate(sizes)]
    assert list(small_files(files, 5)) == [("b",)]
    assert list(small_files(files, 10)) == [("a",), ("b",)]
    assert list(small_files(files, 10, lambda values: values == ("a",))) == [("a",)]


def test_files_are_put_together_by_age_up_to_the_size() -> None:
    files = [TableFile(f"f{age}", 4, 1, age, ()) for age in (5, 1, 3, 2, 4)]
    (groups,) = small_files(files, 9).values()
    assert [[file.path for file in group] for group in groups] == [["f1", "f2"], ["f3", "f4"]]


def test_two_compactions_at_once_do_not_double_the_rows(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a stream that compacts by itself and an operator who does it by hand."""
    rewrite = upkeep.rewrite
    inner: list[upkeep.Compacted] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        files = rewrite(*arguments, **options)
        if not inner:
            monkeypatch.setattr(upkeep, "rewrite", rewrite)
            inner.append(compact_table(table))
        return files

    monkeypatch.setattr(upkeep, "rewrite", interrupted)
    outer = compact_table(table)
    assert (inner[0].files_removed, inner[0].passed_over) == (4, 0)
    assert (outer.files_removed, outer.passed_over) == (0, 2)
    assert ids_in(table) == [0, 1, 2, 3, 4]
    assert len(parquet_files(table)) == 7, "what lost the race was removed"


def test_a_compaction_whose_swap_was_not_answered_counts_and_keeps_its_files(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a write of the log that is sent again and meets itself: it took effect, and seems to have failed."""
    commit = DeltaTable.create_write_transaction
    lost: list[str] = []

    def unanswered(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        commit(self, *arguments, **options)
        if not lost:
            lost.append("the answer")
            raise CommitFailedError("version 5 already exists")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", unanswered)
    done = compact_table(table)
    assert (done.files_removed, done.files_added, done.passed_over) == (4, 2, 0)
    assert ids_in(table) == [0, 1, 2, 3, 4]


def test_a_swap_that_would_lose_rows_is_refused(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python runs without assertions."""
    before = parquet_files(table)
    rewrite = upkeep.rewrite

    def less(location: Location, handle: DeltaTable, group: list[TableFile]) -> list[WrittenFile]:
        return rewrite(location, handle, group[1:])

    monkeypatch.setattr(upkeep, "rewrite", less)
    with pytest.raises(LakeError, match="hold 1 rows, and its log tells of 2 in them"):
        compact_table(table)
    assert ids_in(table) == [0, 1, 2, 3, 4]
    assert parquet_files(table) == before


def test_appends_between_the_rewriting_and_the_swap_stay(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite = upkeep.rewrite
    driver = Driver(table, partition_by=("date",))
    ids = iter(range(5, 100))

    def interrupted(*arguments: Any, **options: Any) -> Any:
        files = rewrite(*arguments, **options)
        number = next(ids)
        driver.run(number, [number])
        return files

    monkeypatch.setattr(upkeep, "rewrite", interrupted)
    assert compact_table(table).files_removed == 4
    assert ids_in(table) == [0, 1, 2, 3, 4, 5, 6]


def test_files_from_before_a_new_column_are_compacted_with_those_after_it(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.run(0, [0])
    driver.run(1, [1], schema=(*SCHEMA, Field("extra", "long")))
    assert compact_table(tmp_path).files_removed == 2
    rows = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["extra"] for row in rows} == {0: None, 1: 1}
    table = DeltaTable(str(tmp_path))
    (told,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (told["num_records"], told["min.id"], told["max.id"], told["null_count.extra"]) == (2, 0, 1, 1)


NOON = datetime.datetime(2026, 1, 31, 12, 30, 0, 5)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([NOON], pa.timestamp("us", "UTC")), pa.array([NOON], pa.timestamp("us")), pa.array([0.1]),
        pa.array([float("nan")]), pa.array([float("inf")]), pa.array([Decimal("0E-10")], pa.decimal128(20, 10)),
    ],
    ids=["timestamp", "timestamp_ntz", "double", "NaN", "infinity", "decimal"],
)  # fmt: skip
def test_partition_values_of_other_engines_stay_as_they_are(tmp_path: Path, values: pa.Array) -> None:
    for number in range(2):
        rows = pa.table({"id": [number], "p": values})
        write_deltalake(tmp_path, rows, partition_by=["p"], mode="append")

    def rows_in_table() -> list[str]:
        return sorted(map(str, pa.table(DeltaTable(tmp_path).scan().read_all()).to_pylist()))

    before = rows_in_table()
    assert compact_table(tmp_path).files_removed == 2
    assert rows_in_table() == before


def test_a_table_with_binary_partitions_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """deltalake gives them back as their own escapes, so they would be written wrongly."""
    for number in range(2):
        rows = pa.table({"id": [number], "p": pa.array([b"ab"])})
        write_deltalake(tmp_path / "t", rows, partition_by=["p"], mode="append")
    before = parquet_files(tmp_path / "t")
    with pytest.raises(LakeError, match="partitioned by 'p', which is binary"):
        compact_table(tmp_path / "t")
    writer = TableCommits(locate(tmp_path / "t"))
    writer.refresh()
    with pytest.raises(LakeError, match="partitioned by 'p', which is binary"):
        writer.plan(SCHEMA)
    with pytest.raises(LakeError, match="partitioned by 'p', which is binary"):
        export_parquet(tmp_path / "t", tmp_path / "out")
    assert parquet_files(tmp_path / "t") == before
    assert export_parquet(tmp_path / "t", tmp_path / "out", columns=["id"]).rows == 2


def test_a_writer_compacts_in_the_background_every_so_many_batches(table: Path) -> None:
    background = BackgroundCompaction(locate(table), every=2)
    before = DeltaTable(str(table)).version()
    background.after_batch()
    background.close()
    assert DeltaTable(str(table)).version() == before
    background.after_batch()
    background.close()
    assert DeltaTable(str(table)).version() > before
    assert ids_in(table) == [0, 1, 2, 3, 4]


def test_a_compaction_that_fails_in_the_background_is_only_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    background = BackgroundCompaction(locate(tmp_path / "nothing"), every=1)
    background.after_batch()
    background.close()
    assert "could not compact the table at" in caplog.text


def test_earlier_versions_stay_readable_until_vacuum(table: Path) -> None:
    before = DeltaTable(str(table)).version()
    compact_table(table)
    assert ids_in(table, before) == [0, 1, 2, 3, 4]
    done = vacuum_table(table, retention_hours=0, allow_short_retention=True)
    assert len(done.files) == 4
    assert done.size_bytes
    assert ids_in(table) == [0, 1, 2, 3, 4]


def test_vacuum_finds_what_failed_attempts_left_and_nothing_else(table: Path) -> None:
    driver = Driver(table, partition_by=("date",))
    orphans = [file.path for file in driver.write([100]) + driver.write([101], None)]
    young = [file.path for file in driver.write([102])]
    for path in orphans:
        os.utime(table / path, (OLD, OLD))
    assert sorted(vacuum_table(table, dry_run=True).files) == sorted(orphans)
    assert set(orphans) <= set(parquet_files(table))
    assert sorted(vacuum_table(table).files) == sorted(orphans)
    assert not set(orphans) & set(parquet_files(table))
    assert set(young) <= set(parquet_files(table)), "a running batch may be about to commit it"
    assert ids_in(table) == [0, 1, 2, 3, 4]


def test_a_vacuum_between_the_files_of_a_batch_and_its_commit_leaves_them(table: Path) -> None:
    vacuums: list[upkeep.Vacuumed] = []

    class Vacuumed(TableCommits):
        def _apply(self, *arguments: Any) -> None:
            vacuums.append(vacuum_table(table))
            super()._apply(*arguments)

    assert Driver(table, commits=Vacuumed, partition_by=("date",)).run(5, [5]) is Outcome.COMMITTED
    assert [vacuum.files for vacuum in vacuums] == [()]
    assert ids_in(table) == [0, 1, 2, 3, 4, 5]


def test_a_short_retention_has_to_be_allowed(table: Path) -> None:
    with pytest.raises(LakeError, match="a retention of 1 hours may delete files"):
        vacuum_table(table, retention_hours=1)
    with pytest.raises(LakeError, match="makes no sense"):
        vacuum_table(table, retention_hours=-1)


def test_the_mark_survives_vacuum(table: Path) -> None:
    compact_table(table)
    vacuum_table(table, retention_hours=0, allow_short_retention=True)
    assert DeltaTable(str(table)).transaction_version("query") == 4


def test_a_place_without_a_table_is_named(tmp_path: Path) -> None:
    for job in (compact_table, vacuum_table):
        with pytest.raises(TableMissing, match="there is no Delta table at"):
            job(tmp_path / "nothing")

"""What tasks write."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipeline.lake import files
from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.files import FileTask, WrittenFile, split
from penstock.pipeline.lake.locations import Location, locate
from pipeline.lake.tables import DAY, parquet_files, rows_of, write

NEXT_DAY = DAY + datetime.timedelta(days=1)


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return locate(tmp_path)


def test_a_file_is_told_with_size_rows_partition_and_statistics(location: Location, tmp_path: Path) -> None:
    (file,) = write(location, rows_of([3, 1]), rows_of([2]), partition_by=("date",))
    assert file.path.startswith("date=2026-01-31/part-00000-")
    assert file.size_bytes == (tmp_path / file.path).stat().st_size
    assert file.rows == 3
    assert json.loads(file.partition) == {"date": "2026-01-31"}
    told = json.loads(file.statistics)
    assert told["numRecords"] == 3
    assert (told["minValues"]["id"], told["maxValues"]["id"]) == (1, 3)
    stored = pq.ParquetFile(tmp_path / file.path)
    assert stored.schema_arrow.names == ["id", "text"], "partition values are in the log, not in the files"
    assert stored.metadata.num_row_groups == 1, "batches of Spark are small; row groups must not be"


def test_each_partition_has_its_file_and_nulls_have_one_too(location: Location) -> None:
    batches = [rows_of([1, 2], DAY), rows_of([3], NEXT_DAY), rows_of([4], None), rows_of([5], DAY)]
    written = write(location, *batches, partition_by=("date",))
    found = {json.loads(file.partition)["date"]: file.rows for file in written}
    assert found == {"2026-01-31": 3, "2026-02-01": 1, None: 1}


def test_rows_of_a_batch_are_sorted_into_their_partitions() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3, 4, 5], "a": ["u", "v", "u", None, "v"], "b": [1, 1, 1, 1, 2]})
    found = {values: rows.column("x").to_pylist() for values, rows in split(batch, ("a", "b"))}
    assert found == {("u", "1"): [1, 3], ("v", "1"): [2], (None, "1"): [4], ("v", "2"): [5]}


def test_an_empty_text_and_null_go_to_the_same_partition(location: Location) -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1, 2], "a": ["", None]})
    assert {values for values, _ in split(batch, ("a",))} == {(None,)}


def test_files_and_memory_are_bounded(location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "OPEN_FILES_MAX", 2)
    monkeypatch.setattr(files, "BUFFERED_BYTES_MAX", 500)
    days = [DAY + datetime.timedelta(days=number % 5) for number in range(40)]
    batches = [rows_of([number], day) for number, day in enumerate(days)]
    written = write(location, *batches, partition_by=("date",))
    assert sum(file.rows for file in written) == 40
    assert len(written) > 5, "files were closed early to keep within the limit"
    ids = [pq.read_table(tmp_path / file.path, partitioning=None).column("id").to_pylist() for file in written]
    assert sorted(number for some in ids for number in some) == list(range(40))


def test_a_large_file_is_followed_by_another(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 100)
    batches = (rows_of(range(start, start + 10)) for start in range(0, 300, 10))
    written = write(location, *batches, file_bytes=1000)
    assert len(written) > 2
    assert sum(file.rows for file in written) == 300


def test_a_task_that_fails_removes_its_files(location: Location, tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows_of([1])
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        list(FileTask(location).write(batches()))
    assert parquet_files(tmp_path) == []


def test_nulls_where_the_table_has_none_fail_the_task(location: Location, tmp_path: Path) -> None:
    batches = iter([rows_of([1]), rows_of([2], None)])
    with pytest.raises(LakeError, match="'date' of the table must not be null"):
        list(FileTask(location, required=("date",)).write(batches))
    assert parquet_files(tmp_path) == []


def test_two_attempts_of_a_task_never_share_a_file(location: Location, tmp_path: Path) -> None:
    """Speculation: both attempts write, Spark takes the result of one."""
    task = FileTask(location, partition_by=("date",))
    first, second = (list(task.write(iter([rows_of([1, 2])]))) for _ in range(2))
    names = [WrittenFile(**row).path for batch in (*first, *second) for row in batch.to_pylist()]
    assert len(set(names)) == 2
    assert parquet_files(tmp_path) == sorted(names)


def test_a_task_without_rows_writes_no_file(location: Location, tmp_path: Path) -> None:
    assert list(FileTask(location).write(iter([rows_of([])]))) == []
    assert list(tmp_path.iterdir()) == []


def test_a_url_is_written_through_deltalakes_own_store(tmp_path: Path) -> None:
    """The way that object stores take, here over a URL of this machine."""
    location = Location(f"file://{tmp_path}")
    assert not location.is_local
    (file,) = write(location, rows_of([1, 2]), partition_by=("date",))
    assert file.size_bytes == (tmp_path / file.path).stat().st_size
    assert pq.read_table(tmp_path / file.path, partitioning=None).num_rows == 2
    location.delete(file.path)
    location.delete(file.path)
    assert parquet_files(tmp_path) == []


def test_places_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("lake/orders").uri == str(tmp_path / "lake/orders")
    assert locate("file:///lake/a%20b").uri == "/lake/a b"
    assert locate("s3://bucket/orders/", {"b": "2", "a": "1"}).storage_options == (("a", "1"), ("b", "2"))
    assert locate("s3://bucket/orders/").spark_path("x/y") == "s3a://bucket/orders/x/y"
    assert locate("abfss://c@account/orders").spark_path("") == "abfss://c@account/orders"
    assert locate("/lake/orders").spark_path("x") == "file:///lake/orders/x"
    with pytest.raises(LakeError, match="ftp:// of"):
        locate("ftp://host/orders")
    with pytest.raises(LakeError, match="path is empty"):
        locate("")

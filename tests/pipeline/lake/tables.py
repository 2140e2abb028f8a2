"""Tables made without Spark, by the same two steps: files, then a commit."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from penstock.pipeline.lake.changes import AddFiles
from penstock.pipeline.lake.commits import Mark, Outcome, TableCommits
from penstock.pipeline.lake.files import FileTask, TaskFiles, WrittenFile
from penstock.pipeline.lake.locations import Location, locate
from penstock.pipeline.lake.schemas import Field, Schema
from penstock.pipeline.lake.statistics import columns_with_statistics

DAY = datetime.date(2026, 1, 31)
SCHEMA: Schema = (Field("id", "long"), Field("text", "string"), Field("date", "date"))
_ARROW = {"long": pa.int64(), "string": pa.string(), "date": pa.date32(), "integer": pa.int32(), "double": pa.float64()}


def rows_of(ids: Sequence[int], day: datetime.date | None = DAY, schema: Schema = SCHEMA) -> pa.RecordBatch:
    """Rows that can be told apart."""
    made = [{"id": number, "text": f"text {number}", "date": day, "extra": number, "n": number} for number in ids]
    types = [(field.name, _ARROW[str(field.type)]) for field in schema]
    return pa.RecordBatch.from_pylist(made, schema=pa.schema(types))


def write(
    location: Location, *batches: pa.RecordBatch, partition_by: tuple[str, ...] = (), **options: Any
) -> list[WrittenFile]:
    """What one task does."""
    schema = batches[0].schema
    kinds = {"int64": "long", "string": "string", "date32[day]": "date", "int32": "integer", "double": "double"}
    types = {field.name: kinds[str(field.type)] for field in schema if field.name not in partition_by}
    statistics = tuple(columns_with_statistics(types).items())
    files = TaskFiles(FileTask(location, partition_by=partition_by, statistics=statistics, **options))
    for batch in batches:
        files.append(batch)
    return files.finish()


class Driver:
    """A query's driver: checks, writes and commits."""

    def __init__(self, path: Path, app_id: str = "query", commits: type[TableCommits] = TableCommits, **options: Any):
        self.location = locate(path)
        self.app_id = app_id
        self.partition_by = tuple(options.get("partition_by", ()))
        self.commits = commits(self.location, **options)

    def run(
        self, batch_id: int, ids: Sequence[int], day: datetime.date | None = DAY, schema: Schema = SCHEMA
    ) -> Outcome:
        """A whole batch."""
        self.commits.refresh()
        return self.commit(batch_id, self.write(ids, day, schema), schema)

    def write(self, ids: Sequence[int], day: datetime.date | None = DAY, schema: Schema = SCHEMA) -> list[WrittenFile]:
        return write(self.location, rows_of(ids, day, schema), partition_by=self.partition_by)

    def commit(
        self, batch_id: int, files: list[WrittenFile], schema: Schema = SCHEMA, *, replace: bool = False
    ) -> Outcome:
        written = self.commits.plan(schema)
        change = AddFiles(files, replace=replace)
        return self.commits.commit(Mark(self.app_id, batch_id), schema, written, change, sleep=lambda seconds: None)


def ids_in(path: Path, version: int | None = None) -> list[int]:
    """What a reader of Delta sees."""
    table = DeltaTable(str(path), version=version)
    ids: list[int] = pa.table(table.scan(columns=["id"]).read_all()).column("id").to_pylist()
    return sorted(ids)


def parquet_files(path: Path) -> list[str]:
    """Every Parquet file that lies in the table's directory, in the table or not."""
    return sorted(
        file.relative_to(path).as_posix() for file in path.rglob("*.parquet") if "_delta_log" not in file.parts
    )

"""The tasks' part: Arrow batches → Parquet files that nobody sees yet.

Measured against Spark's own Parquet writer, writing through pyarrow inside `mapInArrow` takes 0.6 to 0.7 of the
processor time (docs/reference/lake.md has the figures). The names and statistics of the files come back with the
task's result: there is no directory to list, no rename, and no `_SUCCESS`. Spark takes the result of one attempt of
each task and no more, which is what makes speculation and retries harmless.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.layout import directory_of, partition_text
from penstock.pipeline.lake.locations import Location
from penstock.pipeline.lake.statistics import statistics_json
from penstock.spark.worker_process import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData, ParquetWriter

ROW_GROUP_BYTES = 64 << 20
"""A row group is written when this much is waiting for it: of one file, before compression."""
BUFFERED_BYTES_MAX = 192 << 20
"""What a task keeps for all its files together; the fullest is written out first."""
FILE_BYTES = 256 << 20
"""A file that has this size is closed and another one begun."""
OPEN_FILES_MAX = 100
"""A batch may touch more partitions than a process may have files open; the least recently written is closed."""

ZSTD_LEVEL = 1

RESULT_DDL = "path string, size_bytes long, rows long, partition string, modified_ms long, statistics string"

PartitionTexts = tuple[str | None, ...]


class WrittenFile(NamedTuple):
    """A file that a task wrote, and that the driver may commit. The fields are those of `RESULT_DDL`."""

    path: str
    """Relative to the table's root."""
    size_bytes: int
    rows: int
    partition: str
    """Values of the partition columns, as a JSON object of texts and nulls."""
    modified_ms: int
    statistics: str


@dataclass(frozen=True)
class FileTask:
    """What a task needs to know. `write` is what Spark runs with `mapInArrow`."""

    location: Location
    names: tuple[str, ...] = ()
    """Of the columns, in order: `mapInArrow` of Spark does not take names with dots, so others come with the rows."""
    partition_by: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    statistics: tuple[tuple[str, str], ...] = ()
    compression: str = "zstd"
    file_bytes: int = FILE_BYTES

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Writes all rows and yields one row for each file, after the last one is complete."""
        import pyarrow as pa

        files = TaskFiles(self)
        try:
            for batch in batches:
                files.append(batch.rename_columns(list(self.names)) if self.names else batch)
            written = files.finish()
        except BaseException:
            files.discard()
            raise
        if written:
            columns = [pa.array(values) for values in zip(*written, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=list(WrittenFile._fields))
        settle()


@dataclass
class _OpenFile:
    """A file on its way, and what is waiting for its next row group."""

    values: PartitionTexts
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    path: str = ""
    stream: pa.NativeFile | None = None
    writer: ParquetWriter | None = None
    footers: list[FileMetaData] = field(default_factory=list)


class TaskFiles:
    """The files of one task: at most one is open for each partition."""

    def __init__(self, task: FileTask) -> None:
        self._task = task
        self._open: dict[PartitionTexts, _OpenFile] = {}
        self._written: list[WrittenFile] = []
        self._buffered_bytes = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Takes rows, in any order of partitions."""
        if not batch.num_rows:
            return
        for name in self._task.required:
            if batch.column(name).null_count:
                raise LakeError(f"column {name!r} of the table must not be null, and the batch has nulls in it")
        for values, rows in split(batch, self._task.partition_by):
            self.add(values, rows)

    def add(self, values: PartitionTexts, rows: pa.RecordBatch) -> None:
        """Takes rows of one partition, without the partition columns."""
        file = self._open.pop(values, None) or _OpenFile(values)
        self._open[values] = file  # last in the order of use
        file.waiting.append(rows)
        size_bytes = rows.nbytes
        file.waiting_bytes += size_bytes
        self._buffered_bytes += size_bytes
        if file.waiting_bytes >= ROW_GROUP_BYTES:
            self._flush(file)
        while self._buffered_bytes > BUFFERED_BYTES_MAX:
            self._flush(max(self._open.values(), key=lambda file: file.waiting_bytes))

    def finish(self) -> list[WrittenFile]:
        """Completes all files; they are worth nothing until the driver commits them."""
        for file in list(self._open.values()):
            self._flush(file)
            self._close(file)
        return self._written

    def discard(self) -> None:
        """Removes what was written, after a failure. What is missed here, vacuum finds."""
        for file in self._open.values():
            if file.stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    file.stream.close()
                self._task.location.delete(file.path)
        for written in self._written:
            self._task.location.delete(written.path)

    def _flush(self, file: _OpenFile) -> None:
        """Writes what is waiting, as one row group."""
        import pyarrow as pa

        if not file.waiting:
            return
        table = pa.Table.from_batches(file.waiting)
        self._buffered_bytes -= file.waiting_bytes
        file.waiting, file.waiting_bytes = [], 0
        if file.writer is None:
            self._begin(file, table.schema)
        assert file.writer is not None
        assert file.stream is not None
        file.writer.write_table(table, row_group_size=table.num_rows)
        if file.stream.tell() >= self._task.file_bytes:
            self._close(file)

    def _begin(self, file: _OpenFile, schema: pa.Schema) -> None:
        from pyarrow.parquet import ParquetWriter

        opened = [other for other in self._open.values() if other.writer is not None]
        if len(opened) >= OPEN_FILES_MAX:
            self._close(opened[0])
        directory = directory_of(self._task.partition_by, file.values)
        name = f"part-{_partition_id():05}-{uuid.uuid4()}.{self._task.compression}.parquet"
        file.path = f"{directory}/{name}" if directory else name
        file.stream = self._task.location.open_output(file.path)
        file.footers = []
        file.writer = ParquetWriter(
            file.stream,
            schema,
            compression=self._task.compression,
            compression_level=ZSTD_LEVEL if self._task.compression == "zstd" else None,
            write_statistics=[name for name, _ in self._task.statistics] or False,
            # Arrow's own schema in the footer would tell readers of this session's time zone, which means nothing.
            store_schema=False,
            metadata_collector=file.footers,
        )

    def _close(self, file: _OpenFile) -> None:
        if file.writer is None or file.stream is None:
            return
        file.writer.close()
        size_bytes = file.stream.tell()
        file.stream.close()
        file.writer = file.stream = None
        footer = file.footers[0]
        self._written.append(
            WrittenFile(
                path=file.path,
                size_bytes=size_bytes,
                rows=footer.num_rows,
                partition=json.dumps(dict(zip(self._task.partition_by, file.values, strict=True))),
                modified_ms=int(time.time() * 1000),
                statistics=statistics_json(footer, dict(self._task.statistics)),
            )
        )


def split(batch: pa.RecordBatch, partition_by: tuple[str, ...]) -> Iterator[tuple[PartitionTexts, pa.RecordBatch]]:
    """The rows of each partition, without the partition columns: those are in the log, not in the files."""
    import pyarrow as pa

    if not partition_by:
        yield (), batch
        return
    keys = pa.Table.from_batches([batch.select(list(partition_by))])
    rows = batch.drop_columns(list(partition_by))
    numbered = keys.append_column("row number", pa.array(range(batch.num_rows), pa.int64()))
    groups = numbered.group_by(list(partition_by), use_threads=False).aggregate([("row number", "list")])
    values = zip(*(groups.column(name).to_pylist() for name in partition_by), strict=True)
    members = groups.column("row number_list").combine_chunks()
    for value, member in zip(values, members, strict=True):
        texts = tuple(partition_text(one) for one in value)
        yield texts, rows if groups.num_rows == 1 else rows.take(member.values)


def _partition_id() -> int:
    """For a name that says which task wrote the file; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()

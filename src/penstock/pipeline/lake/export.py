"""Plain Parquet out of a table, for whoever cannot read Delta."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.handles import first_line, open_table, partitions_of, schema_of
from penstock.pipeline.lake.listing import files_of
from penstock.pipeline.lake.locations import locate
from penstock.pipeline.lake.protocol import check_partitions

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

ROWS_PER_GROUP_MAX = 1_000_000
ROWS_PER_FILE_MAX = 10_000_000
PARTITIONS_MAX = 10_000
OPEN_FILES_MAX = 256


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    destination: str
    version: int
    files: int
    rows: int
    size_bytes: int


def export_parquet(
    path: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    version: int | None = None,
    columns: list[str] | None = None,
    predicate: str | None = None,
    compression: str = "zstd",
    storage_options: Mapping[str, str] | None = None,
    on_rows: Callable[[int, int | None], None] | None = None,
) -> Exported:
    """Writes one version of a table as Parquet files, in directories `name=value` if the table is partitioned.

    The destination is a new directory on this machine. It appears when it is complete, and not before.
    `predicate` is a condition in SQL. Deletion vectors and mapped columns are honoured.
    """
    target = Path(os.fspath(destination)).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LakeError(f"{target} is there already", "name a directory that is not, or an empty one")
    location = locate(path, storage_options)
    table = open_table(location, version)
    partition_by = [name for name in partitions_of(table) if columns is None or name in columns]
    check_partitions(schema_of(table), partition_by)
    staging = target.parent / f".{target.name}.{uuid.uuid4().hex}.partial"
    counted = _Counted(on_rows, None if predicate is not None else _total_rows(table))
    try:
        staging.mkdir(parents=True)
        files = _write(counted.over(scan(table, columns, predicate)), staging, partition_by, compression)
        size_bytes = sum(os.path.getsize(file) for file in files)
        if target.exists():
            target.rmdir()
        staging.rename(target)
    except Exception as error:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(error, LakeError):
            raise
        raise LakeError(f"cannot export the table at {location.uri}: {first_line(error)}") from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return Exported(str(target), table.version(), len(files), counted.rows, size_bytes)


class _Counted:
    """Batches on their way, and how many rows went by."""

    def __init__(self, on_rows: Callable[[int, int | None], None] | None, total: int | None) -> None:
        self.rows = 0
        self._on_rows = on_rows
        self._total = total

    def over(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield batch
            self.rows += batch.num_rows
            if self._on_rows is not None:
                self._on_rows(self.rows, self._total)


def scan(table: DeltaTable, columns: list[str] | None, predicate: str | None) -> pa.RecordBatchReader:
    """The rows, in types that every reader of Parquet knows: deltalake's engine gives views of texts."""
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_stream(table.scan(columns=columns, predicate=predicate))
    fields = [field.with_type(_plain(field.type)) for field in reader.schema]
    return reader.cast(pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_plain(kind.key_type)), kind.item_field.with_type(_plain(kind.item_type))
        )
    return kind


def _write(reader: pa.RecordBatchReader, directory: Path, partition_by: list[str], compression: str) -> list[str]:
    import pyarrow as pa
    import pyarrow.dataset as ds

    written: list[str] = []
    parquet = ds.ParquetFileFormat()
    partitioning = None
    if partition_by:
        partitioning = ds.partitioning(pa.schema([reader.schema.field(name) for name in partition_by]), flavor="hive")
    ds.write_dataset(
        reader,
        directory,
        format=parquet,
        file_options=parquet.make_write_options(compression=compression),
        partitioning=partitioning,
        basename_template="part-{i}.parquet",
        max_partitions=PARTITIONS_MAX,
        max_open_files=OPEN_FILES_MAX,
        max_rows_per_group=ROWS_PER_GROUP_MAX,
        max_rows_per_file=ROWS_PER_FILE_MAX,
        file_visitor=lambda file: written.append(file.path),
    )
    return written


def _total_rows(table: DeltaTable) -> int | None:
    rows = [file.rows for file in files_of(table)]
    known = [count for count in rows if count is not None]
    return sum(known) if len(known) == len(rows) else None

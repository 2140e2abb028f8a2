"""Rewriting small files into large ones.

deltalake can compact, but two of its compactions at a time double the rows of a table (1.6: a file that another
compaction removed does not count as a conflict), and a stream that compacts by itself and an operator who compacts by
hand are just that. So files are rewritten here, and the swap takes effect only as the next version of a table that
still has every file that was rewritten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.lake.changes import add_action
from penstock.pipeline.lake.commits import ATTEMPTS_MAX, backoff_s
from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.files import FileTask, TaskFiles, WrittenFile
from penstock.pipeline.lake.handles import first_line, partitions_of, schema_of
from penstock.pipeline.lake.listing import TableFile, files_of
from penstock.pipeline.lake.statistics import columns_with_statistics

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    from penstock.pipeline.lake.locations import Location

BATCH_ROWS = 64 * 1024
OPERATION_KEY = "penstock.operation"

PartitionTexts = tuple[str | None, ...]


def small_files(
    files: Sequence[TableFile], target_size_bytes: int, wanted: Callable[[PartitionTexts], bool] = lambda values: True
) -> dict[PartitionTexts, list[list[TableFile]]]:
    """What is worth rewriting: for each partition, groups of small files that make one of about the size. Pure.

    Files are put together in the order of their age, so that rows which were written together stay together.
    """
    small: dict[PartitionTexts, list[TableFile]] = {}
    for file in sorted(files, key=lambda file: (file.modified_ms, file.path)):
        if file.size_bytes < target_size_bytes and not file.is_absolute and wanted(file.partition):
            small.setdefault(file.partition, []).append(file)
    found: dict[PartitionTexts, list[list[TableFile]]] = {}
    for values in sorted(small, key=lambda values: tuple((value is not None, value or "") for value in values)):
        groups: list[list[TableFile]] = [[]]
        size_bytes = 0
        for file in small[values]:
            if groups[-1] and size_bytes + file.size_bytes > target_size_bytes:
                groups.append([])
                size_bytes = 0
            groups[-1].append(file)
            size_bytes += file.size_bytes
        if worth := [group for group in groups if len(group) > 1]:
            found[values] = worth
    return found


def rewrite(
    location: Location, table: DeltaTable, group: Sequence[TableFile], *, compression: str = "zstd"
) -> list[WrittenFile]:
    """The rows of some files of one partition in a new one, with the table's columns and types."""
    import pyarrow as pa

    partition_by = partitions_of(table)
    stored = [field for field in schema_of(table) if field.name not in partition_by]
    kinds = {field.name: field.type for field in stored if isinstance(field.type, str)}
    task = FileTask(
        location=location,
        partition_by=partition_by,
        statistics=tuple(columns_with_statistics(kinds).items()),
        compression=compression,
        file_bytes=max(1, sum(file.size_bytes for file in group)),
    )
    declared = pa.schema(table.schema().to_arrow())
    schema = pa.schema([declared.field(field.name) for field in stored])
    files = TaskFiles(task)
    try:
        for file in group:
            for batch in _batches(location, file, schema):
                files.add(file.partition, batch)
        return files.finish()
    except BaseException:
        files.discard()
        raise


def swap(
    location: Location,
    table: DeltaTable,
    removed: Sequence[TableFile],
    added: Sequence[WrittenFile],
    *,
    operation: str,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Puts files in the place of others. False where one of those is no longer in the table; then nothing happened.

    Files that were not put there are deleted, unless a commit with them was tried: one that seemed to fail may have
    taken effect, and what the table ever named is for vacuum to delete.
    """
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import RemoveAction

    told = [file.rows for file in removed if file.rows is not None]
    rows = sum(file.rows for file in added)
    if len(told) == len(removed) and sum(told) != rows:
        _delete(location, added)
        raise LakeError(
            f"files of the table at {location.uri} hold {rows} rows, and its log tells of {sum(told)} in them "
            f"({removed[0].path}, …): they are left as they are",
            "compare the table with its source; one of its files was changed or replaced",
        )
    partition_by = partitions_of(table)
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            sleep(backoff_s(attempt))
        table.update_incremental()
        present = {file.path for file in files_of(table)}
        if any(file.path not in present for file in removed):
            if not attempt:
                _delete(location, added)
            return attempt > 0 and all(file.path in present for file in added)
        now_ms = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(
                path=file.path,
                data_change=False,
                deletion_timestamp=now_ms,
                size=file.size_bytes,
                partition_values=dict(zip(partition_by, file.partition, strict=True)),
            )
            for file in removed
        ]
        actions += [add_action(file, data_change=False) for file in added]
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partition_by=list(partition_by),
                commit_properties=CommitProperties(custom_metadata={OPERATION_KEY: operation}, max_commit_retries=0),
            )
        except CommitFailedError:
            continue
        table.update_incremental()
        return True
    raise LakeError(
        f"the table at {location.uri} changed {ATTEMPTS_MAX} times while it was compacted",
        "try again when fewer jobs write to it",
    )


def _delete(location: Location, files: Sequence[WrittenFile]) -> None:
    for file in files:
        location.delete(file.path)


def _batches(location: Location, file: TableFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file as the table declares them: what the file lacks is null."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with location.open_input(file.path) as source, ParquetFile(source) as stored:
            for batch in stored.iter_batches(batch_size=BATCH_ROWS):
                names = {name.lower(): index for index, name in enumerate(batch.schema.names)}
                columns = []
                for field in schema:
                    index = names.get(field.name.lower())
                    if index is None:
                        columns.append(pa.nulls(batch.num_rows, field.type))
                    else:
                        column = batch.column(index)
                        columns.append(column if column.type == field.type else column.cast(field.type))
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except (OSError, pa.ArrowException) as error:
        raise LakeError(
            f"cannot read {file.path} of the table at {location.uri}: {first_line(error)}",
            "if vacuum deleted it just now, try again; else restore the file",
        ) from error

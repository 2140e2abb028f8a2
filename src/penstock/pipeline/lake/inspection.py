"""What a table is, and what happened to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.pipeline.lake.commits import BATCH_KEY, QUERY_KEY
from penstock.pipeline.lake.compaction import OPERATION_KEY, small_files
from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.handles import first_line, open_table, partitions_of, protocol_of, schema_of
from penstock.pipeline.lake.listing import files_of
from penstock.pipeline.lake.locations import locate
from penstock.pipeline.lake.schemas import shown
from penstock.pipeline.lake.upkeep import TARGET_BYTES

LOG_DIRECTORY = "_delta_log"


@dataclass(frozen=True)
class ColumnDescription:
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    is_partition: bool


@dataclass(frozen=True)
class TableDescription:
    """A version of a table."""

    path: str
    version: int
    columns: tuple[ColumnDescription, ...]
    partition_by: tuple[str, ...]
    files: int
    rows: int | None
    """None where a file does not tell."""
    size_bytes: int
    smallest_bytes: int | None
    largest_bytes: int | None
    partitions: int
    partitions_to_compact: int
    reader_version: int
    writer_version: int
    features: tuple[str, ...]
    properties: Mapping[str, str]
    created_ms: int | None


@dataclass(frozen=True)
class Commit:
    """An entry of a table's history."""

    version: int
    timestamp_ms: int | None
    operation: str
    query_id: str | None
    batch_id: int | None
    details: Mapping[str, object]


def describe_table(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> TableDescription:
    """What the table is now, or was at a version."""
    location = locate(path, storage_options)
    table = open_table(location, version)
    partition_by = partitions_of(table)
    files = files_of(table)
    rows = [file.rows for file in files if file.rows is not None]
    sizes = [file.size_bytes for file in files]
    protocol = protocol_of(table)
    metadata = table.metadata()
    return TableDescription(
        path=location.uri,
        version=table.version(),
        columns=tuple(
            ColumnDescription(field.name, shown(field.type), field.nullable, field.name in partition_by)
            for field in schema_of(table)
        ),
        partition_by=partition_by,
        files=len(files),
        rows=sum(rows) if len(rows) == len(files) else None,
        size_bytes=sum(sizes),
        smallest_bytes=min(sizes, default=None),
        largest_bytes=max(sizes, default=None),
        partitions=len({file.partition for file in files}) if partition_by else 0,
        partitions_to_compact=len(small_files(files, TARGET_BYTES)),
        reader_version=protocol.reader_version,
        writer_version=protocol.writer_version,
        features=tuple(sorted({*protocol.reader_features, *protocol.writer_features})),
        properties={key: value for key, value in metadata.configuration.items() if value is not None},
        created_ms=metadata.created_time,
    )


def table_history(
    path: str | os.PathLike[str],
    *,
    limit: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[Commit]:
    """The commits that the log still has, newest first."""
    from deltalake.exceptions import DeltaError

    location = locate(path, storage_options)
    table = open_table(location)
    try:
        entries = table.history(limit)
    except (DeltaError, OSError) as error:
        raise LakeError(f"cannot read the history of the table at {location.uri}: {first_line(error)}") from error
    commits = []
    for entry in entries:
        batch = entry.pop(BATCH_KEY, None)
        commits.append(
            Commit(
                version=entry.pop("version"),
                timestamp_ms=entry.pop("timestamp", None),
                operation=_operation(entry),
                query_id=entry.pop(QUERY_KEY, None),
                batch_id=int(batch) if batch is not None else None,
                details=entry,
            )
        )
    return commits


def _operation(entry: dict[str, object]) -> str:
    """Ours is told by a name of its own: deltalake calls every commit of files a write."""
    told = entry.pop("operation", "unknown")
    return str(entry.pop(OPERATION_KEY, told))


def find_tables(directory: str | os.PathLike[str]) -> list[str]:
    """The Delta tables in a directory of this machine and below it, by their paths."""
    root = Path(directory)
    if not root.is_dir():
        raise LakeError(f"there is no directory {root}", "give one that holds tables")
    found: list[str] = []
    for parent, directories, _ in os.walk(root):
        if LOG_DIRECTORY in directories:
            found.append(parent)
            directories.clear()  # tables do not lie in tables
        else:
            directories[:] = sorted(name for name in directories if not name.startswith((".", "_")))
    return sorted(found)

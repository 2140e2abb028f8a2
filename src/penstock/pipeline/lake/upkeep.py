"""Compaction and vacuum. Both run beside writers.

Streams make many small files, and readers pay for each. Compaction puts those of a partition together, in a commit that
removes the old ones and adds the new; what the table holds does not change, so appends do not conflict with it. The old
files stay for readers of earlier versions until vacuum deletes them. Vacuum also finds files that no commit ever named:
what attempts left that failed, or lost a race.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.pipeline.lake.compaction import rewrite, small_files, swap
from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.files import WrittenFile
from penstock.pipeline.lake.handles import (
    first_line,
    has_deletion_vectors,
    open_table,
    partitions_of,
    protocol_of,
    schema_of,
)
from penstock.pipeline.lake.listing import TableFile, files_of
from penstock.pipeline.lake.locations import Location, locate
from penstock.pipeline.lake.protocol import check_partitions, check_readable, check_writable

TARGET_BYTES = 128 << 20
RETENTION_HOURS = 168
"""A week, as Delta's own default: longer than any reader or batch takes."""
COMPACTION = "compaction"

Progress = Callable[[int, int, str], None]
"""Parts done, parts in all, the part that is next or was last."""


@dataclass(frozen=True)
class Compacted:
    """What a compaction did."""

    partitions: int
    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int
    passed_over: int
    """Groups of files that another job changed meanwhile; the next compaction sees to them."""
    version: int


@dataclass(frozen=True)
class Vacuumed:
    """Files that vacuum deleted or, in a dry run, would delete."""

    files: tuple[str, ...]
    size_bytes: int | None
    """Known for directories on this machine."""
    dry_run: bool


def compact_table(
    path: str | os.PathLike[str],
    *,
    target_size_bytes: int = TARGET_BYTES,
    partitions: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
) -> Compacted:
    """Puts small files together, partition by partition.

    `partitions` restricts it, such as `{"date": "2026-01-31"}`. Each group of files is a commit: what an
    interrupted compaction did is done.
    """
    return compact_location(
        locate(path, storage_options),
        target_size_bytes=target_size_bytes,
        partitions=partitions,
        on_progress=on_progress,
    )


def compact_location(
    location: Location,
    *,
    target_size_bytes: int = TARGET_BYTES,
    partitions: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
) -> Compacted:
    """As `compact_table`."""
    if target_size_bytes < 1:
        raise LakeError(f"a target size of {target_size_bytes} bytes makes no files", "leave it out for 128 MB")
    table = open_table(location)
    configuration = table.metadata().configuration
    check_readable(protocol_of(table), configuration, has_deletion_vectors=has_deletion_vectors(table))
    check_writable(protocol_of(table), configuration, schema_of(table))
    partition_by = partitions_of(table)
    check_partitions(schema_of(table), partition_by)
    small = small_files(files_of(table), target_size_bytes, _wanted(partition_by, partitions))
    removed: list[TableFile] = []
    added: list[WrittenFile] = []
    passed = 0
    for index, (values, groups) in enumerate(small.items()):
        if on_progress is not None:
            label = "/".join(f"{name}={value}" for name, value in zip(partition_by, values, strict=True))
            on_progress(index, len(small), label)
        for group in groups:
            files = rewrite(location, table, group)
            if swap(location, table, group, files, operation=COMPACTION):
                removed += group
                added += files
            else:  # another job has removed or rewritten some of them: ours are not needed
                passed += 1
    if on_progress is not None:
        on_progress(len(small), len(small), "")
    return Compacted(
        partitions=len(small),
        files_removed=len(removed),
        files_added=len(added),
        bytes_removed=sum(file.size_bytes for file in removed),
        bytes_added=sum(file.size_bytes for file in added),
        passed_over=passed,
        version=table.version(),
    )


def vacuum_table(
    path: str | os.PathLike[str],
    *,
    retention_hours: int = RETENTION_HOURS,
    dry_run: bool = False,
    allow_short_retention: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Vacuumed:
    """Deletes files that no version of the last `retention_hours` needs, and files that no commit names.

    A file younger than that is kept whoever wrote it: it may belong to a batch that is about to be committed.
    """
    if retention_hours < 0:
        raise LakeError(f"a retention of {retention_hours} hours makes no sense", "give 0 or more")
    if retention_hours < RETENTION_HOURS and not allow_short_retention:
        raise LakeError(
            f"a retention of {retention_hours} hours may delete files that readers still need and that running batches "
            "are about to commit",
            f"keep {RETENTION_HOURS} hours; while nothing uses the table, allow_short_retention=True (--force) will do",
        )
    from deltalake.exceptions import DeltaError

    location = locate(path, storage_options)
    table = open_table(location)
    try:
        found = table.vacuum(
            retention_hours, dry_run=True, enforce_retention_duration=not allow_short_retention, full=True
        )
        sizes = _sizes(location, found)
        if not dry_run and found:
            found = table.vacuum(
                retention_hours, dry_run=False, enforce_retention_duration=not allow_short_retention, full=True
            )
    except (DeltaError, OSError) as error:
        raise LakeError(f"cannot vacuum the table at {location.uri}: {first_line(error)}") from error
    return Vacuumed(tuple(sorted(found)), sizes, dry_run)


def _wanted(
    partition_by: tuple[str, ...], partitions: Mapping[str, str] | None
) -> Callable[[tuple[str | None, ...]], bool]:
    chosen = dict(partitions or {})
    for name in chosen:
        if name not in partition_by:
            raise LakeError(
                f"the table is not partitioned by {name!r}",
                f"its partition columns are {', '.join(partition_by)}" if partition_by else "it has no partitions",
            )

    def wanted(values: tuple[str | None, ...]) -> bool:
        named = dict(zip(partition_by, values, strict=True))
        return all((named[name] or "") == value for name, value in chosen.items())

    return wanted


def _sizes(location: Location, files: Sequence[str]) -> int | None:
    if not location.is_local:
        return None
    size_bytes = 0
    for file in files:
        try:
            size_bytes += os.path.getsize(os.path.join(location.uri, file))
        except OSError:
            continue
    return size_bytes

"""What a batch does to a table: files to add, or rows to merge. One of them is given to a commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.files import WrittenFile
from penstock.pipeline.lake.schemas import WritePlan

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction


class Change(Protocol):
    """What a commit puts into the table."""

    @property
    def first_files(self) -> Sequence[WrittenFile] | None:
        """Files that a new table can begin with; None where the table has to be there first."""

    @property
    def is_empty(self) -> bool:
        """Whether the table would stay as it is."""

    def apply(self, table: DeltaTable, plan: WritePlan, properties: CommitProperties) -> None:
        """Commits from the handle."""


@dataclass(frozen=True)
class AddFiles:
    """Files join the table, or take the place of all that was in it."""

    files: Sequence[WrittenFile]
    replace: bool = False

    @property
    def first_files(self) -> Sequence[WrittenFile]:
        return self.files

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.replace

    def apply(self, table: DeltaTable, plan: WritePlan, properties: CommitProperties) -> None:
        table.create_write_transaction(
            [add_action(file) for file in self.files],
            "overwrite" if self.replace else "append",
            table.schema(),
            partition_by=list(plan.partition_by),
            commit_properties=properties,
        )


@dataclass(frozen=True)
class MergeRows:
    """Rows take the place of those with the same key; what has a new key is added. Null is a key like any other."""

    rows: pa.Table
    key: tuple[str, ...]

    @property
    def first_files(self) -> None:
        return None

    @property
    def is_empty(self) -> bool:
        return not self.rows.num_rows

    def apply(self, table: DeltaTable, plan: WritePlan, properties: CommitProperties) -> None:
        import pyarrow as pa

        stored = pa.schema(table.schema().to_arrow())
        rows = self.rows.cast(pa.schema([stored.field(name) for name in self.rows.column_names]))
        same = " AND ".join(
            f"(target.{name} = source.{name} OR (target.{name} IS NULL AND source.{name} IS NULL))"
            for name in map(_quoted, self.key)
        )
        values = {_quoted(name): f"source.{_quoted(name)}" for name in rows.column_names}
        (
            table.merge(rows, same, source_alias="source", target_alias="target", commit_properties=properties)
            .when_matched_update(values)
            .when_not_matched_insert(values)
            .execute()
        )


def merge_of(rows: pa.Table, key: Sequence[str]) -> MergeRows:
    """Rows to merge by a key; LakeError where two of them have the same one."""
    names = {name.lower(): name for name in rows.column_names}
    chosen = []
    for name in key:
        if name.lower() not in names:
            raise LakeError(
                f"there is no column {name!r} to be the key; the batch has {', '.join(rows.column_names)}",
                "name the columns that the query groups by",
            )
        chosen.append(names[name.lower()])
    distinct = rows.select(chosen).group_by(chosen).aggregate([]).num_rows
    if distinct < rows.num_rows:
        raise LakeError(
            f"{rows.num_rows} changed rows have only {distinct} keys: ({', '.join(chosen)}) does not tell them apart",
            "name all columns that the query groups by",
        )
    return MergeRows(rows, tuple(chosen))


def add_action(file: WrittenFile, *, data_change: bool = True) -> AddAction:
    """A file, as deltalake commits it."""
    from deltalake.transaction import AddAction

    return AddAction(
        file.path, file.size_bytes, json.loads(file.partition), file.modified_ms, data_change, file.statistics
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

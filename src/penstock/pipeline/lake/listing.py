"""The files of a table, as its log tells them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from penstock.pipeline.lake.handles import partitions_of
from penstock.pipeline.lake.layout import partition_text

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|/")


class TableFile(NamedTuple):
    """A file that is part of the table."""

    path: str
    """Relative to the table's root, or absolute where the log says so (files of another table that was cloned)."""
    size_bytes: int
    rows: int | None
    modified_ms: int
    partition: tuple[str | None, ...]

    @property
    def is_absolute(self) -> bool:
        return _ABSOLUTE.match(self.path) is not None

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]


def files_of(table: DeltaTable) -> list[TableFile]:
    """All files of the version that the handle has, in the order of their paths."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    count = actions.num_rows
    columns = [actions.column(f"partition.{name}").to_pylist() for name in partitions_of(table)]
    values = list(zip(*columns, strict=True)) if columns else [()] * count
    files = [
        TableFile(unquote(path), size, rows, modified, tuple(partition_text(value) for value in partition))
        for path, size, rows, modified, partition in zip(
            actions.column("path").to_pylist(),
            actions.column("size_bytes").to_pylist(),
            actions.column("num_records").to_pylist() if "num_records" in actions.column_names else [None] * count,
            actions.column("modification_time").to_pylist(),
            values,
            strict=True,
        )
    ]
    return sorted(files)

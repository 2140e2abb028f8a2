"""Rows of tables for a person or a script: some of one table, or the result of a query over several.

The engine is the one inside deltalake, so neither Spark nor Java is needed, and a query stops reading files when it has
as many rows as were asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.export import scan
from penstock.pipeline.lake.handles import first_line, open_table
from penstock.pipeline.lake.inspection import find_tables
from penstock.pipeline.lake.locations import locate

if TYPE_CHECKING:
    import pyarrow as pa

_READS = re.compile(r"(?:\s|--[^\n]*\n|\()*(?:SELECT|WITH|VALUES|EXPLAIN|DESCRIBE|SHOW)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Rows:
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    has_more: bool
    """Whether there are rows beyond the limit."""


def read_rows(
    path: str | os.PathLike[str],
    *,
    limit: int,
    version: int | None = None,
    columns: list[str] | None = None,
    predicate: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Rows:
    """The first rows of a table in the order of its files; `predicate` is a condition in SQL."""
    location = locate(path, storage_options)
    table = open_table(location, version)
    try:
        return _take(scan(table, columns, predicate), limit)
    except Exception as error:
        raise LakeError(f"cannot read the table at {location.uri}: {first_line(error)}") from error


def query_tables(directory: str, sql: str, *, limit: int) -> Rows:
    """The result of a SELECT over the tables in a directory and below it, each under its directory's name."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    if not _READS.match(sql):
        raise LakeError("only queries that read are allowed here", "begin with SELECT or WITH")
    paths = find_tables(directory)
    if not paths:
        raise LakeError(f"there is no Delta table in {directory}", "name a directory that holds tables")
    builder = QueryBuilder()
    named: dict[str, str] = {}
    for path in paths:
        name = os.path.basename(path.rstrip("/"))
        if name in named:
            raise LakeError(f"{named[name]} and {path} are both named {name}", "name a directory with one of them")
        named[name] = path
        builder.register(name, open_table(locate(path)))
    try:
        return _take(pa.RecordBatchReader.from_stream(builder.execute(sql)), limit)
    except Exception as error:
        raise LakeError(f"this query fails: {first_line(error)}", f"there are {', '.join(sorted(named))}") from error


def _take(reader: pa.RecordBatchReader, limit: int) -> Rows:
    rows: list[tuple[object, ...]] = []
    with reader:
        for batch in reader:
            values = [column.to_pylist() for column in batch.slice(0, limit + 1 - len(rows)).columns]
            rows += zip(*values, strict=True)
            if len(rows) > limit:
                break
    return Rows(tuple(reader.schema.names), tuple(rows[:limit]), len(rows) > limit)

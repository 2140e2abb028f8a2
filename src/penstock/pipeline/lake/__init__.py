"""Tables in a lake: Delta by default, exactly once per micro-batch, with no jar.

    from penstock.pipeline.lake import read_table, to_table

    query = events.writeStream.foreachBatch(to_table("lake/orders", date_column="timestamp")).start()
    ...
    read_table(spark, "lake/orders").where("date = '2026-01-31'").count()

Theory of operation
-------------------
A Delta table is a directory of Parquet files and a log of numbered commits, each of which adds and removes files. What
no commit names is not in the table. So a micro-batch is written in two steps:

1. *Tasks write files* (`files`). Each Arrow batch that Spark hands to a task is appended to a Parquet file under a name
   that nobody else has, in the directory of its partition. A task returns the names, sizes and statistics of what it
   wrote. A task that fails, or a second attempt that loses the race, leaves files whose names nobody collects.
2. *The driver commits their names* (`commits`), together with a transaction mark (query id, batch id). It opens the
   table once, asks that handle for the query's last mark, and commits from the same handle. The commit takes effect
   only as the next version of what that handle has seen; else it fails, and the driver looks at the table again.

That gives exactly once for each query id and batch id, whatever happens in between: a batch that Spark runs again finds
its mark, and is evaluated (state stores have to go on) but not written. The number of tasks may differ between attempts
and columns may be random, since nothing is derived from either. A driver that was thought dead and wakes up later meets
the mark of its successor.

Compaction (`upkeep`, `compaction`) only rewrites files, and runs beside writers and beside itself: its swap counts only
while every file that it rewrote is still in the table. Vacuum deletes files that no commit of the retention time names,
and with them what failed attempts left behind.

- `writer` puts both steps together, for `foreachBatch`. `changes` is what a commit can do: add files, replace all
  files, merge rows by a key (for queries in update mode, whose rows pass through the driver).
- `schemas` decides, purely, how a batch fits a table: columns to add, casts, refusals. `protocol` refuses tables whose
  features this code does not know. `layout` holds names of directories and values of partitions, `statistics` what a
  commit tells about a file.
- `reader` gives the file list to Spark's own Parquet reader, with the table's schema imposed.
- `export` writes plain Parquet, `inspection` tells what a table is and what happened to it.
- `rows` reads some rows, or asks a query over several tables, without Spark.
- `locations` knows where a table lies: a path, or a URL of an object store.

It needs pyspark, pyarrow and deltalake (`pip install 'penstock-streaming[spark]'`) and imports none of them before use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import LakeError, StaleCheckpoint

if TYPE_CHECKING:
    from penstock.pipeline.lake.export import Exported, export_parquet
    from penstock.pipeline.lake.inspection import (
        Commit,
        TableDescription,
        describe_table,
        find_tables,
        table_history,
    )
    from penstock.pipeline.lake.reader import read_table
    from penstock.pipeline.lake.rows import Rows, query_tables, read_rows
    from penstock.pipeline.lake.upkeep import Compacted, Vacuumed, compact_table, vacuum_table
    from penstock.pipeline.lake.writer import Step, TableWriter, to_table

_MODULE_OF = {
    "Commit": "inspection",
    "Compacted": "upkeep",
    "Exported": "export",
    "Rows": "rows",
    "Step": "writer",
    "TableDescription": "inspection",
    "TableWriter": "writer",
    "Vacuumed": "upkeep",
    "compact_table": "upkeep",
    "describe_table": "inspection",
    "export_parquet": "export",
    "find_tables": "inspection",
    "query_tables": "rows",
    "read_rows": "rows",
    "read_table": "reader",
    "table_history": "inspection",
    "to_table": "writer",
    "vacuum_table": "upkeep",
}

__all__ = [
    "Commit",
    "Compacted",
    "Exported",
    "LakeError",
    "Rows",
    "StaleCheckpoint",
    "Step",
    "TableDescription",
    "TableWriter",
    "Vacuumed",
    "compact_table",
    "describe_table",
    "export_parquet",
    "find_tables",
    "query_tables",
    "read_rows",
    "read_table",
    "table_history",
    "to_table",
    "vacuum_table",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

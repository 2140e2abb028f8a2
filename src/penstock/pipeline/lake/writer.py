"""`to_table`: what `foreachBatch` calls for every micro-batch."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Literal

from penstock.pipeline.lake.changes import AddFiles, Change, merge_of
from penstock.pipeline.lake.commits import Mark, Outcome, TableCommits
from penstock.pipeline.lake.errors import LakeError
from penstock.pipeline.lake.files import RESULT_DDL, FileTask, WrittenFile
from penstock.pipeline.lake.handles import require_deltalake
from penstock.pipeline.lake.locations import Location, locate
from penstock.pipeline.lake.schemas import SchemaEvolution, WritePlan, schema_of_json
from penstock.pipeline.lake.statistics import columns_with_statistics
from penstock.pipeline.query_ids import query_id_of, tells_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

DATE_COLUMN = "date"
MODES = ("append", "update", "complete")
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
DAY_US = 86_400_000_000

Mode = Literal["append", "update", "complete"]


class Step(Enum):
    """How far a batch has come. `on_step` hears of each."""

    STARTED = "started"
    """The table was looked at: the batch is not in it."""
    WRITTEN = "written"
    """All files are complete, and invisible."""
    COMMITTED = "committed"
    """The batch is in the table; Spark does not know it yet."""
    REPEATED = "repeated"
    """The batch was found in the table; it was evaluated, and nothing more committed."""


def to_table(
    path: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] = (),
    date_column: str | None = None,
    mode: Mode = "append",
    key: Sequence[str] = (),
    schema_evolution: SchemaEvolution = "add",
    app_id: str | None = None,
    compact_every: int | None = None,
    compression: str = "zstd",
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_step: Callable[[Step, int], None] | None = None,
) -> TableWriter:
    """Writes each micro-batch to a Delta table, whole and once. Give the result to `foreachBatch`.

    - `partition_by`: columns whose values make the directories. `date_column` names a timestamp instead: its day in UTC
      becomes the column `date`, by which the table is partitioned (after `partition_by`, if both are given).
    - `mode`: the query's output mode. `append` adds rows. With `complete` each batch replaces the table. With `update`
      rows replace those that have the same `key`, the columns that the query groups by; they pass through the driver.
    - `schema_evolution`: `add` lets columns that the table lacks be added to it; `refuse` stops the query at them.
      Columns that the batch lacks are null. Types never change; narrower ones are cast to the table's.
    - `app_id`: in whose name batches are counted. Spark's query id by default, which the checkpoint keeps.
    - `compact_every`: small files are put together in the background after so many batches.
    - `properties`: of the table, when it is made, such as `{"delta.logRetentionDuration": "interval 7 days"}`.
    - `storage_options`: for object stores, as deltalake takes them.
    """
    if mode not in MODES:
        raise LakeError(f"mode {mode!r} is not known", f"use one of {', '.join(MODES)}")
    if isinstance(key, str):
        key = (key,)
    if bool(key) != (mode == "update"):
        raise LakeError(
            "mode 'update' needs a key" if not key else f"mode {mode!r} has no use for a key",
            "give key=[…] together with mode='update', and only then",
        )
    if schema_evolution not in ("add", "refuse"):
        raise LakeError(f"schema_evolution {schema_evolution!r} is not known", "use add, or refuse")
    if compression not in COMPRESSIONS:
        raise LakeError(f"compression {compression!r} is not known", f"use one of {', '.join(COMPRESSIONS)}")
    if compact_every is not None and compact_every < 1:
        raise LakeError(f"compact_every is {compact_every}", "give a number of batches, 1 or more")
    if isinstance(partition_by, str):
        partition_by = (partition_by,)
    require_deltalake()
    return TableWriter(
        locate(path, storage_options),
        partition_by=(*partition_by, *([DATE_COLUMN] if date_column is not None else [])),
        date_column=date_column,
        mode=mode,
        key=key,
        evolution=schema_evolution,
        app_id=app_id,
        compact_every=compact_every,
        compression=compression,
        properties=properties,
        on_step=on_step,
    )


class TableWriter:
    """One query's way into one table. Made by `to_table`."""

    def __init__(
        self,
        location: Location,
        *,
        partition_by: Sequence[str],
        date_column: str | None,
        mode: Mode,
        key: Sequence[str],
        evolution: SchemaEvolution,
        app_id: str | None,
        compact_every: int | None,
        compression: str,
        properties: Mapping[str, str] | None,
        on_step: Callable[[Step, int], None] | None,
    ) -> None:
        self.location = location
        self._date_column = date_column
        self._mode = mode
        self._key = tuple(key)
        self._app_id = app_id
        self._compression = compression
        self._on_step = on_step
        self._commits = TableCommits(location, partition_by=partition_by, evolution=evolution, properties=properties)
        self._compaction = None if compact_every is None else BackgroundCompaction(location, compact_every)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Writes and commits a micro-batch."""
        mark = Mark(self._app_id or _query_id(batch), batch_id)
        if self._commits.has(mark):
            self._repeat(batch, batch_id)
            return
        self._step(Step.STARTED, batch_id)
        if self._date_column is not None:
            batch = with_date(batch, self._date_column)
        schema = schema_of_json(batch.schema.jsonValue())
        plan = self._commits.plan(schema)
        change = self._evaluate(batch, plan)
        self._step(Step.WRITTEN, batch_id)
        outcome = self._commits.commit(mark, schema, plan, change)
        if outcome is Outcome.ALREADY_THERE:
            # Another driver of this query was faster, or a commit of ours took effect and its answer was lost. Then
            # the table holds these very files, so they stay where they are; vacuum finds them if it does not.
            self._step(Step.REPEATED, batch_id)
            return
        self._step(Step.COMMITTED, batch_id)
        if self._compaction is not None:
            self._compaction.after_batch()

    def close(self) -> None:
        """Waits for a compaction that is under way."""
        if self._compaction is not None:
            self._compaction.close()

    def _evaluate(self, batch: DataFrame, plan: WritePlan) -> Change:
        """Runs the batch, once."""
        rows = fitted(batch, plan)
        if self._mode == "update":
            return merge_of(rows.toArrow(), self._key)
        return AddFiles(write_files(rows, plan, self.location, self._compression), replace=self._mode == "complete")

    def _repeat(self, batch: DataFrame, batch_id: int) -> None:
        """Evaluates a batch that is in the table: its state stores have to be committed, its files not."""
        batch.write.format("noop").mode("overwrite").save()
        self._step(Step.REPEATED, batch_id)

    def _step(self, step: Step, batch_id: int) -> None:
        log.debug("batch %d of the table at %s: %s", batch_id, self.location.uri, step.value)
        if self._on_step is not None:
            self._on_step(step, batch_id)


def fitted(batch: DataFrame, plan: WritePlan) -> DataFrame:
    """The batch with the table's names and types, in the table's order."""
    from pyspark.sql import functions

    columns = []
    for column in plan.columns:
        source = functions.col(quoted(column.source))
        columns.append((source if column.cast_to is None else source.cast(column.cast_to)).alias(column.target))
    return batch.select(*columns)


def write_files(rows: DataFrame, plan: WritePlan, location: Location, compression: str) -> list[WrittenFile]:
    """Runs the rows through tasks that write them, and returns the files."""
    kinds = {
        field.name: field.type
        for field in plan.written
        if isinstance(field.type, str) and field.name not in plan.partition_by
    }
    task = FileTask(
        location=location,
        names=tuple(column.target for column in plan.columns),
        partition_by=plan.partition_by,
        required=plan.required,
        statistics=tuple(columns_with_statistics(kinds).items()),
        compression=compression,
    )
    numbered = rows.toDF(*(f"c{index}" for index in range(len(plan.columns))))
    return [WrittenFile(*row) for row in numbered.mapInArrow(task.write, RESULT_DDL).collect()]


def with_date(batch: DataFrame, column: str) -> DataFrame:
    """The batch with the column `date`: the day of a timestamp in UTC, whatever time zone the session is in."""
    from pyspark.sql import functions
    from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

    fields = {field.name.lower(): field for field in batch.schema.fields}
    field = fields.get(column.lower())
    if field is None:
        raise LakeError(
            f"there is no column {column!r} to take the date from", f"the batch has {', '.join(batch.columns)}"
        )
    if DATE_COLUMN in fields:
        raise LakeError(
            f"date_column makes a column {DATE_COLUMN!r}, and the batch has one already",
            f"rename it, or use partition_by=[{DATE_COLUMN!r}]",
        )
    name = quoted(field.name)
    if isinstance(field.dataType, TimestampType):
        micros = f"unix_micros({name})"
        date = functions.expr(f"date_from_unix_date(CAST(({micros} - pmod({micros}, {DAY_US})) div {DAY_US} AS INT))")
    elif isinstance(field.dataType, TimestampNTZType | DateType):
        date = functions.col(name).cast("date")
    else:
        raise LakeError(
            f"date_column {column!r} is {field.dataType.simpleString()}", "name a timestamp, or cast the column to one"
        )
    return batch.withColumn(DATE_COLUMN, date)


def _query_id(batch: DataFrame) -> str:
    if not tells_ids(batch):
        raise LakeError("Spark Connect does not tell the query's id", "give to_table an app_id of your own")
    found = query_id_of(batch)
    if found is None:
        raise LakeError(
            "this is not a micro-batch of a streaming query, so it has no query id",
            "call it through foreachBatch, or give to_table an app_id",
        )
    return found


def quoted(name: str) -> str:
    """A column's name, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


class BackgroundCompaction:
    """Compacts beside the query. A failure costs nothing but small files, so it is only told."""

    def __init__(self, location: Location, every: int) -> None:
        self._location = location
        self._every = every
        self._batches = 0
        self._thread: threading.Thread | None = None

    def after_batch(self) -> None:
        self._batches += 1
        if self._batches < self._every or (self._thread is not None and self._thread.is_alive()):
            return
        self._batches = 0
        self._thread = threading.Thread(target=self._run, name="penstock-compaction", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        from penstock.pipeline.lake.upkeep import compact_location

        try:
            compact_location(self._location)
        except Exception as error:
            log.warning("could not compact the table at %s: %s", self._location.uri, error)

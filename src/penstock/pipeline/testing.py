"""Tests of a pipeline on Spark: the rows of a fixture go in, and the rows that its queries write are compared.

The queries run as streaming queries, in the micro-batches, output modes and watermarks of a real run; only the topics
are replaced. Each stream reads a directory of files instead, one file for each micro-batch, with the columns of a
topic's records, so that records are decoded as in a run. Nothing is written to tables or topics, and no broker is
needed.

The last file holds one row that moves the watermark past all windows. It passes the operator that computes the
watermark and is filtered right behind it. The filter names the column of the watermark, which keeps Spark's optimizer
from moving it to the other side.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from penstock.pipeline.decoding import decode
from penstock.pipeline.failures import LATE_WORKER, reason_of
from penstock.pipeline.fixtures import Case, Expectation, FixtureRow, json_text
from penstock.pipeline.identity import dead_letter_query, dead_letter_sources
from penstock.pipeline.model import (
    Format,
    OutputMode,
    Pipeline,
    PipelineError,
    Place,
    Problem,
    Reference,
    Role,
    SinkKind,
    Source,
    nearest,
)
from penstock.pipeline.planning import Plan, own_session, plan, target_rows
from penstock.pipeline.row_diff import Difference, Values, differences
from penstock.pipeline.source_columns import columns_of
from penstock.pipeline.spark_errors import quietly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

TIME_ZONE = "spark.sql.session.timeZone"
SETTINGS = {"spark.sql.shuffle.partitions": "1", TIME_ZONE: "UTC"}
"""Of the sessions in which tests run, unless the pipeline's file says otherwise."""
RECORD_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""The timestamp of a record whose row does not give one."""
END_OF_TIME = "9999-01-01 00:00:00"
_ENDS = "__ends"
_CORRUPT = "__corrupt"


@dataclass(frozen=True)
class Comparison:
    """One expectation of a test, and what came of it."""

    name: str
    line: int
    columns: tuple[str, ...]
    expected: int
    found: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Outcome:
    """How one test ended."""

    case: Case
    comparisons: tuple[Comparison, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return not any(one.differences for one in self.comparisons)


def run_case(pipeline: Pipeline, case: Case, spark: SparkSession, path: Path) -> Outcome:
    """Runs one test of the fixture file `path`. PipelineError if the pipeline or the fixture is wrong."""
    started_s = time.monotonic()
    _check_names(pipeline, case, path)
    session = own_session(spark, pipeline)
    for name, value in SETTINGS.items():
        if name not in pipeline.spark:
            session.conf.set(name, value)
    with TemporaryDirectory(prefix="penstock-test-") as scratch, quietly():
        test = _Test(pipeline, case, session, Path(scratch), path)
        comparisons = test.run()
    return Outcome(case, comparisons, time.monotonic() - started_s)


def _check_names(pipeline: Pipeline, case: Case, path: Path) -> None:
    inputs = [one.name for one in pipeline.sources] + [one.name for one in pipeline.references]
    queries = [one.name for one in pipeline.sinks] + [dead_letter_query(one) for one in dead_letter_sources(pipeline)]
    problems = [
        Problem(
            f"{pipeline.name} reads no stream or table {name}{nearest(name, inputs)}",
            f"it reads {', '.join(inputs)}",
            Place(case.line),
        )
        for name in sorted(case.given_names - set(inputs))
    ]
    problems += [
        Problem(
            f"{pipeline.name} has no query {one.name}{nearest(one.name, queries)}",
            f"its queries are {', '.join(queries)}",
            Place(one.line),
        )
        for one in case.expectations
        if one.name not in queries
    ]
    if problems:
        raise PipelineError(problems, path=path)


@dataclass
class _Test:
    pipeline: Pipeline
    case: Case
    session: SparkSession
    scratch: Path
    path: Path

    def run(self) -> tuple[Comparison, ...]:
        letters: dict[str, DataFrame] = {}
        inputs = {}
        for source in self.pipeline.sources:
            inputs[source.name], letters[dead_letter_query(source)] = self._stream(source)
        for reference in self.pipeline.references:
            if reference.name in self.case.given_names:
                inputs[reference.name] = self._table(reference)
        planned = plan(self.pipeline, self.session, inputs=inputs)
        if planned.problems:
            raise PipelineError(planned.problems, path=self.pipeline.path)
        return tuple(self._compare(one, planned, letters) for one in self.case.expectations)

    # What goes in

    def _stream(self, source: Source) -> tuple[DataFrame, DataFrame]:
        """The rows of a source, and its records that do not parse."""
        from pyspark.sql import functions as F

        if source.format is Format.AVRO:
            # Rows are written down as JSON here, too; what is tested is the pipeline and not the format.
            source = replace(source, format=Format.JSON, columns=columns_of(source))
        directory = self._write_records(source)
        stream = self.session.readStream.schema(_records_schema()).option("maxFilesPerTrigger", 1)
        records = stream.parquet(str(directory))
        decoded = decode(records.where(f"NOT {_ENDS}").drop(_ENDS), replace(source, watermark=None))
        rows, mark = decoded.rows(), source.watermark
        if mark is not None:
            end = F.lit(END_OF_TIME)
            last = records.where(_ENDS).select(
                *(
                    (end if one.name == mark.column else F.lit(None)).cast(one.dataType).alias(one.name)
                    for one in rows.schema
                )
            )
            # See the top of the module.
            rows = rows.union(last).withWatermark(mark.column, mark.delay)
            time = F.col(mark.column)
            rows = rows.where(time.isNull() | (time < end.cast(rows.schema[mark.column].dataType)))
        return rows, decoded.bad().select(F.col("key").cast("string"), F.col("value").cast("string"), "reason")

    def _write_records(self, source: Source) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        directory = self.scratch / "records" / source.name
        directory.mkdir(parents=True)
        columns = columns_of(source)
        names = [one.name for one in columns]
        offset = 0
        # A file for each source in each micro-batch, with or without rows: so the batches of all sources stay in step.
        # Spark drops late rows by the watermark of the batch before, so an empty batch stands between two with rows.
        batches: list[tuple[FixtureRow, ...]] = []
        for batch in self.case.batches:
            batches += [batch.get(source.name, ()), ()]
        last = len(batches) - 1
        for number, rows in enumerate(batches if self.case.closes_windows else batches[:last]):
            records = []
            for row in rows:
                self._check_columns(row, source.name, names)
                records.append(_record(source, row, offset))
                offset += 1
            if number == last:
                records.append({**_empty(source, offset), _ENDS: True})
            path = directory / f"{number:06d}.parquet"
            pq.write_table(pa.Table.from_pylist(records, schema=_arrow_schema()), path)
            os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of these times
        return directory

    def _table(self, reference: Reference) -> DataFrame:
        rows = [row for batch in self.case.batches for row in batch.get(reference.name, ())]
        texts = [row.text for row in rows]
        if reference.columns:
            schema = ", ".join(f"`{one.name}` {one.type}" for one in reference.columns)
        else:
            file = self.scratch / f"{reference.name}.json"
            file.write_text("\n".join(texts), encoding="utf-8")
            return self.session.read.json(str(file))
        for row in rows:
            self._check_columns(row, reference.name, [one.name for one in reference.columns])
        from pyspark.sql import functions as F

        frame = self.session.createDataFrame([(text,) for text in texts], "row STRING")
        return frame.select(F.from_json("row", schema).alias("row")).select("row.*")

    def _check_columns(self, row: FixtureRow, name: str, columns: Sequence[str]) -> None:
        """Refuses a name that is nearly a column's. Others are kept: records may have fields that no query uses."""
        fields = row.fields or {}
        for field in fields:
            if field not in columns and (guess := nearest(field, [one for one in columns if one not in fields])):
                raise PipelineError(
                    Problem(f"{name} has no column {field}{guess}", f"it has {', '.join(columns)}", Place(row.line)),
                    path=self.path,
                )

    # What comes out

    def _compare(self, expectation: Expectation, planned: Plan, letters: Mapping[str, DataFrame]) -> Comparison:
        frame, mode, key = self._query(expectation.name, planned, letters)
        columns = self._columns(expectation, frame)
        expected = self._expected(expectation, frame, columns)
        found = [_values(row, columns, frame) for row in self._collect(expectation, frame, mode, key)]
        different = differences(expected, found)
        return Comparison(expectation.name, expectation.line, columns, len(expected), len(found), tuple(different))

    def _query(
        self, name: str, planned: Plan, letters: Mapping[str, DataFrame]
    ) -> tuple[DataFrame, OutputMode, tuple[str, ...]]:
        """The rows of a query, its output mode, and the key by which its rows replace earlier ones."""
        if name in letters:
            return letters[name], OutputMode.APPEND, ()
        sink = next(one for one in self.pipeline.sinks if one.name == name)
        frame = target_rows(sink, planned.frames[sink.input])
        return _readable(frame), sink.mode, sink.key if sink.kind is SinkKind.TABLE else ()

    def _columns(self, expectation: Expectation, frame: DataFrame) -> tuple[str, ...]:
        named = expectation.columns
        for name in named:
            if name not in frame.columns:
                line = next(row.line for row in expectation.rows if name in (row.fields or ()))
                fix = f"it writes {', '.join(frame.columns)}"
                words = f"{expectation.name} writes no column {name}{nearest(name, frame.columns)}"
                raise PipelineError(Problem(words, fix, Place(line)), path=self.path)
        return tuple(one for one in frame.columns if one in named) or tuple(frame.columns)

    def _expected(self, expectation: Expectation, frame: DataFrame, columns: Sequence[str]) -> list[Values]:
        """The rows of the fixture with the types of the query's columns."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        if not expectation.rows:
            return []
        kinds = [StructField(name, frame.schema[name].dataType) for name in columns]
        schema = StructType([*kinds, StructField(_CORRUPT, StringType())])
        texts = self.session.createDataFrame([(row.text,) for row in expectation.rows], "row STRING")
        parsed = texts.select(F.from_json("row", schema, {"columnNameOfCorruptRecord": _CORRUPT}).alias("row"))
        values = []
        for fixture, (row,) in zip(expectation.rows, parsed.collect(), strict=True):
            if row[_CORRUPT] is not None:
                types = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in kinds)
                words = f"this row does not fit the columns of {expectation.name}"
                raise PipelineError(Problem(words, f"they are {types}", Place(fixture.line)), path=self.path)
            values.append(_values(row, columns, frame))
        return values

    def _collect(self, expectation: Expectation, frame: DataFrame, mode: OutputMode, key: Sequence[str]) -> list[Row]:
        """All rows that the query wrote; with a key the last of each, and in mode complete those of the last batch."""
        number = self.case.expectations.index(expectation)
        for attempt in ("first", "second"):
            batches: list[list[Row]] = []

            def take(batch: DataFrame, batch_id: int, batches: list[list[Row]] = batches) -> None:
                batches.append(batch.collect())

            writer = frame.writeStream.outputMode(str(mode)).trigger(availableNow=True).foreachBatch(take)
            location = self.scratch / f"checkpoint-{number}-{attempt}"
            try:
                writer.option("checkpointLocation", str(location)).start().awaitTermination()
                break
            except Exception as error:
                if LATE_WORKER not in str(error) or attempt == "second":
                    raise self._failure(expectation, error) from error
        if mode is OutputMode.COMPLETE:
            return batches[-1] if batches else []
        rows = [row for batch in batches for row in batch]
        if mode is OutputMode.UPDATE and key:
            return list({tuple(str(row[name]) for name in key): row for row in rows}.values())
        return rows

    def _failure(self, expectation: Expectation, error: Exception) -> PipelineError:
        words = f"query {expectation.name} failed: {reason_of(str(error))}"
        return PipelineError(Problem(words, "", Place(expectation.line)), path=self.path)


def _record(source: Source, row: FixtureRow, offset: int) -> dict[str, object]:
    """A row as a record of the topic that the source reads."""
    record = _empty(source, offset)
    if row.fields is None:
        return {**record, "value": row.text.encode()}
    fields = dict(row.fields)
    for column in columns_of(source):
        if column.name not in fields or column.role is Role.VALUE:
            continue
        value = fields.pop(column.name)
        place = "key" if column.role is Role.KEY else column.metadata
        record[place] = _metadata(place, value)
    if source.format in (Format.TEXT, Format.BYTES):
        record["value"] = _metadata("key", fields.get("value"))
    else:
        record["value"] = (row.text if len(fields) == len(row.fields) else json_text(fields)).encode()
    return record


def _empty(source: Source, offset: int) -> dict[str, object]:
    return {
        "key": None, "value": None, "topic": source.topic or source.name, "partition": 0, "offset": offset,
        "timestamp": RECORD_TIME, "timestampType": 0, "headers": None, _ENDS: False,
    }  # fmt: skip


def _metadata(place: str, value: Any) -> object:
    if place == "key":
        return None if value is None else str(value).encode()
    if place == "timestamp" and isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if place == "headers" and isinstance(value, dict):
        return [{"key": name, "value": str(one).encode()} for name, one in value.items()]
    return value


def _readable(frame: DataFrame) -> DataFrame:
    """Bytes as text, which is how a fixture writes them."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType

    return frame.select(
        *(
            F.col(f"`{one.name}`").cast("string").alias(one.name)
            if isinstance(one.dataType, BinaryType)
            else F.col(f"`{one.name}`")
            for one in frame.schema
        )
    )


def _values(row: Row, columns: Sequence[str], frame: DataFrame) -> Values:
    from pyspark.sql.types import TimestampType

    values = row.asDict(recursive=True)
    for name in columns:
        # Spark hands points in time over in the time zone of this process, without saying so.
        if isinstance(values[name], datetime) and isinstance(frame.schema[name].dataType, TimestampType):
            values[name] = values[name].astimezone(UTC)
    return tuple(values[name] for name in columns)


def _records_schema() -> str:
    return (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
        f"headers ARRAY<STRUCT<key: STRING, value: BINARY>>, {_ENDS} BOOLEAN"
    )


def _arrow_schema() -> Any:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
            ("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("timestampType", pa.int32()),
            ("headers", pa.list_(header)), (_ENDS, pa.bool_()),
        ]
    )  # fmt: skip

"""A pipeline → DataFrames in a session: what can go wrong on the way is a problem at a line of the file."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.pipeline.avro import AvroEncoder
from penstock.pipeline.dead_letters import dead_letter_rows
from penstock.pipeline.decoding import decode
from penstock.pipeline.failures import LATE_WORKER, sentence
from penstock.pipeline.model import (
    NOTHING,
    Column,
    Format,
    Pipeline,
    PipelineError,
    Place,
    Problem,
    Reference,
    Role,
    Sink,
    SinkKind,
    Source,
    Sql,
    Transformation,
    nearest,
)
from penstock.pipeline.source_columns import wants_headers
from penstock.pipeline.spark_errors import problem_of, quietly
from penstock.pipeline.type_names import FIX
from penstock.pipeline.udfs import array_function

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

OUT_METRIC = "sink.rows"
"""Under which a query's progress tells how many rows it wrote."""

_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass
class Plan:
    """The DataFrames of a pipeline by name, and what was wrong with those that are missing."""

    session: SparkSession
    frames: dict[str, DataFrame] = field(default_factory=dict)
    sinks: dict[str, DataFrame] = field(default_factory=dict)
    """What each sink writes, by its name: for topics, the columns of Kafka's."""
    dead_letters: dict[str, DataFrame] = field(default_factory=dict)
    """By the source's name."""
    problems: list[Problem] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    """Names that have no DataFrame, because of a problem that was told."""


def own_session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session for one pipeline: with its settings, and views that nobody else sees."""
    if not hasattr(spark, "newSession"):  # Spark Connect: sessions are made by the client
        return spark
    session = spark.newSession()
    settings = {_STATE_STORE: _ROCKSDB, **pipeline.spark}
    for name, value in settings.items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
    return session


def plan(
    pipeline: Pipeline,
    session: SparkSession,
    *,
    starting: Mapping[str, str] = NOTHING,
    inputs: Mapping[str, DataFrame] | None = None,
) -> Plan:
    """All DataFrames of a pipeline. `starting` has offsets by source, where they are settled already.

    `inputs` replaces sources and references by other rows; a source that is replaced has no dead letters here.
    """
    result = Plan(session)
    given = inputs or {}
    with quietly():
        for name, frame in given.items():
            frame.createOrReplaceTempView(name)
            result.frames[name] = frame
        for source in pipeline.sources:
            if source.name not in given:
                _plan_source(pipeline, source, starting.get(source.name, source.starting), result)
        for reference in pipeline.references:
            if reference.name not in given:
                _plan_reference(reference, result)
        for transformation in pipeline.transformations:
            _plan_transformation(pipeline, transformation, result)
        for sink in pipeline.sinks:
            if sink.input in result.frames:
                _plan_sink(sink, result.frames[sink.input], result)
    return result


def raw_stream(pipeline: Pipeline, source: Source, session: SparkSession, starting: str, *, headers: bool) -> DataFrame:
    """The records of a source's topics as they are."""
    from pyspark.sql import functions as F

    reader = session.readStream.format("penstock")
    for name, value in source_options(pipeline, source, starting).items():
        reader = reader.option(name, value)
    if headers:
        reader = reader.option("includeHeaders", "true")
    raw = reader.load()
    if source.ending:
        raw = raw.where(F.col("timestamp") < F.lit(moment_of(source.ending)))
    return raw


def source_options(pipeline: Pipeline, source: Source, starting: str) -> dict[str, str]:
    """What the `penstock` source is given."""
    options = {f"kafka.{name}": value for name, value in pipeline.properties.items()}
    options["kafka.bootstrap.servers"] = pipeline.bootstrap_servers
    options.setdefault("kafka.isolation.level", "read_committed")
    if source.pattern:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = source.topic
    if starting in ("earliest", "latest") or starting.lstrip().startswith("{"):
        options["startingOffsets"] = starting
    else:
        options["startingTimestamp"] = str(round(moment_of(starting).timestamp() * 1000))
        options.setdefault("startingOffsetsByTimestampStrategy", "latest")
    options["maxOffsetsPerTrigger"] = str(source.records_per_trigger)
    return {**options, **source.options}


def check_moment(text: str) -> bool:
    """Whether a text is a timestamp as `starting` and `ending` take them."""
    try:
        moment_of(text)
    except (ValueError, OverflowError):
        return False
    return True


def check_starting(text: str) -> str:
    """What is wrong with a `starting`, or nothing."""
    if text in ("earliest", "latest"):
        return ""
    if text.lstrip().startswith("{"):
        try:
            json.loads(text)
        except ValueError as error:
            return f"these offsets are not JSON: {error}"
        return ""
    return "" if check_moment(text) else f"{text!r} is neither earliest nor latest, no timestamp, and no JSON"


def moment_of(text: str) -> datetime:
    """A point in time as `starting` and `ending` have it: ISO 8601 (UTC unless it says otherwise), or ms since 1970."""
    if text.isascii() and text.strip().isdigit():
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(text))
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _plan_source(pipeline: Pipeline, source: Source, starting: str, result: Plan, *, is_second: bool = False) -> None:
    try:
        raw = raw_stream(pipeline, source, result.session, starting, headers=wants_headers(source))
        rows = decode(raw, source).rows()
        rows.createOrReplaceTempView(source.name)
        result.frames[source.name] = rows
        if source.dead_letters:
            # A plan of its own: it needs the headers, which the rows need not.
            everything = raw_stream(pipeline, source, result.session, starting, headers=True)
            letters = dead_letter_rows(decode(everything, source), pipeline.name)
            result.dead_letters[source.name] = _counted(letters)
    except Exception as error:
        if LATE_WORKER in str(error) and not is_second:
            _plan_source(pipeline, source, starting, result, is_second=True)
            return
        result.problems.append(_source_problem(source, error, result.session))
        result.failed.add(source.name)


def _source_problem(source: Source, error: Exception, session: SparkSession) -> Problem:
    message = sentence(str(error))
    for column in source.columns:
        if wrong := _type_problem(column, session):
            return wrong
    if source.watermark is not None and "interval" in message:
        return Problem(message, "write DELAY OF 10 MINUTES", source.watermark.place)
    return Problem(f"stream {source.name}: {message}", "", source.place)


def _type_problem(column: Column, session: SparkSession) -> Problem | None:
    """Asks Spark about one column, since what it says of a whole row does not tell which type it means."""
    from pyspark.sql import functions as F

    try:
        assert session.range(1).select(F.lit(None).cast(column.type)).schema
    except Exception as error:
        words = sentence(str(error))
        return Problem(f"column {column.name} cannot be {column.type}: {words}", FIX, column.type_place)
    return None


def _plan_reference(reference: Reference, result: Plan) -> None:
    try:
        if reference.format == "delta":
            from penstock.pipeline.lake import read_table

            frame = read_table(result.session, reference.path)
        else:
            reader = result.session.read.format(reference.format).options(**reference.options)
            if reference.columns:
                reader = reader.schema(", ".join(f"`{one.name}` {one.type}" for one in reference.columns))
            frame = reader.load(reference.path)
        if reference.columns:
            frame = frame.select(*(frame[one.name].cast(one.type).alias(one.name) for one in reference.columns))
        frame.createOrReplaceTempView(reference.name)
        result.frames[reference.name] = frame
    except Exception as error:
        words = getattr(error, "message", "") or sentence(str(error))
        fix = getattr(error, "fix", "")
        result.problems.append(Problem(f"table {reference.name}: {words}", fix, reference.place))
        result.failed.add(reference.name)


def _plan_transformation(pipeline: Pipeline, transformation: Transformation, result: Plan) -> None:
    if not result.failed.isdisjoint(transformation.inputs):
        result.failed.add(transformation.name)  # whatever is wrong with that one was told already
        return
    try:
        frame = _transformed(pipeline, transformation, result)
    except PipelineError as error:
        result.problems += error.problems
        result.failed.add(transformation.name)
        return
    frame.createOrReplaceTempView(transformation.name)
    result.frames[transformation.name] = frame


def _transformed(pipeline: Pipeline, transformation: Transformation, result: Plan) -> DataFrame:
    query = transformation.query
    if isinstance(query, Sql):
        try:
            return result.session.sql(query.text)
        except Exception as error:
            read = {name: result.frames[name].columns for name in transformation.inputs if name in result.frames}
            raise PipelineError(problem_of(error, query, result.frames, read)) from error
    for name in transformation.inputs:
        if name not in result.frames:
            raise PipelineError(
                Problem(
                    f"{transformation.name} wants {name}, and nothing has that name{nearest(name, pipeline.names)}",
                    "a function's parameters name streams, tables and views that were defined before it",
                    transformation.place,
                )
            )
    try:
        frame = query(*(result.frames[name] for name in transformation.inputs))
        if not hasattr(frame, "createOrReplaceTempView"):
            raise TypeError(f"{transformation.name} returned {type(frame).__name__}, not a DataFrame")
        return frame
    except Exception as error:
        raise PipelineError(_function_problem(pipeline, transformation, error)) from error


def _function_problem(pipeline: Pipeline, transformation: Transformation, error: Exception) -> Problem:
    place = transformation.place
    for frame in traceback.extract_tb(error.__traceback__):
        if pipeline.path is not None and frame.filename == str(pipeline.path):
            place = Place(frame.lineno or place.line)
    return Problem(f"{transformation.name} fails: {sentence(str(error) or type(error).__name__)}", "", place)


def _plan_sink(sink: Sink, frame: DataFrame, result: Plan) -> None:
    problems: list[Problem] = []
    if not frame.isStreaming:
        fix = "read from a stream; `penstock tables` and Spark itself are for tables alone"
        problems.append(Problem(f"{sink.name} reads no stream, so it would never write anything", fix, sink.place))
    names = [column.lower() for column in frame.columns]
    problems += [
        Problem(f"{sink.name} has two columns {name}", "give one another name with AS", sink.place)
        for name in dict.fromkeys(one for one in names if names.count(one) > 1)
    ]
    if not problems:
        rows, problems = _sink_rows(sink, frame)
        if rows is not None and not problems:
            result.sinks[sink.name] = _counted(rows)
    result.problems += problems


def _counted(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.observe(OUT_METRIC, F.count(F.lit(1)).alias("rows"))


def _sink_rows(sink: Sink, frame: DataFrame) -> tuple[DataFrame | None, list[Problem]]:
    """What a sink writes of a query's rows."""
    problems = _missing(sink, frame)
    if problems:
        return None, problems
    if sink.columns:
        declared = [one.name.lower() for one in sink.columns]
        for extra in [name for name in frame.columns if name.lower() not in declared]:
            problems.append(
                Problem(
                    f"{sink.name} was declared without a column {extra}",
                    f"add it to the declaration, or leave it out of the SELECT; it has {_names(sink)}",
                    sink.place,
                )
            )
        try:
            frame = target_rows(sink, frame)
        except Exception as error:
            fix = "cast the column in the SELECT"
            problems.append(Problem(f"{sink.name}: {sentence(str(error))}", fix, sink.place))
        if problems:
            return None, problems
    if sink.kind is not SinkKind.TOPIC:
        return frame, []
    try:
        return _records(sink, frame), []
    except Exception as error:
        return None, [Problem(f"{sink.name}: {sentence(str(error))}", "", sink.place)]


def target_rows(sink: Sink, frame: DataFrame) -> DataFrame:
    """The rows of a query with the columns and types that its target was declared with, if it was."""
    if not sink.columns:
        return frame
    return frame.select(*(frame[one.name].cast(one.type).alias(one.name) for one in sink.columns))


def _missing(sink: Sink, frame: DataFrame) -> list[Problem]:
    """Columns that the sink names and the query does not have."""
    columns = [name.lower() for name in frame.columns]
    wanted: dict[str, str] = {}
    for name in (one.name for one in sink.columns):
        wanted[name] = "is declared"
    for name in sink.key:
        wanted[name] = "is the key"
    for name in sink.partition_by:
        wanted[name] = "is in partition_by"
    for option in ("headers", "date_column"):
        if option in sink.options:
            wanted[sink.options[option]] = f"is {option}"
    if sink.kind is SinkKind.TOPIC and sink.format in (Format.TEXT, Format.BYTES):
        wanted.setdefault("value", f"is what format = '{sink.format}' writes")
    return [
        Problem(
            f"{sink.name} has no column {name}, which {why}{nearest(name, frame.columns)}",
            f"its query gives {', '.join(frame.columns)}",
            sink.place,
        )
        for name, why in wanted.items()
        if name.lower() not in columns
    ]


def _records(sink: Sink, frame: DataFrame) -> DataFrame:
    """Rows as records: the columns of Kafka's sink."""
    from pyspark.sql import functions as F

    headers = sink.options.get("headers")
    own_key = {one.name.lower() for one in sink.columns if one.role is Role.KEY}
    value_columns = [
        name for name in frame.columns if name.lower() not in own_key and name.lower() != (headers or "").lower()
    ]
    records: dict[str, SparkColumn] = {}
    lower = {name.lower(): name for name in frame.columns}
    if sink.key:
        records["key"] = _key(sink, frame)
    elif sink.format is Format.BYTES and "key" in lower:
        records["key"] = frame[lower["key"]]
    if sink.format in (Format.TEXT, Format.BYTES):
        value = frame[lower["value"]]
        records["value"] = value.cast("string").cast("binary") if sink.format is Format.TEXT else value.cast("binary")
    elif sink.format is Format.AVRO:
        records["value"] = _avro_value(sink, [frame[name] for name in value_columns])
    else:
        records["value"] = F.to_json(F.struct(*(frame[name] for name in value_columns))).cast("binary")
    if headers:
        records["headers"] = frame[headers]
    elif sink.format is Format.BYTES and "headers" in lower:
        records["headers"] = frame[lower["headers"]]
    return frame.select(*(column.alias(name) for name, column in records.items()))


def _key(sink: Sink, frame: DataFrame) -> SparkColumn:
    """One column as its text (or bytes, if it is bytes); several as a JSON object."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType

    if len(sink.key) > 1:
        return F.to_json(F.struct(*(frame[name] for name in sink.key))).cast("binary")
    column = frame[sink.key[0]]
    if isinstance(frame.select(column).schema[0].dataType, BinaryType):
        return column
    return column.cast("string").cast("binary")


def _avro_value(sink: Sink, columns: list[SparkColumn]) -> SparkColumn:
    from pyspark.sql import functions as F

    return array_function(AvroEncoder(sink.avro_schema).encode, "binary", F.struct(*columns))


def _names(sink: Sink) -> str:
    return ", ".join(one.name for one in sink.columns)

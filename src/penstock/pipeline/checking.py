"""A pipeline looked at before it runs: what needs nothing first, then the brokers, then Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import install_command
from penstock.client import (
    AuthenticationFailed,
    ClientError,
    ClientSettings,
    Cluster,
    ConnectionFailed,
    CoordinatorKind,
    SettingsError,
    UnsupportedSetting,
)
from penstock.pipeline.avro import AvroSchemaError, fields_of
from penstock.pipeline.checkpoints import open_directory, read_identity
from penstock.pipeline.identity import check_identity, dead_letter_sources
from penstock.pipeline.loops import check_loops
from penstock.pipeline.model import (
    NOWHERE,
    Delivery,
    Format,
    OutputMode,
    Pipeline,
    Place,
    Problem,
    Sink,
    SinkKind,
    Source,
    Sql,
    TriggerKind,
    nearest,
)
from penstock.pipeline.planning import Plan, check_moment, check_starting, own_session, plan
from penstock.pipeline.source_columns import check_columns
from penstock.pipeline.spark_errors import streaming_problem
from penstock.pipeline.sql_relations import place_of_relation
from penstock.pipeline.steps import Step, steps_of
from penstock.pipeline.sums import check_sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
NAME = re.compile(r"\w[\w .-]{0,99}")
QUERY_NAME = re.compile(r"\w[\w-]{0,99}")

API_TIMEOUT_MS = "15000"
_MODES = {OutputMode.APPEND: "Append", OutputMode.UPDATE: "Update", OutputMode.COMPLETE: "Complete"}


@dataclass(frozen=True)
class Examined:
    problems: list[Problem]
    steps: tuple[Step, ...]
    """Empty without a Spark session."""


def validate(pipeline: Pipeline, spark: SparkSession | None = None, *, cluster: bool = True) -> list[Problem]:
    """Everything that is wrong with a pipeline, in the order of its file; nothing is started and nothing written.

    Without a Spark session, queries are not looked at; without `cluster`, topics are not.
    """
    return examine(pipeline, spark, cluster=cluster).problems


def examine(pipeline: Pipeline, spark: SparkSession | None = None, *, cluster: bool = True) -> Examined:
    """As `validate`, and with a session also the columns of each step, as Spark sees them."""
    problems = check_declarations(pipeline)
    steps: tuple[Step, ...] = ()
    if not problems:
        if cluster:
            problems += check_cluster(pipeline)
        problems += check_checkpoint(pipeline, spark)
        if spark is not None:
            planned = plan(pipeline, own_session(spark, pipeline))
            problems += check_plan(pipeline, planned)
            steps = steps_of(pipeline, planned.frames)
    return Examined(sorted(problems, key=lambda problem: problem.place), steps)


def check_declarations(pipeline: Pipeline) -> list[Problem]:
    """What can be said without a broker and without Spark."""
    problems = []
    if not NAME.fullmatch(pipeline.name):
        problems.append(
            Problem(
                f"{pipeline.name!r} is no name for a pipeline",
                "use letters, digits, - and _",
                pipeline.places.get("pipeline", pipeline.places.get("name", NOWHERE)),
            )
        )
    if not pipeline.sinks:
        problems.append(
            Problem(
                f"the pipeline {pipeline.name} writes nothing",
                "add CREATE TABLE … AS SELECT …, CREATE STREAM … AS SELECT …, or INSERT INTO … SELECT …",
            )
        )
    if not pipeline.sources:
        fix = "add CREATE STREAM … WITH (topic = '…')"
        problems.append(Problem(f"the pipeline {pipeline.name} reads nothing", fix))
    problems += _check_names(pipeline)
    problems += _check_order(pipeline)
    for source in pipeline.sources:
        problems += check_columns(source)
        problems += _check_pattern(source) if source.pattern else _check_topic(source.topic, source.place)
        problems += _check_topic(source.dead_letters, source.place) if source.dead_letters else []
        if source.dead_letters and source.format is Format.BYTES:
            fix = "leave out dead_letters, or name the format that the values have"
            problems.append(Problem(f"every record of {source.name} parses as bytes", fix, source.place))
        if wrong := check_starting(source.starting):
            fix = 'use earliest, latest, a time such as 2026-01-31T12:00:00Z, or offsets as {"topic": {"0": 5}}'
            problems.append(Problem(f"starting: {wrong}", fix, source.place))
        if source.ending and not check_moment(source.ending):
            fix = "use a time such as 2026-01-31T12:00:00Z"
            problems.append(Problem(f"ending: {source.ending!r} is no timestamp", fix, source.place))
        elif source.ending and pipeline.trigger.kind is not TriggerKind.ONCE:
            fix = "SET trigger = 'once', or leave ending out"
            problems.append(Problem(f"ending: with the trigger {pipeline.trigger} no run ends", fix, source.place))
    for sink in pipeline.sinks:
        problems += _check_sink(pipeline, sink)
    return problems + check_loops(pipeline)


def check_cluster(pipeline: Pipeline) -> list[Problem]:
    """Whether the topics are there, and transactions where they are wanted."""
    place = pipeline.places.get("bootstrap.servers", NOWHERE)
    try:
        properties = {"default.api.timeout.ms": API_TIMEOUT_MS, **pipeline.client_properties}
        settings = ClientSettings.from_properties(properties)
    except UnsupportedSetting:
        return []  # only librdkafka can log in like that; the queries will
    except SettingsError as error:
        return [Problem(f"kafka.{error}" if "." in error.name else str(error), "correct the setting", place)]
    try:
        with Cluster(settings) as cluster:
            problems = _check_topics(pipeline, cluster)
            if any(one.delivery is Delivery.EXACTLY_ONCE for one in _topic_sinks(pipeline)):
                problems += _check_transactions(pipeline, cluster)
            return problems
    except AuthenticationFailed as error:
        return [Problem(f"{pipeline.bootstrap_servers}: {error}", "correct kafka.sasl.* and kafka.security.*", place)]
    except ConnectionFailed as error:
        fix = "SET bootstrap.servers = 'HOST:PORT', or start a broker with `penstock up`"
        named = str(error) if pipeline.bootstrap_servers in str(error) else f"{pipeline.bootstrap_servers}: {error}"
        return [Problem(named, fix, place)]
    except ClientError as error:
        return [Problem(f"{pipeline.bootstrap_servers}: {error}", "", place)]


def check_checkpoint(pipeline: Pipeline, spark: SparkSession | None) -> list[Problem]:
    """Whether the checkpoint is this pipeline's, or new."""
    directory = open_directory(pipeline.checkpoint, spark)
    if directory is None:
        return []
    stored, problems = read_identity(pipeline, directory)
    return problems if stored is None else check_identity(stored, pipeline)


def check_plan(pipeline: Pipeline, planned: Plan) -> list[Problem]:
    """What Spark says about queries, types and modes, and whether tables take the rows."""
    problems = list(planned.problems)
    for one in pipeline.transformations:
        if isinstance(one.query, Sql) and one.name in planned.frames:
            problems += check_sums(one.query, _types(planned.frames[name] for name in one.inputs))
    for sink in pipeline.sinks:
        rows = planned.sinks.get(sink.name)
        if rows is None:
            assert problems, f"{sink.name} is not planned, and nothing says why"
            continue
        if (wrong := _cannot_stream(rows, sink)) is not None:
            problems.append(wrong)
        if sink.kind is SinkKind.TABLE:
            problems += _check_table(sink, rows)
    return problems


def _types(frames: Iterable[DataFrame]) -> dict[str, str]:
    """The types of columns by name; a name that stands for two types is left out."""
    types: dict[str, str] = {}
    for frame in frames:
        for name, kind in frame.dtypes:
            types[name.lower()] = kind if types.get(name.lower(), kind) == kind else ""
    return types


def _check_names(pipeline: Pipeline) -> list[Problem]:
    problems = []
    seen: dict[str, Place] = {}
    everything: Iterable[tuple[str, Place]] = (
        (one.name, one.place)
        for group in (pipeline.sources, pipeline.references, pipeline.transformations)
        for one in group
    )
    for name, place in everything:
        if not name.replace("_", "a").isalnum():
            fix = "use letters, digits and _"
            problems.append(Problem(f"{name!r} is no name for a stream, table or view", fix, place))
        if name.lower() in seen:
            fix = "give one of them another name"
            problems.append(Problem(f"{name} is defined twice, first in line {seen[name.lower()].line}", fix, place))
        seen[name.lower()] = place
    queries: set[str] = set()
    for sink in pipeline.sinks:
        if not QUERY_NAME.fullmatch(sink.name):
            fix = "use letters, digits, - and _"
            problems.append(Problem(f"{sink.name!r} is no name for a query", fix, sink.place))
        if sink.name.lower() in queries:
            fix = "give one a name of its own"
            problems.append(Problem(f"there are two queries named {sink.name}", fix, sink.place))
        queries.add(sink.name.lower())
        if sink.input not in pipeline.names:
            guess = nearest(sink.input, pipeline.names)
            problems.append(Problem(f"{sink.name} reads {sink.input}, which is not defined{guess}", "", sink.place))
    return problems


def _check_order(pipeline: Pipeline) -> list[Problem]:
    """What a transformation reads must stand before it; streams and tables that are read are there from the start."""
    problems = []
    later = {one.name: one.place for one in pipeline.transformations}
    for one in pipeline.transformations:
        for name in one.inputs:
            if name not in later:
                continue
            place = place_of_relation(one.query, name) if isinstance(one.query, Sql) else one.place
            what = "itself" if name == one.name else f"{name}, which is defined after it, in line {later[name].line}"
            fix = f"a query reads what stands before it: put {name} before" if name != one.name else "read another name"
            problems.append(Problem(f"{one.name} reads {what}", fix, place))
        later.pop(one.name, None)
    return problems


def _check_sink(pipeline: Pipeline, sink: Sink) -> list[Problem]:
    problems: list[Problem] = []
    if sink.kind is SinkKind.TOPIC:
        problems += _check_topic(sink.topic, sink.place)
        if sink.format is Format.AVRO:
            problems += _check_avro(sink)
    elif sink.kind is SinkKind.TABLE:
        if not sink.path:
            problems.append(Problem(f"nothing says where table {sink.name} is", "write path = 'lake/…'", sink.place))
        if sink.mode is OutputMode.UPDATE and not sink.key:
            fix = "write key = '…', the columns that the query groups by"
            problems.append(Problem(f"table {sink.name} in mode update needs a key", fix, sink.place))
        if sink.key and sink.mode is not OutputMode.UPDATE:
            fix = "leave it out, or say mode = 'update': rows then replace those with the same key"
            problems.append(Problem(f"table {sink.name} in mode {sink.mode} has no use for a key", fix, sink.place))
        if sink.mode is OutputMode.COMPLETE and pipeline.trigger.kind is TriggerKind.CONTINUOUS:
            problems.append(
                Problem(
                    f"{sink.name} would replace the whole table as fast as it can",
                    "SET trigger = 'every 1 minute', say, for mode = 'complete'",
                    sink.place,
                )
            )
    return problems


def _check_avro(sink: Sink) -> list[Problem]:
    if not sink.avro_schema:
        fix = "write schema = 'order.avsc', a file beside this one, or the schema itself as JSON"
        return [Problem(f"{sink.name} writes Avro and has no schema", fix, sink.place)]
    try:
        fields_of(sink.avro_schema)
    except AvroSchemaError as error:
        return [Problem(f"the schema of {sink.name}: {error}", "correct the schema", sink.place)]
    except ImportError:
        return [Problem("Avro needs the package fastavro", install_command("spark"), sink.place)]
    return []


def _check_topic(name: str, place: Place) -> list[Problem]:
    if TOPIC_NAME.fullmatch(name) and name not in (".", ".."):
        return []
    fix = "use up to 249 letters, digits, '.', '_' and '-'"
    return [Problem(f"{name!r} is no name for a topic", fix, place)]


def _check_pattern(source: Source) -> list[Problem]:
    try:
        re.compile(source.pattern)
    except re.error as error:
        fix = "write one of Python's, such as '^shop[.]'"
        return [Problem(f"{source.pattern!r} is no regular expression: {error}", fix, source.place)]
    return []


class _TopicSink:
    """Something that is written to a topic: a sink, or the dead letters of a source."""

    def __init__(self, what: str, topic: str, delivery: Delivery, place: Place) -> None:
        self.what = what
        self.topic = topic
        self.delivery = delivery
        self.place = place


def _topic_sinks(pipeline: Pipeline) -> list[_TopicSink]:
    found = [
        _TopicSink(sink.name, sink.topic, sink.delivery, sink.place)
        for sink in pipeline.sinks
        if sink.kind is SinkKind.TOPIC
    ]
    found += [
        _TopicSink(f"dead letters of {source.name}", source.dead_letters, source.delivery, source.place)
        for source in dead_letter_sources(pipeline)
    ]
    return found


def _check_topics(pipeline: Pipeline, cluster: Cluster) -> list[Problem]:
    wanted: dict[str, Place] = {}
    for source in pipeline.sources:
        if source.topic:
            wanted.setdefault(source.topic, source.place)
    for sink in _topic_sinks(pipeline):
        wanted.setdefault(sink.topic, sink.place)
    existing = cluster.existing_topics(list(wanted))
    missing = {topic: place for topic, place in wanted.items() if topic not in existing}
    if not missing:
        return []
    known = _all_topics(cluster)
    return [
        Problem(
            f"there is no topic {topic} at {pipeline.bootstrap_servers}{nearest(topic, known)}",
            f"create it: penstock topics create {topic} --bootstrap-server {pipeline.bootstrap_servers}",
            place,
        )
        for topic, place in missing.items()
    ]


def _all_topics(cluster: Cluster) -> list[str]:
    try:
        return sorted(one.name for one in cluster.topics().values() if not one.is_internal)
    except ClientError:
        return []


def _check_transactions(pipeline: Pipeline, cluster: Cluster) -> list[Problem]:
    try:
        cluster.coordinator("penstock-check", CoordinatorKind.TRANSACTION)
    except (AuthenticationFailed, ConnectionFailed):
        raise
    except ClientError as error:
        return [
            Problem(
                f"{sink.what} is to be written exactly once, but {pipeline.bootstrap_servers} has no transactions",
                f"write delivery = 'at-least-once' (or SET it for all), or write to a table ({error})",
                sink.place,
            )
            for sink in _topic_sinks(pipeline)
            if sink.delivery is Delivery.EXACTLY_ONCE
        ]
    return []


def _cannot_stream(rows: DataFrame, sink: Sink) -> Problem | None:
    """Spark's own check of what can be streamed in which mode, which it would otherwise make when the query starts."""
    plan_of = getattr(rows, "_jdf", None)
    if plan_of is None:
        return None
    jvm = rows.sparkSession._jvm
    assert jvm is not None
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, _MODES[sink.mode])()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan_of.queryExecution().analyzed(), mode)
    except Exception as error:
        return streaming_problem(error, sink.place)
    return None


def _check_table(sink: Sink, rows: DataFrame) -> list[Problem]:
    """Whether a table that is there already takes these rows."""
    from penstock.pipeline.lake.errors import LakeError
    from penstock.pipeline.lake.handles import find_table, partitions_of, require_deltalake, schema_of
    from penstock.pipeline.lake.locations import locate
    from penstock.pipeline.lake.schemas import SchemaEvolution, plan_existing, plan_new, schema_of_json

    try:
        require_deltalake()
        table = find_table(locate(sink.path))
        batch = schema_of_json(_with_date(rows, sink).schema.jsonValue())
        partition_by = (*sink.partition_by, *(["date"] if "date_column" in sink.options else []))
        if table is None:
            plan_new(batch, partition_by)
        else:
            evolution: SchemaEvolution = "refuse" if sink.options.get("schema_evolution") == "refuse" else "add"
            plan_existing(
                batch, schema_of(table), partitions_of(table), wanted_partitions=partition_by, evolution=evolution
            )
    except LakeError as error:
        return [Problem(f"table {sink.path}: {error.message}", error.fix, sink.place)]
    return []


def _with_date(rows: DataFrame, sink: Sink) -> DataFrame:
    from penstock.pipeline.lake.writer import with_date

    column = sink.options.get("date_column")
    return with_date(rows, column) if column else rows

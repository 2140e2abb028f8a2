"""What a pipeline will do, in words: where it reads and starts, what it keeps, when it runs, what it promises.

`explain` is pure. It is given what the cluster and the checkpoint say (`look_up`), and what Spark's plans say
(`state_of`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.client import EARLIEST, LATEST, ClientError, ClientSettings, Cluster, TopicPartition
from penstock.pipeline.checkpoints import local_path, query_location
from penstock.pipeline.claiming import topics_of
from penstock.pipeline.identity import dead_letter_query, dead_letter_sources, identity_of
from penstock.pipeline.model import (
    Delivery,
    Format,
    Nulls,
    OutputMode,
    Pipeline,
    Role,
    Sink,
    SinkKind,
    Source,
    TriggerKind,
    Unparsed,
)
from penstock.pipeline.planning import moment_of
from penstock.pipeline.source_columns import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WATERMARKED = "spark.watermarkDelayMs"
_FORMATS = {Format.JSON: "JSON", Format.AVRO: "Avro", Format.TEXT: "text", Format.BYTES: "bytes"}


@dataclass(frozen=True)
class Section:
    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Item:
    """One thing, and what there is to say about it."""

    name: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class TopicSize:
    partitions: int
    records: int
    """Offsets between the beginning and the end; fewer records where the topic is compacted or has transactions."""
    ahead: int
    """Those behind the place where a new run starts."""


@dataclass(frozen=True)
class Resumption:
    """Where a query goes on."""

    batch: int
    """The last batch that is complete."""
    positions: Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class Positions:
    topics: Mapping[str, TopicSize] = field(default_factory=dict)
    """By the name of the source; empty if the cluster was not asked."""
    queries: Mapping[str, Resumption] = field(default_factory=dict)
    """Queries that have run before."""


def explain(
    pipeline: Pipeline, positions: Positions, state: Mapping[str, list[str]] | None = None
) -> tuple[Section, ...]:
    """All that a pipeline does. `state` has sentences about what each query keeps; None leaves them out."""
    queries = identity_of(pipeline).queries
    sections = [
        Section("When", (Item(pipeline.name, tuple(_when(pipeline))),)),
        Section("Reads", tuple(Item(one.name, tuple(_reads(one, pipeline, positions))) for one in pipeline.sources)),
    ]
    if pipeline.references:
        tables = (Item(one.name, (f"The {one.format} table {one.path}, as it is when the run starts.",))
                  for one in pipeline.references)  # fmt: skip
        sections.append(Section("Joins with", tuple(tables)))
    starts = (Item(name, (_start(name, positions),)) for name in queries)
    sections.append(Section("Starts", tuple(starts)))
    if state is not None:
        kept = ((sink.name, state.get(sink.name, [])) for sink in pipeline.sinks)
        sections.append(
            Section("Keeps", tuple(Item(name, tuple(one or ["No state: each row is processed by itself."]))
                                   for name, one in kept))
        )  # fmt: skip
    writes = [Item(sink.name, tuple(_writes(sink))) for sink in pipeline.sinks]
    writes += [
        Item(dead_letter_query(one), (f"Records that do not parse, to topic {one.dead_letters}.", _topic(one.delivery)))
        for one in dead_letter_sources(pipeline)
    ]
    sections.append(Section("Writes", tuple(writes)))
    return tuple(sections)


def _when(pipeline: Pipeline) -> Iterator[str]:
    trigger = pipeline.trigger
    if trigger.kind is TriggerKind.ONCE:
        yield "Processes what is in the topics when it starts, then ends."
    elif trigger.kind is TriggerKind.EVERY:
        yield f"Starts a batch {trigger}, until it is stopped; a batch that takes longer delays the next one."
    else:
        yield "Starts the next batch as soon as the last one is done, until it is stopped."
    yield f"Keeps its progress in {pipeline.checkpoint}: after a stop or a crash it resumes there."
    yield "If one query fails, all stop."


def _reads(source: Source, pipeline: Pipeline, positions: Positions) -> Iterator[str]:
    what = f"Topic {source.topic}" if source.topic else f"All topics that match {source.pattern}"
    size = positions.topics.get(source.name)
    held = f" ({size.partitions} partitions, {size.records:,} records)" if size is not None else ""
    yield f"{what} at {pipeline.bootstrap_servers}{held}, as {_FORMATS[source.format]}."
    ahead = f" That is {size.ahead:,} records from the end." if size is not None else ""
    if source.starting in ("earliest", "latest"):
        place = "beginning" if source.starting == "earliest" else "end"
        yield f"A query that has not run before starts at the {place} of the topic.{ahead}"
    elif source.starting.lstrip().startswith("{"):
        yield f"A query that has not run before starts at the offsets {source.starting}.{ahead}"
    else:
        yield f"A query that has not run before starts at the first record of {source.starting} or later.{ahead}"
    if source.ending:
        yield f"Records of {source.ending} and later are left out."
    yield f"Takes up to {source.records_per_trigger:,} records per batch; only committed ones, unless set otherwise."
    yield from _bad(source)
    if source.watermark is not None:
        mark = source.watermark
        yield (
            f"Waits {mark.delay.lower()} for late rows: the watermark stays that far behind the newest {mark.column}. "
            "A row that is older than the watermark and whose window is closed is dropped and counted as late."
        )


def _bad(source: Source) -> Iterator[str]:
    if source.format is Format.BYTES:
        return
    required = [one.name for one in columns_of(source) if not one.nullable and one.role is not Role.METADATA]
    lacks = f", or lack {', '.join(required)}," if required else ""
    if source.dead_letters:
        yield f"Records that do not parse{lacks} go to topic {source.dead_letters}, with the reason."
    elif source.unparsed is Unparsed.DROP:
        yield f"Records that do not parse{lacks} are left out and counted."
    else:
        yield f"A record that does not parse{lacks.replace('lack', 'lacks', 1)} ends the run."
    if source.nulls is not Nulls.DEAD_LETTER:
        skipped = "are skipped" if source.nulls is Nulls.SKIP else "become rows of nulls"
        yield f"Records without a value {skipped}."


def _start(query: str, positions: Positions) -> str:
    found = positions.queries.get(query)
    if found is None:
        return "Has not run yet: it starts where its streams say."
    at = ", ".join(f"{topic}-{number} at {offset:,}" for (topic, number), offset in sorted(found.positions.items()))
    return f"Resumes after batch {found.batch}: {at or 'no offsets yet'}."


def _writes(sink: Sink) -> Iterator[str]:
    if sink.kind is SinkKind.TOPIC:
        key = f", keyed by {', '.join(sink.key)}" if sink.key else ""
        yield f"{_mode(sink)} to topic {sink.topic}, as {_FORMATS[sink.format]}{key}."
        yield _topic(sink.delivery)
    elif sink.kind is SinkKind.TABLE:
        parts = f", partitioned by {', '.join(sink.partition_by)}" if sink.partition_by else ""
        yield f"{_mode(sink)} to the Delta table {sink.path}{parts}."
        yield "Exactly once: each batch is one commit; a batch that runs again after a crash is not committed again."
    elif sink.kind is SinkKind.CONSOLE:
        yield "Shows its rows in the terminal."
    else:
        yield "Writes nothing; its rows are computed and dropped."


def _mode(sink: Sink) -> str:
    if sink.mode is OutputMode.APPEND:
        return "New rows, once they are final,"
    if sink.mode is OutputMode.COMPLETE:
        return "All rows, again with each batch,"
    return f"Changed rows, which replace those with the same {', '.join(sink.key)}," if sink.key else "Changed rows"


def _topic(delivery: Delivery) -> str:
    if delivery is Delivery.EXACTLY_ONCE:
        return "Exactly once: each batch is one transaction; readers of committed records see all of it or nothing."
    return "At least once: a batch that runs again after a crash is sent again."


# What the cluster and the checkpoint say


def look_up(pipeline: Pipeline, *, cluster: bool) -> Positions:
    """Sizes of topics, if the cluster may be asked, and where queries go on; ClientError if it does not answer."""
    names = identity_of(pipeline).queries
    resumed = {name: found for name in names if (found := resumption(pipeline.checkpoint, name)) is not None}
    return Positions(_sizes(pipeline) if cluster else {}, resumed)


def resumption(checkpoint: str, query: str) -> Resumption | None:
    """Where a query goes on; None if it has not completed a batch, or its checkpoint is on another machine."""
    directory = local_path(query_location(checkpoint, query))
    if directory is None:
        return None
    batch = max((int(one.name) for one in _entries(directory / "commits")), default=None)
    if batch is None:
        return None
    positions: dict[tuple[str, int], int] = {}
    try:
        # A version, a line about the batch, then one line for each source.
        lines = (directory / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        lines = []
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:
            continue
        for topic, partitions in document.items() if isinstance(document, dict) else ():
            if not topic.startswith("$") and isinstance(partitions, dict):
                positions |= {(topic, int(number)): offset for number, offset in partitions.items()}
    return Resumption(batch, positions)


def _entries(directory: Path) -> list[Path]:
    try:
        return [one for one in directory.iterdir() if one.name.isdecimal()]
    except OSError:
        return []


def _sizes(pipeline: Pipeline) -> dict[str, TopicSize]:
    sizes = {}
    with Cluster(ClientSettings.from_properties(pipeline.client_properties)) as cluster:
        for source in pipeline.sources:
            places = [
                TopicPartition(name, one.partition)
                for name, topic in topics_of(cluster, source).items()
                for one in topic.partitions
            ]
            if not places:
                continue
            first, last = (
                {place: listed.offset for place, listed in cluster.list_offsets(dict.fromkeys(places, which)).items()}
                for which in (EARLIEST, LATEST)
            )
            starts = _starts(cluster, source, places, first, last)
            records = sum(last[place] - first[place] for place in places)
            ahead = sum(max(0, last[place] - starts[place]) for place in places)
            sizes[source.name] = TopicSize(len(places), records, ahead)
    return sizes


def _starts(
    cluster: Cluster,
    source: Source,
    places: list[TopicPartition],
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    text = source.starting
    if text == "earliest":
        return dict(first)
    if text == "latest":
        return dict(last)
    if text.lstrip().startswith("{"):
        given = json.loads(text)
        named = {place: given.get(place.topic, {}).get(str(place.partition), LATEST) for place in places}
        words = {EARLIEST: first, LATEST: last}
        return {place: words[at][place] if at in words else at for place, at in named.items()}
    time_ms = round(moment_of(text).timestamp() * 1000)
    found = cluster.list_offsets(dict.fromkeys(places, time_ms))
    return {place: found[place].offset if found[place].offset >= 0 else last[place] for place in places}


def unreachable(error: ClientError, pipeline: Pipeline) -> str:
    return f"{pipeline.bootstrap_servers} did not answer, so nothing is said about the size of its topics: {error}"


# What Spark's plan says


def state_of(rows: DataFrame) -> list[str]:
    """What a query keeps between batches, from the plan that Spark's analyzer makes of it."""
    plan_of = getattr(rows, "_jdf", None)
    if plan_of is None:
        return ["Spark Connect does not show its plans."]
    return list(_state(plan_of.queryExecution().analyzed()))


def spark_plan(rows: DataFrame) -> str:
    """Spark's physical plan, as `DataFrame.explain` prints it."""
    plan_of = getattr(rows, "_jdf", None)
    if plan_of is None:
        return ""
    jvm = rows.sparkSession._jvm
    assert jvm is not None
    describe = jvm.org.apache.spark.sql.api.python.PythonSQLUtils.explainString
    return str(describe(plan_of.queryExecution(), "formatted"))


def _state(node: Any) -> Iterator[str]:
    """Sentences about one operator of a logical plan and those below it; batch operators keep nothing."""
    children = _listed(node.children())
    name = str(node.nodeName())
    if node.isStreaming():
        if name == "Aggregate":
            groups = _listed(node.groupingExpressions())
            names = ", ".join(str(one.sql()).replace("`", "").rpartition(".")[2] for one in groups) or "all rows"
            yield f"One row of state for each group of {names}, {_until(map(_is_watermarked, groups))}."
        elif name == "Distinct" or name.startswith("Deduplicate"):
            keys = _listed(node.output() if name == "Distinct" else node.keys())
            names = ", ".join(str(one.name()) for one in keys)
            bounded = name == "DeduplicateWithinWatermark" or any(map(_is_watermarked, keys))
            yield f"The values of {names} that were seen, {_until([bounded])}."
        elif name == "Join" and all(child.isStreaming() for child in children):
            yield "Rows of both streams, until the watermark and the join condition exclude that they find a partner."
        elif "WithState" in name or ("InPandas" in name and "Group" in name):
            yield "What the function keeps for each group, until it removes it or it times out."
    for child in children:
        yield from _state(child)


def _until(bounded: Any) -> str:
    return "until the watermark has passed it" if any(bounded) else "for ever: it grows with the number of groups"


def _is_watermarked(expression: Any) -> bool:
    references = expression.references().iterator()
    while references.hasNext():
        if references.next().metadata().contains(_WATERMARKED):
            return True
    return False


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]

"""A pipeline run once more over a time range of its topics, with a checkpoint of its own.

The range is settled once, as offsets, in the way a replay settles it, and kept in a file in that checkpoint. So a
backfill ends, whatever arrives meanwhile; and one that was stopped resumes where it stopped, in the same range.

    <checkpoint>.backfill/<start>-<end>/penstock-backfill.json      the offsets of the range, and whether it is done
    <checkpoint>.backfill/<start>-<end>/…                           as any checkpoint of a pipeline
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from penstock.client import ClientError, ClientSettings, Cluster
from penstock.pipeline.checkpoints import local_path, replace_text
from penstock.pipeline.claiming import topics_of
from penstock.pipeline.model import (
    NOWHERE,
    OutputMode,
    Pipeline,
    PipelineError,
    Problem,
    Sink,
    SinkKind,
    Source,
    Trigger,
    TriggerKind,
    Unparsed,
    nearest,
)

FILE_NAME = "penstock-backfill.json"
FORMAT = 1
STOP_OPTION = "penstock.stopAtOffsets"

Positions = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition, as `startingOffsets` has them."""


@dataclass(frozen=True)
class SourceRange:
    """The part of a source's topics that is processed again."""

    starts: Positions
    ends: Positions

    @property
    def offsets(self) -> int:
        """How many offsets it has; fewer records where a topic is compacted or has transactions."""
        return sum(
            self.ends[topic][partition] - start
            for topic, partitions in self.starts.items()
            for partition, start in partitions.items()
        )


@dataclass(frozen=True)
class Backfill:
    """A backfill as it is kept in its checkpoint."""

    pipeline: str
    start: str
    end: str
    ranges: Mapping[str, SourceRange]
    """By the name of the source."""
    done: bool = False
    is_new: bool = True
    """Whether no run of it has begun."""

    @property
    def offsets(self) -> int:
        return sum(one.offsets for one in self.ranges.values())

    def to_json(self) -> str:
        document = {"format": FORMAT, **asdict(self)}
        del document["is_new"]
        return json.dumps(document, indent=1) + "\n"


def narrowed(pipeline: Pipeline, *, only: tuple[str, ...] = (), into: str = "") -> Pipeline:
    """The pipeline with the queries that a backfill runs.

    With `into`, tables are written below that directory by the names of their queries, and what goes to topics is left
    out: the records were sent when the pipeline first read the range.
    """
    known = [sink.name for sink in pipeline.sinks]
    for name in only:
        if name not in known:
            fix = f"its queries are {', '.join(known)}"
            raise PipelineError(Problem(f"{pipeline.name} has no query {name}{nearest(name, known)}", fix))
    sinks = [sink for sink in pipeline.sinks if not only or sink.name in only]
    sources: tuple[Source, ...] = pipeline.sources
    if into:
        sinks = [replace(sink, path=f"{into.rstrip('/')}/{sink.name}") for sink in sinks if sink.kind is SinkKind.TABLE]
        sources = tuple(
            replace(one, dead_letters="", unparsed=Unparsed.DROP) if one.dead_letters else one for one in sources
        )
    if not sinks:
        raise PipelineError(Problem("no query is left to run", "--into writes tables only: name a query that has one"))
    return replace(pipeline, sinks=tuple(sinks), sources=sources)


def effect_of(sink: Sink) -> str:
    """What a second run over the same records does to a target that has the results of the first."""
    if sink.kind is SinkKind.TOPIC:
        return "sends its records again"
    if sink.kind is not SinkKind.TABLE:
        return "changes nothing"
    if sink.mode is OutputMode.COMPLETE:
        return "replaces the whole table by the results of the range alone"
    if sink.mode is OutputMode.UPDATE:
        return f"replaces rows with the same {', '.join(sink.key)} by the results of the range alone"
    return "adds its rows; those of an earlier run over the range are then there twice"


def settle_backfill(pipeline: Pipeline, start: datetime, end: datetime) -> tuple[Pipeline, Backfill]:
    """The pipeline as the backfill runs it, and the range: the one that an earlier run settled, or that of now."""
    if start >= end:
        raise PipelineError(Problem("the range ends before it begins", "give --from a time before --to"))
    directory = _directory(pipeline, start, end)
    found = _read(directory, pipeline) or _settle(pipeline, start, end)
    missing = [one.name for one in pipeline.sources if one.name not in found.ranges]
    if missing:
        raise PipelineError(
            Problem(
                f"the backfill in {directory} began without the stream {missing[0]}",
                f"remove {directory} to begin again",
            ),
            path=pipeline.path,
        )
    sources = tuple(_bounded(one, found.ranges[one.name]) for one in pipeline.sources)
    bounded = replace(pipeline, sources=sources, checkpoint=str(directory), trigger=Trigger(TriggerKind.ONCE))
    return bounded, found


def save(pipeline: Pipeline, backfill: Backfill) -> None:
    """Keeps the range in the backfill's checkpoint, before its first run and when it is done."""
    directory = Path(pipeline.checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    replace_text(directory / FILE_NAME, backfill.to_json())


def _bounded(source: Source, within: SourceRange) -> Source:
    return replace(
        source,
        starting=json.dumps(within.starts),
        ending="",
        options={**source.options, STOP_OPTION: json.dumps(within.ends)},
    )


def _directory(pipeline: Pipeline, start: datetime, end: datetime) -> Path:
    checkpoint = local_path(pipeline.checkpoint)
    if checkpoint is None:
        raise PipelineError(
            Problem(
                f"the checkpoint {pipeline.checkpoint} is not on this machine",
                "a backfill keeps its progress in a directory here: --set checkpoint=DIRECTORY",
                pipeline.places.get("checkpoint", NOWHERE),
            ),
            path=pipeline.path,
        )
    name = f"{_compact(start)}-{_compact(end)}"
    return checkpoint.with_name(f"{checkpoint.name}.backfill") / name


def _compact(moment: datetime) -> str:
    utc = moment.astimezone(UTC)
    return utc.strftime("%Y%m%dT%H%M%S") + (f"{utc.microsecond // 1000:03d}" if utc.microsecond else "") + "Z"


def _read(directory: Path, pipeline: Pipeline) -> Backfill | None:
    path = directory / FILE_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}")
        ranges = {name: SourceRange(one["starts"], one["ends"]) for name, one in document["ranges"].items()}
        return Backfill(
            document["pipeline"], document["start"], document["end"], ranges, bool(document["done"]), is_new=False
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fix = f"remove {directory} to begin again"
        raise PipelineError(Problem(f"cannot read {path}: {error}", fix), path=pipeline.path) from None


def _settle(pipeline: Pipeline, start: datetime, end: datetime) -> Backfill:
    from penstock.pipeline.builtin.replaying import offset_range

    start_ms, end_ms = (round(moment.timestamp() * 1000) for moment in (start, end))
    ranges = {}
    try:
        with Cluster(ClientSettings.from_properties(pipeline.client_properties)) as cluster:
            for source in pipeline.sources:
                starts: dict[str, dict[str, int]] = {}
                ends: dict[str, dict[str, int]] = {}
                for name, topic in sorted(topics_of(cluster, source).items()):
                    first, last = offset_range(cluster, topic, start_ms, end_ms)
                    starts[name] = {str(partition): offset for partition, offset in sorted(first.items())}
                    # Timestamps need not be in order: the first record after `end` may stand before the range.
                    ends[name] = {str(one): max(first[one], offset) for one, offset in sorted(last.items())}
                ranges[source.name] = SourceRange(starts, ends)
    except ClientError as error:
        raise PipelineError(Problem(f"{pipeline.bootstrap_servers}: {error}"), path=pipeline.path) from None
    return Backfill(pipeline.name, start.isoformat(), end.isoformat(), ranges)

"""Whose checkpoint this is: a small file in it, written before the first query starts.

Spark would start any query from any checkpoint, and then fail late, or read offsets of one topic as those of another.
The file names the pipeline and, for each query, what it reads and writes; and it keeps the offsets that "latest" meant
when the pipeline first started, so that all queries of a pipeline start at the same place, also those that were killed
before their first batch and those that are added later.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from penstock.pipeline.model import NOWHERE, Pipeline, Problem, Sink, SinkKind, Source

FILE_NAME = "penstock-pipeline.json"
FORMAT = 1


@dataclass(frozen=True)
class QueryIdentity:
    reads: tuple[str, ...]
    """Topics and patterns, sorted."""
    writes: str
    """`topic orders`, `table lake/orders`, …"""


@dataclass(frozen=True)
class Identity:
    pipeline: str
    id: str
    queries: Mapping[str, QueryIdentity] = field(default_factory=dict)
    starting: Mapping[str, str] = field(default_factory=dict)
    """By source, the offsets at which it starts, as JSON."""

    def to_json(self) -> str:
        document = {
            "format": FORMAT,
            "pipeline": self.pipeline,
            "id": self.id,
            "queries": {name: {"reads": list(one.reads), "writes": one.writes} for name, one in self.queries.items()},
            "starting": dict(self.starting),
        }
        return json.dumps(document, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """ValueError for a text that is no identity, or one of a later version."""
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        try:
            return cls(
                str(document["pipeline"]),
                str(document["id"]),
                {
                    str(name): QueryIdentity(tuple(one["reads"]), str(one["writes"]))
                    for name, one in document["queries"].items()
                },
                {str(name): str(one) for name, one in document["starting"].items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not complete: {error}") from None


def identity_of(pipeline: Pipeline) -> Identity:
    """What a new checkpoint of this pipeline would say."""
    queries = {sink.name: QueryIdentity(_reads(pipeline, sink.input), _writes(sink)) for sink in pipeline.sinks}
    for source in dead_letter_sources(pipeline):
        queries[dead_letter_query(source)] = QueryIdentity((_topic(source),), f"topic {source.dead_letters}")
    return Identity(pipeline.name, uuid.uuid4().hex, queries)


def dead_letter_query(source: Source) -> str:
    """The name of the query that writes the dead letters of a source."""
    return f"{source.name}.dead_letters"


def dead_letter_sources(pipeline: Pipeline) -> tuple[Source, ...]:
    """The streams whose dead letters are written: not those that no query reads."""
    read = {source.name for sink in pipeline.sinks for source in sources_behind(pipeline, sink.input)}
    return tuple(source for source in pipeline.sources if source.dead_letters and source.name in read)


def merged(stored: Identity, new: Identity) -> Identity:
    """The identity of a checkpoint after a run of a pipeline that may have changed: queries are added, none is lost."""
    return replace(stored, queries={**stored.queries, **new.queries})


def check_identity(stored: Identity, pipeline: Pipeline) -> list[Problem]:
    """Why a checkpoint cannot be gone on from with this pipeline."""
    place = pipeline.places.get("checkpoint", NOWHERE)
    if stored.pipeline != pipeline.name:
        return [
            Problem(
                f"the checkpoint {pipeline.checkpoint} belongs to the pipeline {stored.pipeline}, "
                f"not to {pipeline.name}",
                f"name another directory, or SET pipeline = '{stored.pipeline}' if this is the same one renamed",
                place,
            )
        ]
    problems = []
    for name, query in identity_of(pipeline).queries.items():
        before = stored.queries.get(name)
        if before is None or before == query:
            continue
        sink = next((one for one in pipeline.sinks if one.name == name), None)
        what = (
            f"read {_listed(before.reads)} and now reads {_listed(query.reads)}"
            if before.reads != query.reads
            else f"wrote to {before.writes} and now writes to {query.writes}"
        )
        problems.append(
            Problem(
                f"query {name} {what}: its place in the checkpoint {pipeline.checkpoint} means something else",
                "give the query another name, or the pipeline another checkpoint",
                sink.place if sink is not None else place,
            )
        )
    return problems


def _reads(pipeline: Pipeline, name: str) -> tuple[str, ...]:
    """The topics behind a name."""
    return tuple(sorted({_topic(source) for source in sources_behind(pipeline, name)}))


def sources_behind(pipeline: Pipeline, name: str) -> tuple[Source, ...]:
    """The streams that a name is made of, through all transformations."""
    found: list[Source] = []
    seen: set[str] = set()
    transformations = {one.name: one for one in pipeline.transformations}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        source = pipeline.source(current)
        if source is not None:
            found.append(source)
        elif current in transformations:
            waiting += transformations[current].inputs
    return tuple(found)


def _topic(source: Source) -> str:
    return source.topic or f"/{source.pattern}/"


def _writes(sink: Sink) -> str:
    if sink.kind is SinkKind.TOPIC:
        return f"topic {sink.topic}"
    if sink.kind is SinkKind.TABLE:
        return f"table {sink.path}"
    return str(sink.kind)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"

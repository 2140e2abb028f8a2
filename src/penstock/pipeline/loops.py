"""Pipelines that would feed themselves: found from the topics that they read and write. Pure.

Rows that come back to a stream that they were made of come back again, with no end; and so do records that do not
parse, where the dead letters of one stream are another stream whose dead letters are the first. What is both (a stream
of dead letters, repaired and sent back) ends where the repair is good, and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.pipeline.identity import sources_behind
from penstock.pipeline.model import Pipeline, Problem, SinkKind, Source

Edges = Mapping[str, list[str]]
"""By the name of a stream, the streams that what is made of it is written to."""


def check_loops(pipeline: Pipeline) -> list[Problem]:
    """A problem for each sink, or stream with dead letters, that closes a loop."""
    rows: dict[str, list[str]] = {source.name: [] for source in pipeline.sources}
    letters: dict[str, list[str]] = {source.name: [] for source in pipeline.sources}
    problems = []
    for sink in pipeline.sinks:
        if sink.kind is SinkKind.TOPIC:
            fed = [source.name for source in pipeline.sources if _reads(source, sink.topic)]
            behind = sources_behind(pipeline, sink.input)
            for source in behind:
                rows[source.name] += fed
            if any(_reaches(rows, name, source.name) for source in behind for name in fed):
                message = f"{sink.name} would read what it writes: {sink.topic}"
                problems.append(Problem(message, "write to another topic", sink.place))
    for source in [one for one in pipeline.sources if one.dead_letters]:
        fed = [other.name for other in pipeline.sources if _reads(other, source.dead_letters)]
        letters[source.name] += fed
        if any(_reaches(letters, name, source.name) for name in fed):
            fix = f"write dead_letters = '{source.dead_letters}.dead', say"
            problems.append(Problem(f"{source.name} would read its own dead letters", fix, source.place))
    return problems


def _reads(source: Source, topic: str) -> bool:
    if not source.pattern:
        return source.topic == topic
    try:
        return re.search(source.pattern, topic) is not None
    except re.error:
        return False  # the source says what is wrong with it


def _reaches(edges: Edges, start: str, end: str) -> bool:
    """Whether what is in one stream comes, over some topics, to another."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        current = waiting.pop()
        if current == end:
            return True
        if current not in seen:
            seen.add(current)
            waiting += edges[current]
    return False

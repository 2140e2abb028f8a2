"""A checkpoint made a pipeline's own, and where its sources start, settled once and kept there.

"latest" is where the logs end when the pipeline first starts: for all its queries, whenever they are added, and for the
rows of a source as for its dead letters. What came to be after that, a partition or a topic that a pattern takes in, is
read from its beginning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from penstock.client import EARLIEST, LATEST, ClientError, ClientSettings, Cluster, TopicMetadata, UnsupportedSetting
from penstock.pipeline.checkpoints import Directory, read_identity
from penstock.pipeline.identity import FILE_NAME, Identity, identity_of, merged
from penstock.pipeline.model import NOWHERE, Pipeline, PipelineError, Problem, Source

Positions = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition, as `startingOffsets` has them."""


def claim(pipeline: Pipeline, directory: Directory) -> dict[str, str]:
    """Makes the checkpoint this pipeline's, before anything is read; offsets at which sources start, by their names."""
    stored, problems = read_identity(pipeline, directory)
    if problems:
        raise PipelineError(problems, path=pipeline.path)
    new = identity_of(pipeline)
    identity = merged(stored, new) if stored is not None else new
    wanted = [one for one in pipeline.sources if one.starting == "latest" or one.name in identity.starting]
    found = _settle(pipeline, wanted, identity.starting) if wanted else {}
    settled = {name: _text(positions) for name, positions in found.items() if name not in identity.starting}
    if settled:
        identity = replace(identity, starting={**identity.starting, **settled})
    if identity != stored:
        _write(directory, identity, pipeline)
    # A pattern that no topic matches yet has nothing to start at: Spark takes in what comes later from its beginning.
    starting = {name: _text(positions) if positions else "latest" for name, positions in found.items()}
    return {**identity.starting, **starting}


def completed(settled: Positions, there: Mapping[str, list[int]]) -> Positions:
    """Settled offsets for the partitions that there are now: the source wants each of them named, and no other."""
    return {
        topic: {str(one): settled.get(topic, {}).get(str(one), EARLIEST) for one in partitions}
        for topic, partitions in there.items()
    }


def _settle(pipeline: Pipeline, sources: list[Source], known: Mapping[str, str]) -> dict[str, Positions]:
    try:
        with Cluster(ClientSettings.from_properties(pipeline.client_properties)) as cluster:
            found: dict[str, Positions] = {}
            for source in sources:
                there = _partitions(topics_of(cluster, source))
                if source.name in known:
                    found[source.name] = completed(json.loads(known[source.name]), there)
                elif there or source.pattern:
                    found[source.name] = _ends(cluster, there)
            return found
    except UnsupportedSetting:
        return {}  # only librdkafka can log in like that: each query settles it for itself
    except ClientError as error:
        raise PipelineError(Problem(f"{pipeline.bootstrap_servers}: {error}"), path=pipeline.path) from None


def topics_of(cluster: Cluster, source: Source) -> dict[str, TopicMetadata]:
    """The topics that a source reads now, selected as the source itself selects them."""
    if not source.pattern:
        return cluster.existing_topics([source.topic])
    matches = re.compile(source.pattern).search
    return {name: one for name, one in cluster.topics().items() if matches(name) and not one.is_internal}


def _partitions(topics: Mapping[str, TopicMetadata]) -> dict[str, list[int]]:
    return {name: sorted(one.partition for one in topic.partitions) for name, topic in sorted(topics.items())}


def _ends(cluster: Cluster, there: Mapping[str, list[int]]) -> Positions:
    wanted = {(topic, partition): LATEST for topic, partitions in there.items() for partition in partitions}
    found: dict[str, dict[str, int]] = {topic: {} for topic in there}
    for place, end in (cluster.list_offsets(wanted) if wanted else {}).items():
        found[place.topic][str(place.partition)] = end.offset
    return found


def _text(positions: Positions) -> str:
    return json.dumps(positions, sort_keys=True)


def _write(directory: Directory, identity: Identity, pipeline: Pipeline) -> None:
    try:
        directory.write(FILE_NAME, identity.to_json())
    except OSError as error:
        place = pipeline.places.get("checkpoint", NOWHERE)
        raise PipelineError(
            Problem(f"cannot write to the checkpoint {pipeline.checkpoint}: {error.strerror}", "", place),
            path=pipeline.path,
        ) from None

"""What the checkpoint keeps: where a micro-batch ends, and what nobody could find out again.

    {"$penstock": {"begins": {"orders": {"0": 100}}, "ids": {"orders": "0ePB…"}}, "orders": {"0": 120, "1": 77}}

Behind the topics' names stand positions, as in the offsets of Spark's own Kafka source (whose checkpoints can be
continued: they only lack the rest). `$penstock`, which no topic may be called, has the rest:

- `begins`  where a partition's part of this micro-batch begins, wherever the end of the one before does not say so:
  for all partitions in the first, and later for those that were added. Spark writes only ends down. It asks for the
  initial offset twice in a run, and again after a crash before the first commit; an answer of "latest" is another one
  each time, and the records in between would never be read.
- `ids`     the topics' ids. A topic that was deleted and created again has the same name and other records.
- `gone`    where partitions were whose topic is not there any more; `ids` keeps its id. One that comes back as the same
  topic goes on from there.
- `cut`     the options that decide how it is cut into tasks: those of the run that planned it, not of the one that
  repeats it.

Spark compares offsets as text, so the same offset must be the same text: keys are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from penstock.client import TopicPartition
from penstock.spark.errors import SourceError

OURS: Final = "$penstock"
Positions: TypeAlias = Mapping[TopicPartition, int]
Json: TypeAlias = dict[str, dict[str, object]]


@dataclass(frozen=True)
class Cut:
    """How ranges are cut into tasks: into so many at least, of so many offsets at most."""

    partitions_min: int | None = None
    records_max: int | None = None


@dataclass(frozen=True)
class SourceOffset:
    """The end of a micro-batch, or the initial offset of a query."""

    ends: Positions
    begins: Positions = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    cut: Cut = Cut()
    gone: Positions = field(default_factory=dict)

    @property
    def known(self) -> Positions:
        """Where every partition is, or was when it went."""
        return {**self.gone, **self.ends}

    @classmethod
    def initial(cls, positions: Positions, topic_ids: Mapping[str, str]) -> Self:
        """Where a new query starts: a range of nothing, which is its own beginning."""
        return cls(positions, positions, topic_ids)

    @property
    def is_initial(self) -> bool:
        """Nothing was read yet, so that no micro-batch may have said where the next one begins."""
        return self.begins == self.ends

    def to_json(self) -> Json:
        ours: dict[str, object] = {}
        if self.begins:
            ours["begins"] = positions_json(self.begins)
        if self.cut != Cut():
            chosen = {"maxRecordsPerPartition": self.cut.records_max, "minPartitions": self.cut.partitions_min}
            ours["cut"] = {name: value for name, value in chosen.items() if value is not None}
        if self.gone:
            ours["gone"] = positions_json(self.gone)
        if self.topic_ids:
            ours["ids"] = dict(sorted(self.topic_ids.items()))
        return {OURS: ours} | positions_json(self.ends)

    @classmethod
    def from_json(cls, read: Mapping[str, object]) -> Self:
        """Raises SourceError for what the source did not write: the checkpoint belongs to something else."""
        ours = read.get(OURS, {})
        if not isinstance(ours, dict):
            raise _foreign(read)
        cut, ids = ours.get("cut", {}), ours.get("ids", {})
        if not isinstance(cut, dict) or not isinstance(ids, dict):
            raise _foreign(read)
        return cls(
            positions_of({name: value for name, value in read.items() if name != OURS}),
            positions_of(ours.get("begins", {})),
            ids,
            Cut(cut.get("minPartitions"), cut.get("maxRecordsPerPartition")),
            positions_of(ours.get("gone", {})),
        )


def positions_json(positions: Positions) -> Json:
    """`{"orders": {"0": 120}}`, sorted by topic and then by number."""
    found: Json = {}
    for (topic, partition), position in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = position
    return found


def positions_of(read: object) -> dict[TopicPartition, int]:
    """The other way round."""
    if not isinstance(read, dict):
        raise _foreign(read)
    found: dict[TopicPartition, int] = {}
    for topic, positions in read.items():
        if not isinstance(positions, dict):
            raise _foreign(read)
        for partition, position in positions.items():
            if not str(partition).isdecimal() or type(position) is not int:
                raise _foreign(read)
            found[TopicPartition(topic, int(partition))] = position
    return found


def _foreign(read: object) -> SourceError:
    return SourceError(
        f"the checkpoint holds an offset that is not one of the penstock source: {str(read)[:200]}. It belongs to "
        "another query; give this one a checkpointLocation of its own"
    )

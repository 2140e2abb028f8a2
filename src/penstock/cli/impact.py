"""Computes the effects of adding partitions to a topic. Pure: figures in, report out.

A producer puts a record with a key on the partition `hash(key) mod partitions`. When the number of partitions grows, a
key may get another partition: its new records then lie elsewhere than its old ones, and a reader may see them out of
order, or in another instance of the group. Records that are there do not move. Nothing of this concerns records
without a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.client.placement import crc32_partition, fnv1a_partition, murmur2, murmur2_partition
from penstock.planning.partitions import share_moved

MATCH_MIN = 0.95
"""The share of sampled keys that must lie where a partitioner would put them, for it to be taken for the topic's."""

Partitioner = Callable[[bytes, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentGroup:
    """A consumer group that reads the topic."""

    name: str
    state: str
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpactReport:
    """The effects of adding partitions."""

    topic: str
    partitions_now: int
    partitions_then: int
    records_sampled: int
    keys_sampled: int
    """Different keys among the sampled records."""
    partitioner: str | None
    """The one that explains where the sampled keys are; None if none does, or there are no keys."""
    keys_moved: int | None
    """How many of the sampled keys would get another partition; None if that cannot be told."""
    share_moved: float
    """The share of all keys that is expected to move with a partitioner that hashes evenly."""
    groups: Sequence[DependentGroup] = field(default=())
    groups_unknown: str = ""
    """Why the groups could not be found out."""

    @property
    def keeps_order_by_key(self) -> bool | None:
        """Whether readers still see each key's records in order; None if the sample cannot tell."""
        if self.records_sampled == 0:
            return None
        return self.keys_sampled == 0 or self.keys_moved == 0

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "partitions": {"now": self.partitions_now, "then": self.partitions_then},
            "records_sampled": self.records_sampled,
            "keys": {
                "sampled": self.keys_sampled,
                "partitioner": self.partitioner,
                "moved": self.keys_moved,
                "share_expected_to_move": round(self.share_moved, 4),
            },
            "keeps_order_by_key": self.keeps_order_by_key,
            "groups": [{"name": g.name, "state": g.state, "members": g.members} for g in self.groups],
            "groups_unknown": self.groups_unknown or None,
        }

    def lines(self) -> list[str]:
        """The report for a person."""
        return [
            f"Topic {self.topic}: {self.partitions_now} → {self.partitions_then} partitions. This cannot be undone.",
            *self._about_keys(),
            *self._about_order(),
            *self._about_groups(),
            "  Existing records stay where they are; new partitions begin empty.",
            "  Readers learn of them when they next refresh their metadata (every 5 minutes by default); one that "
            "begins at the end (auto.offset.reset=latest) may miss records written to them before.",
        ]

    def _about_keys(self) -> list[str]:
        expected = f"{self.share_moved:.0%}"
        if self.records_sampled == 0:
            return [f"  Keys: the topic is empty. With keys, {expected} of them would get another partition."]
        if self.keys_sampled == 0:
            return [f"  Keys: none of the {self.records_sampled:,} newest records has one, so none can move."]
        if self.keys_moved is None:
            return [
                f"  Keys: {self.keys_sampled:,} in the {self.records_sampled:,} newest records, placed by a "
                f"partitioner that is not known here. One that hashes evenly would move {expected} of them."
            ]
        return [
            f"  Keys: {self.keys_moved:,} of {self.keys_sampled:,} ({self.keys_moved / self.keys_sampled:.0%}) in the "
            f"{self.records_sampled:,} newest records would get another partition ({self.partitioner})."
        ]

    def _about_order(self) -> list[str]:
        if self.keeps_order_by_key is None:
            return ["  Order by key: nothing is written yet, so nothing can get out of order."]
        if self.keeps_order_by_key:
            return ["  Order by key: kept, as far as the newest records tell."]
        return [
            "  Order by key: NOT kept. A key's new records may be read before its older ones that are still waiting.",
            "  To keep it: stop the producers, let all groups read to the end, add the partitions, start again; or "
            "move to a new topic with the wanted number.",
        ]

    def _about_groups(self) -> list[str]:
        if self.groups_unknown:
            return [f"  Groups: not known ({self.groups_unknown})."]
        if not self.groups:
            return ["  Groups: none has a position in this topic."]
        lines = [f"  Groups that read it, and will be rebalanced: {len(self.groups)}"]
        lines += [f"    {group.name} ({group.state}, members: {group.members})" for group in self.groups]
        return lines


def report(
    topic: str,
    partitions_now: int,
    partitions_then: int,
    sample: Iterable[tuple[bytes | None, int]],
    groups: Sequence[DependentGroup],
    groups_unknown: str = "",
) -> ImpactReport:
    """`sample` has key and partition of some records."""
    records_sampled = 0
    placed: dict[bytes, int] = {}
    for key, partition in sample:
        records_sampled += 1
        # An empty key is spread like none by librdkafka's partitioners.
        if key:
            placed[key] = partition
    found = _partitioner_of(placed, partitions_now)
    moved = None
    if found is not None:
        partitioner = PARTITIONERS[found]
        moved = sum(partitioner(key, partitions_now) != partitioner(key, partitions_then) for key in placed)
    return ImpactReport(
        topic=topic,
        partitions_now=partitions_now,
        partitions_then=partitions_then,
        records_sampled=records_sampled,
        keys_sampled=len(placed),
        partitioner=found,
        keys_moved=moved,
        share_moved=share_moved(partitions_now, partitions_then),
        groups=groups,
        groups_unknown=groups_unknown,
    )


def _partitioner_of(placed: dict[bytes, int], partitions: int) -> str | None:
    if not placed:
        return None
    for name, partitioner in PARTITIONERS.items():
        matches = sum(partitioner(key, partitions) == partition for key, partition in placed.items())
        if matches >= MATCH_MIN * len(placed):
            return name
    return None


PARTITIONERS: dict[str, Partitioner] = {
    "murmur2, as Java clients": murmur2_partition,
    "crc32, as librdkafka clients": crc32_partition,
    "fnv1a, as Sarama clients": fnv1a_partition,
}

__all__ = [
    "PARTITIONERS",
    "DependentGroup",
    "ImpactReport",
    "crc32_partition",
    "fnv1a_partition",
    "murmur2",
    "murmur2_partition",
    "report",
]

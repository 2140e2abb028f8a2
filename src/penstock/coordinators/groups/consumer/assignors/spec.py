"""What assignors are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

Assignment = Mapping[bytes, tuple[int, ...]]
"""Topic id → partitions, ascending. Never changed once made; topics without partitions are left out."""

NO_PARTITIONS: Final[Assignment] = {}


class MemberSpec(NamedTuple):
    """One member. Members with the same subscription hold the same `topics` object."""

    member_id: str
    instance_id: str | None
    topics: tuple[bytes, ...]
    """The ids of the topics it subscribes to, those that exist."""
    current: Assignment
    """What it was to own so far; may name partitions that are gone, or topics it no longer wants."""


class GroupSpec(NamedTuple):
    """One group, at the moment of a new assignment."""

    members: list[MemberSpec]
    partition_counts: Mapping[bytes, int]
    """For every topic that somebody subscribes to."""

    @property
    def homogeneous(self) -> bool:
        """Everyone subscribes to the same topics."""
        topics = self.members[0].topics
        return all(member.topics is topics for member in self.members)

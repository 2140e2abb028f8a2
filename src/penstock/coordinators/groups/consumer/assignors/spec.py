"""The input of assignors."""

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
    """The ids of the existing topics it subscribes to."""
    current: Assignment
    """The previous target; may contain deleted partitions or topics that the member no longer subscribes to."""


class GroupSpec(NamedTuple):
    """One group, at the moment of a new assignment."""

    members: list[MemberSpec]
    partition_counts: Mapping[bytes, int]
    """For every topic with a subscriber."""

    @property
    def homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        topics = self.members[0].topics
        return all(member.topics is topics for member in self.members)

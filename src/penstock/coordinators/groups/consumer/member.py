"""One member of a consumer group: what it said of itself, and where it is on its way to its target.

Both parts are values. Each is one record in the log, so a part is replaced as a whole and compared to know whether
there is anything to write.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

Owned = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → the member epoch in which it was assigned. Never changed once made; no empty topics."""

NOTHING_OWNED: Final[Owned] = {}

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that said it would be back: its partitions are kept until its session runs out."""


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    """It owns its target, as of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It was told to give up partitions and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It has given up what it must, and others have not yet given up what it is to get."""
    UNKNOWN = 127
    """Written by a newer release."""


class ClassicProtocol(NamedTuple):
    name: str
    metadata: bytes


class ClassicMetadata(msgspec.Struct, frozen=True, gc=False):
    """What is known of a member that speaks the classic protocol, besides what all have."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


class MemberMetadata(msgspec.Struct, frozen=True, gc=False):
    """What a member said of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """In order, each once."""
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None

    @property
    def has_regex(self) -> bool:
        return bool(self.topic_regex)


class CurrentAssignment(msgspec.Struct, frozen=True):
    """Where a member is."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """A member whose answer was lost asks again with the epoch it had."""
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING_OWNED
    revoking: Owned = NOTHING_OWNED

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


NEW_MEMBER: Final = CurrentAssignment()


class Member:
    """The two parts under one id, and what need not survive a restart."""

    __slots__ = ("current", "join_awaited", "member_id", "metadata", "session_key")

    def __init__(self, group_id: str, member_id: str, metadata: MemberMetadata, current: CurrentAssignment) -> None:
        self.member_id = member_id
        self.metadata = metadata
        self.current = current
        self.session_key = ("session", group_id, member_id)
        self.join_awaited = False
        """A classic member that was told to join again, and has until the rebalance timeout to do so."""

    @property
    def is_classic(self) -> bool:
        return self.metadata.classic is not None


def partition_numbers(owned: Owned) -> dict[bytes, list[int]]:
    """Without the epochs; in order."""
    return {topic_id: sorted(partitions) for topic_id, partitions in owned.items()}


def owns_same(one: Owned, other: Owned) -> bool:
    """The same partitions, whatever the epochs."""
    if one is other:
        return True
    return one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)

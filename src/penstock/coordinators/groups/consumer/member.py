"""One member of a consumer group: its metadata, and its current assignment on the way to its target.

Both parts are immutable values. Each is one record in the log, so a part is replaced as a whole, and written only if it
differs from the old one.
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
"""Epoch of a static member that left temporarily: its partitions are kept until its session expires."""


class MemberState(IntEnum):
    """The numbers are those used in records."""

    STABLE = 0
    """The member owns all partitions of its target."""
    UNREVOKED_PARTITIONS = 1
    """The member was told to revoke partitions and has not confirmed it yet."""
    UNRELEASED_PARTITIONS = 2
    """The member has revoked all it must, and waits for partitions that others have not released yet."""
    UNKNOWN = 127
    """A state written by a newer release."""


class ClassicProtocol(NamedTuple):
    name: str
    metadata: bytes


class ClassicMetadata(msgspec.Struct, frozen=True, gc=False):
    """Additional metadata of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


class MemberMetadata(msgspec.Struct, frozen=True, gc=False):
    """The metadata that a member sent."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None

    @property
    def has_regex(self) -> bool:
        return bool(self.topic_regex)


class CurrentAssignment(msgspec.Struct, frozen=True):
    """The current assignment of a member."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """A member whose answer was lost retries with its previous epoch."""
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING_OWNED
    revoking: Owned = NOTHING_OWNED

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


NEW_MEMBER: Final = CurrentAssignment()


class Member:
    """The two parts under one id, and state that need not survive a restart."""

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
    """The partitions without their epochs, sorted."""
    return {topic_id: sorted(partitions) for topic_id, partitions in owned.items()}


def owns_same(one: Owned, other: Owned) -> bool:
    """Whether both have the same partitions, ignoring epochs."""
    if one is other:
        return True
    return one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)

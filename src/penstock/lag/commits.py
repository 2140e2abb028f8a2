"""Decodes the records of `__consumer_offsets` that lag is judged by: offset commits and changes of membership.

All records of a group are in one partition of that topic, determined by the group's name. Keys begin with a two-byte
record type: 0 and 1 are offset commits, 2 is a generation of a classic group, 5 a member of a group of the consumer
protocol (KIP-848). A commit without a value deletes the offset.

A commit does not say who made it, but membership does: Kafka accepts a commit from outside a group only while the group
has no members. So a commit after the last member has left came from outside, as with `penstock groups reset-offsets`
(`Memberships`).
"""

from __future__ import annotations

import msgspec

from penstock.wire.codec import decode_whole
from penstock.wire.errors import WireError
from penstock.wire.messages.consumer_group_records import ConsumerGroupMemberMetadataKey, decode_key, decode_value
from penstock.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.wire.schema import versions_of

OFFSETS_TOPIC = "__consumer_offsets"
COMMIT_KEY_VERSIONS = (0, 1)
CLASSIC_GROUP_KEY = 2
MEMBER_KEY = ConsumerGroupMemberMetadataKey.record_type

_VERSION_BYTES = 2


class Commit(msgspec.Struct, frozen=True):
    """One offset commit."""

    group: str
    topic: str
    partition: int
    offset: int | None
    """None if the offset was deleted."""
    timestamp_ms: int
    """When the coordinator received it; −1 for a deletion, which has no time."""


class MembersChange(msgspec.Struct, frozen=True):
    """The members of a classic group changed, or a member of a consumer-protocol group joined or left."""

    group: str
    members: frozenset[str] | None = None
    """All members of a classic group from now on; None for a group of the consumer protocol."""
    joined: str | None = None
    left: str | None = None


class Memberships:
    """The groups known to have no members, as of the records read so far, in order."""

    def __init__(self) -> None:
        self._members: dict[str, set[str]] = {}

    def take(self, change: MembersChange) -> None:
        if change.members is not None:
            self._members[change.group] = set(change.members)
        elif change.joined is not None:
            self._members.setdefault(change.group, set()).add(change.joined)
        elif change.left is not None:
            # Members that joined before the first record read are unknown. But when the last known one has left and a
            # commit from outside is accepted, there were no others.
            self._members.setdefault(change.group, set()).discard(change.left)

    def is_empty(self, group: str) -> bool:
        return self._members.get(group) == set()


def decode_members_change(key: bytes | None, value: bytes | None) -> MembersChange | None:
    """The change in a record; None if the record is of another kind or an unknown version."""
    kind = -1 if key is None else int.from_bytes(key[:_VERSION_BYTES], "big")
    try:
        if key is not None and kind == CLASSIC_GROUP_KEY:
            group = decode_whole(GroupMetadataKey, kind, key, _VERSION_BYTES).group
            members = [] if value is None else decode_value(GroupMetadataValue, value).members
            return MembersChange(group, members=frozenset(member.member_id for member in members))
        if key is not None and kind == MEMBER_KEY:
            about = decode_key(ConsumerGroupMemberMetadataKey, key)
            if value is None:
                return MembersChange(about.group_id, left=about.member_id)
            return MembersChange(about.group_id, joined=about.member_id)
    except WireError:
        pass
    return None


def decode_commit(key: bytes | None, value: bytes | None) -> Commit | None:
    """The commit in a record; None if the record is of another kind or an unknown version."""
    if key is None or int.from_bytes(key[:_VERSION_BYTES], "big") not in COMMIT_KEY_VERSIONS:
        return None
    try:
        about = decode_whole(OffsetCommitKey, int.from_bytes(key[:_VERSION_BYTES], "big"), key, _VERSION_BYTES)
        if value is None:
            return Commit(about.group, about.topic, about.partition, None, -1)
        version = int.from_bytes(value[:_VERSION_BYTES], "big")
        if version not in versions_of(OffsetCommitValue):
            return None
        commit = decode_whole(OffsetCommitValue, version, value, _VERSION_BYTES)
    except WireError:
        return None
    return Commit(about.group, about.topic, about.partition, commit.offset, commit.commit_timestamp)


def partition_of_group(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` for a group: the absolute value of Java's hash of its name."""
    digest = 0
    data = group.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        digest = (digest * 31 + (data[position] << 8) + data[position + 1]) & 0xFFFFFFFF
    signed = digest - (1 << 32) if digest & 0x80000000 else digest
    # The smallest 32-bit number has no positive counterpart; Kafka uses 0 then.
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions

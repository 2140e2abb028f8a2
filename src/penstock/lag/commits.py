"""The records of `__consumer_offsets` that are offset commits: which group got how far in which partition, and when.

All records of a group lie in one partition of that topic, which follows from the group's name. Keys begin with two
bytes that say what the record is: 0 and 1 are offset commits, all else concerns the members of groups. A commit without
a value deletes the offset.
"""

from __future__ import annotations

import msgspec

from penstock.wire.codec import decode_whole
from penstock.wire.errors import WireError
from penstock.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from penstock.wire.schema import versions_of

OFFSETS_TOPIC = "__consumer_offsets"
COMMIT_KEY_VERSIONS = (0, 1)

_VERSION_BYTES = 2


class Commit(msgspec.Struct, frozen=True):
    """One offset commit."""

    group: str
    topic: str
    partition: int
    offset: int | None
    """None where the offset was deleted."""
    timestamp_ms: int
    """When the coordinator took it; −1 for a deletion, which does not say."""


def decode_commit(key: bytes | None, value: bytes | None) -> Commit | None:
    """The commit in a record; None if it is another kind of record, or in a version that is not known yet."""
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
    """The partition of `__consumer_offsets` that holds a group: the absolute value of Java's hash of its name."""
    digest = 0
    data = group.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        digest = (digest * 31 + (data[position] << 8) + data[position + 1]) & 0xFFFFFFFF
    signed = digest - (1 << 32) if digest & 0x80000000 else digest
    # Java has no positive number for the smallest one; Kafka takes 0 then.
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions

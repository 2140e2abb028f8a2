"""Records of offsets and classic groups ↔ bytes.

Offsets are by far the most frequent records, written with every commit and read by the million when a shard loads.
They are packed and unpacked here by hand; `wire.messages.group_records` has the same layouts as schemas, and tests
check that both agree. Groups go through the codec.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from sys import intern
from typing import Final, NamedTuple, TypeVar

from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from penstock.wire.codec import Limits, decode, encode
from penstock.wire.errors import WireError
from penstock.wire.messages.group_records import (
    GROUP_METADATA_KEY,
    OFFSET_COMMIT_KEY,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitValue,
)
from penstock.wire.uuids import ZERO_UUID

# As in Kafka 4: version 4, or version 1 if the client set its own expiry, which only version 1 can hold.
OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_WITH_EXPIRY_VERSION: Final = 1
GROUP_VALUE_VERSION: Final = 3

# Upper bound of a batch's overhead over its keys and values: its header, and the lengths of each record.
BATCH_OVERHEAD_BYTES: Final = 61
RECORD_OVERHEAD_BYTES: Final = 32

NO_EXPIRY: Final = -1
NO_LEADER_EPOCH: Final = -1

RECORD_LIMITS: Final = Limits(max_elements=10_000_000)

_KEY_PREFIX: Final = Struct(">hh")
_LENGTH: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_VALUE_HEAD: Final = Struct(">hqi")  # version, offset, leader epoch (3+)
_VALUE_HEAD_OLD: Final = Struct(">hqh")  # version, offset, length of the metadata (0-2)
_TIMESTAMP: Final = Struct(">q")
_TIMESTAMPS: Final = Struct(">qq")

# A flexible value without tagged fields ends in a zero; with the topic's id: one field, tag 0, 16 bytes.
_NO_TAGS: Final = b"\x00"
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
_SHORT_STRING_MAX: Final = 126  # what a compact length of one byte can say

pack_partition: Final = _PARTITION.pack
pack_value_head: Final = _VALUE_HEAD.pack

M = TypeVar("M", OffsetCommitValue, GroupMetadataValue)


class CommittedOffset(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes


# -- offsets -----------------------------------------------------------------------------------------------------------


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """The key of an offset but for its last four bytes, the partition (`pack_partition`)."""
    group = group_id.encode()
    name = topic.encode()
    return _KEY_PREFIX.pack(OFFSET_COMMIT_KEY, len(group)) + group + _LENGTH.pack(len(name)) + name


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return offset_key_prefix(group_id, topic) + pack_partition(partition)


def key_group(key: bytes) -> str:
    """The group id of a key. Keys of all types begin with it."""
    end = 4 + (key[2] << 8 | key[3])
    if end > len(key) or key[2] & 0x80:
        raise WireError("the key of a group's record is truncated")
    return str(key[4:end], "utf-8")


def offset_key_partition(key: bytes) -> tuple[str, int]:
    """The topic and partition of an offset's key."""
    position = 4 + (key[2] << 8 | key[3])
    topic_end = position + 2 + (key[position] << 8 | key[position + 1])
    return str(key[position + 2 : topic_end], "utf-8"), _PARTITION.unpack_from(key, topic_end)[0]


def offset_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int = NO_EXPIRY,
    topic_id: bytes = ZERO_UUID,
) -> bytes:
    """The value of an offset's record, as Kafka 4 writes it."""
    text = metadata.encode()
    if expire_timestamp_ms != NO_EXPIRY:
        head = _VALUE_HEAD_OLD.pack(OFFSET_VALUE_WITH_EXPIRY_VERSION, offset, len(text))
        return head + text + _TIMESTAMPS.pack(commit_timestamp_ms, expire_timestamp_ms)
    if len(text) > _SHORT_STRING_MAX:
        value = OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp_ms, topic_id=topic_id)
        out = bytearray(_LENGTH.pack(OFFSET_VALUE_VERSION))
        encode(value, OFFSET_VALUE_VERSION, out)
        return bytes(out)
    return b"%b%c%b%b%b" % (
        _VALUE_HEAD.pack(OFFSET_VALUE_VERSION, offset, leader_epoch),
        len(text) + 1,
        text,
        _TIMESTAMP.pack(commit_timestamp_ms),
        _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id,
    )


def plain_value_tail(commit_timestamp_ms: int, topic_id: bytes) -> bytes:
    """The bytes after `pack_value_head(OFFSET_VALUE_VERSION, …)` in the value of an offset without metadata."""
    tags = _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id
    return b"\x01" + _TIMESTAMP.pack(commit_timestamp_ms) + tags


def decode_offset_value(value: bytes) -> CommittedOffset:
    """Decode a value of any version that Kafka ever wrote."""
    try:
        if value[1] == OFFSET_VALUE_VERSION and value[0] == 0 and value[14] <= _SHORT_STRING_MAX:
            _, offset, leader_epoch = _VALUE_HEAD.unpack_from(value)
            end = 14 + value[14]
            if len(value) == end + 9 and value[-1] == 0:
                metadata = str(value[15:end], "utf-8") if end > 15 else ""
                timestamp = _TIMESTAMP.unpack_from(value, end)[0]
                return CommittedOffset(offset, leader_epoch, metadata, timestamp, NO_EXPIRY, ZERO_UUID)
    except (IndexError, UnicodeDecodeError, StructError):
        raise WireError("the value of an offset is truncated") from None
    message = _decode(OffsetCommitValue, value)
    return CommittedOffset(
        message.offset,
        message.leader_epoch,
        message.metadata,
        message.commit_timestamp,
        message.expire_timestamp,
        message.topic_id,
    )


# -- classic groups ----------------------------------------------------------------------------------------------------


def group_key(group_id: str) -> bytes:
    group = group_id.encode()
    return _KEY_PREFIX.pack(GROUP_METADATA_KEY, len(group)) + group


def group_value(group: ClassicGroup) -> bytes:
    """The record of the group's current state: members with their assignments and metadata for the chosen protocol."""
    protocol = group.protocol_name
    value = GroupMetadataValue(
        group.protocol_type or "",
        group.generation,
        protocol,
        group.leader_id,
        group.state_timestamp_ms,
        [
            GroupMetadataMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(protocol),
                member.assignment,
            )
            for member in group.members.values()
        ],
    )
    out = bytearray(_LENGTH.pack(GROUP_VALUE_VERSION))
    encode(value, GROUP_VALUE_VERSION, out)
    return bytes(out)


def decode_group(group_id: str, value: bytes) -> ClassicGroup:
    """The group in a record: stable with its members, or empty."""
    message = _decode(GroupMetadataValue, value)
    group = ClassicGroup(group_id, message.current_state_timestamp)
    group.generation = message.generation
    group.protocol_type = intern(message.protocol_type) or None
    protocol = group.protocol_name = None if message.protocol is None else intern(message.protocol)
    group.leader_id = message.leader
    for stored in message.members:
        rebalance_timeout_ms = stored.rebalance_timeout
        member = ClassicMember(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            stored.session_timeout,
            ((protocol or "", stored.subscription),),
            stored.assignment,
        )
        group.add(member, message.protocol_type)
    if group.members:
        group.state = ClassicState.STABLE
        leader = group.members.get(group.leader_id or "") or next(iter(group.members.values()))
        group.leader_id = leader.member_id
    group.subscribed_topics = group.read_subscriptions()
    return group


def _decode(cls: type[M], value: bytes) -> M:
    if len(value) < 2:
        raise WireError(f"{cls.__name__} has no version")
    version = _LENGTH.unpack_from(value)[0]
    if not 0 <= version <= 4:
        raise WireError(f"{cls.__name__} version {version} is unknown (0 to 4); was it written by a newer release?")
    return decode(cls, version, value, 2, limits=RECORD_LIMITS)[0]

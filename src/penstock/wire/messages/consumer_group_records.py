"""The records of consumer groups (KIP-848) in `__consumer_offsets`, as Kafka's group coordinator writes them.

A record's key starts with its type as an int16, then the key's fields; its value starts with the value's version as
an int16, then the value. Types, fields and versions are those of Kafka 4.3. A record without a value takes back what
an earlier one with the same key said.

Type 4, ConsumerGroupPartitionMetadata, was written until Kafka 4.0 and is read so that such a log can be loaded; what
it said is now a hash in ConsumerGroupMetadata (KIP-1101).
"""
# ruff: noqa: RUF012

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final, TypeVar

from penstock.wire.codec import Limits, decode_whole, encode
from penstock.wire.compression import Buffer
from penstock.wire.errors import WireError
from penstock.wire.schema import Field, Message, Schema, versions_of
from penstock.wire.uuids import ZERO_UUID

RECORD_LIMITS: Final = Limits(max_elements=1_000_000, max_tagged_fields=1_000)

_PREFIX: Final = Struct(">h")
_KEY_VERSION: Final = 0

M = TypeVar("M", bound=Message)


class ConsumerGroupRecordKey(Message):
    """The base of all keys."""

    record_type: ClassVar[int]


def encode_key(key: ConsumerGroupRecordKey) -> bytes:
    out = bytearray(_PREFIX.pack(key.record_type))
    encode(key, _KEY_VERSION, out)
    return bytes(out)


def encode_value(value: Message) -> bytes:
    """In the newest version; all of them have had one so far."""
    version = versions_of(type(value))[-1]
    out = bytearray(_PREFIX.pack(version))
    encode(value, version, out)
    return bytes(out)


def decode_key(cls: type[M], key: Buffer) -> M:
    """The key behind its type, which the caller has read already."""
    return decode_whole(cls, _KEY_VERSION, key, _PREFIX.size, limits=RECORD_LIMITS)


def decode_value(cls: type[M], value: Buffer) -> M:
    """Raises WireError for a version that this release does not know: ignoring it would lose state."""
    if len(value) < _PREFIX.size:
        raise WireError(f"a {cls.__name__} that is cut off")
    (version,) = _PREFIX.unpack_from(value)
    if version not in versions_of(cls):
        raise WireError(f"{cls.__name__} version {version}: this release knows {cls.schema.versions}")
    return decode_whole(cls, version, value, _PREFIX.size, limits=RECORD_LIMITS)


_GROUP_KEY: Final = Schema("0", "none", (Field("group_id", "string"),))
_MEMBER_KEY: Final = Schema("0", "none", (Field("group_id", "string"), Field("member_id", "string")))


class ConsumerGroupMetadataKey(ConsumerGroupRecordKey):
    group_id: str = ""

    record_type = 3
    schema = _GROUP_KEY


class ConsumerGroupMetadataValue(Message):
    """The group exists, and this is its epoch."""

    epoch: int = 0
    metadata_hash: int = 0

    schema = Schema(
        "0",
        "0+",
        (
            Field("epoch", "int32"),
            Field("metadata_hash", "int64", tag=0, tagged="0+"),
        ),
    )


class ConsumerGroupPartitionMetadataKey(ConsumerGroupRecordKey):
    group_id: str = ""

    record_type = 4
    schema = _GROUP_KEY


class ConsumerGroupMemberMetadataKey(ConsumerGroupRecordKey):
    group_id: str = ""
    member_id: str = ""

    record_type = 5
    schema = _MEMBER_KEY


class ClassicProtocol(Message):
    name: str = ""
    metadata: bytes = b""

    schema = Schema(
        "0",
        "0+",
        (
            Field("name", "string"),
            Field("metadata", "bytes"),
        ),
    )


class ClassicMemberMetadata(Message):
    """What is known of a member that speaks the classic protocol."""

    session_timeout_ms: int = 0
    supported_protocols: list[ClassicProtocol] = []

    schema = Schema(
        "0",
        "0+",
        (
            Field("session_timeout_ms", "int32"),
            Field("supported_protocols", ClassicProtocol, array=True),
        ),
    )


class ConsumerGroupMemberMetadataValue(Message):
    """A member, and what it subscribes to."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None

    schema = Schema(
        "0",
        "0+",
        (
            Field("instance_id", "string", nullable="0+"),
            Field("rack_id", "string", nullable="0+"),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("subscribed_topic_names", "string", array=True),
            Field("subscribed_topic_regex", "string", nullable="0+"),
            Field("rebalance_timeout_ms", "int32"),
            Field("server_assignor", "string", nullable="0+"),
            Field("classic_member_metadata", ClassicMemberMetadata, nullable="0+", tag=0, tagged="0+"),
        ),
    )


class ConsumerGroupTargetAssignmentMetadataKey(ConsumerGroupRecordKey):
    group_id: str = ""

    record_type = 6
    schema = _GROUP_KEY


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The group epoch that the target assignment was made for, and when (KIP-1263)."""

    assignment_epoch: int = 0
    assignment_timestamp: int = 0

    schema = Schema(
        "0",
        "0+",
        (
            Field("assignment_epoch", "int32"),
            Field("assignment_timestamp", "int64", tag=0, tagged="0+"),
        ),
    )


class ConsumerGroupTargetAssignmentMemberKey(ConsumerGroupRecordKey):
    group_id: str = ""
    member_id: str = ""

    record_type = 7
    schema = _MEMBER_KEY


class TargetTopicPartitions(Message):
    topic_id: bytes = ZERO_UUID
    partitions: list[int] = []

    schema = Schema(
        "0",
        "0+",
        (
            Field("topic_id", "uuid"),
            Field("partitions", "int32", array=True),
        ),
    )


class ConsumerGroupTargetAssignmentMemberValue(Message):
    """What a member shall own once everyone has caught up."""

    topic_partitions: list[TargetTopicPartitions] = []

    schema = Schema("0", "0+", (Field("topic_partitions", TargetTopicPartitions, array=True),))


class ConsumerGroupCurrentMemberAssignmentKey(ConsumerGroupRecordKey):
    group_id: str = ""
    member_id: str = ""

    record_type = 8
    schema = _MEMBER_KEY


class CurrentTopicPartitions(Message):
    """`assignment_epochs` stand beside `partitions`, one for one: since when the member owns each (KIP-1251)."""

    topic_id: bytes = ZERO_UUID
    partitions: list[int] = []
    assignment_epochs: list[int] | None = None

    schema = Schema(
        "0",
        "0+",
        (
            Field("topic_id", "uuid"),
            Field("partitions", "int32", array=True),
            Field("assignment_epochs", "int32", array=True, nullable="0+", tag=0, tagged="0+"),
        ),
    )


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """Where a member is on its way to its target."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: list[CurrentTopicPartitions] = []
    partitions_pending_revocation: list[CurrentTopicPartitions] = []

    schema = Schema(
        "0",
        "0+",
        (
            Field("member_epoch", "int32"),
            Field("previous_member_epoch", "int32"),
            Field("state", "int8"),
            Field("assigned_partitions", CurrentTopicPartitions, array=True),
            Field("partitions_pending_revocation", CurrentTopicPartitions, array=True),
        ),
    )


class ConsumerGroupRegularExpressionKey(ConsumerGroupRecordKey):
    group_id: str = ""
    regular_expression: str = ""

    record_type = 16
    schema = Schema("0", "none", (Field("group_id", "string"), Field("regular_expression", "string")))


class ConsumerGroupRegularExpressionValue(Message):
    """The topics that an expression matched, as of a version of the metadata and a time."""

    topics: list[str] = []
    version: int = 0
    timestamp: int = 0

    schema = Schema(
        "0",
        "0+",
        (
            Field("topics", "string", array=True),
            Field("version", "int64"),
            Field("timestamp", "int64"),
        ),
    )

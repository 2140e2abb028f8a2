"""Reads and writes the messages that classic consumers embed in JoinGroup and SyncGroup.

Format: a version as an int16, then the message. Newer versions only add fields at the end, so the known fields of an
unknown version can still be read.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.coordinators.groups.consumer.member import Owned, partition_numbers
from penstock.metadata import MetadataImage
from penstock.wire.codec import decode, encode
from penstock.wire.errors import WireError
from penstock.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from penstock.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from penstock.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedTopicPartition

VERSION_MAX: Final = 3
_VERSION: Final = Struct(">h")


class OwnedPartitions:
    """Owned partitions in the form of a consumer protocol heartbeat."""

    __slots__ = ("partitions", "topic_id")

    def __init__(self, topic_id: bytes, partitions: list[int]) -> None:
        self.topic_id = topic_id
        self.partitions = partitions


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises WireError."""
    return decode(ConsumerProtocolSubscription, version_of(metadata), metadata, _VERSION.size)[0]


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Decode an assignment. Empty bytes mean no partitions. Raises WireError."""
    if not assignment:
        return ConsumerProtocolAssignment()
    return decode(ConsumerProtocolAssignment, version_of(assignment), assignment, _VERSION.size)[0]


def write_assignment(numbers: dict[bytes, list[int]], version: int, image: MetadataImage) -> bytes:
    """Encode an assignment. Deleted topics have no name any more and are omitted."""
    topics = []
    for topic_id, partitions in numbers.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            topics.append(TopicPartition(topic.name, partitions))
    out = bytearray(_VERSION.pack(version))
    encode(ConsumerProtocolAssignment(topics), version, out)
    return bytes(out)


def version_of(message: bytes) -> int:
    if len(message) < _VERSION.size:
        raise WireError("an embedded message has no version")
    (version,) = _VERSION.unpack_from(message)
    if version < 0:
        raise WireError(f"an embedded message has the invalid version {version}")
    return min(int(version), VERSION_MAX)


def owned_partitions(topics: list[OwnedTopicPartition], image: MetadataImage) -> list[OwnedPartitions]:
    """The owned partitions of topics that exist."""
    owned = []
    for partitions in topics:
        topic = image.topic(partitions.topic)
        if topic is not None:
            numbers = [number for number in partitions.partitions if 0 <= number < len(topic.partitions)]
            owned.append(OwnedPartitions(topic.topic_id, numbers))
    return owned


def assigned_partitions(assignment: ConsumerProtocolAssignment, epoch: int, image: MetadataImage) -> Owned:
    """The partitions that a classic leader assigned, of topics that exist."""
    owned: dict[bytes, dict[int, int]] = {}
    for partitions in assignment.assigned_partitions:
        topic = image.topic(partitions.topic)
        if topic is not None:
            numbers = [number for number in partitions.partitions if 0 <= number < len(topic.partitions)]
            if numbers:
                owned.setdefault(topic.topic_id, {}).update(dict.fromkeys(numbers, epoch))
    return owned


def assignment_of(owned: Owned, metadata: bytes, image: MetadataImage) -> bytes:
    """The assignment for SyncGroup, in the version that the member uses."""
    return write_assignment(partition_numbers(owned), version_of(metadata), image)

"""What classic consumers put into JoinGroup and SyncGroup, which a consumer group has to read and write for them.

A version as an int16, then the message. Newer versions only add fields at the end, so of a version that is not known
the fields that are known can be read.
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
    """As a heartbeat of the consumer protocol would tell them."""

    __slots__ = ("partitions", "topic_id")

    def __init__(self, topic_id: bytes, partitions: list[int]) -> None:
        self.topic_id = topic_id
        self.partitions = partitions


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises WireError."""
    return decode(ConsumerProtocolSubscription, version_of(metadata), metadata, _VERSION.size)[0]


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Raises WireError. Who was assigned nothing may have been sent nothing."""
    if not assignment:
        return ConsumerProtocolAssignment()
    return decode(ConsumerProtocolAssignment, version_of(assignment), assignment, _VERSION.size)[0]


def write_assignment(numbers: dict[bytes, list[int]], version: int, image: MetadataImage) -> bytes:
    """Topics that were deleted have no name any more and are left out."""
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
        raise WireError("an embedded message starts with a version")
    (version,) = _VERSION.unpack_from(message)
    if version < 0:
        raise WireError(f"version {version} of an embedded message")
    return min(int(version), VERSION_MAX)


def owned_partitions(topics: list[OwnedTopicPartition], image: MetadataImage) -> list[OwnedPartitions]:
    """As far as they exist."""
    owned = []
    for partitions in topics:
        topic = image.topic(partitions.topic)
        if topic is not None:
            numbers = [number for number in partitions.partitions if 0 <= number < len(topic.partitions)]
            owned.append(OwnedPartitions(topic.topic_id, numbers))
    return owned


def assigned_partitions(assignment: ConsumerProtocolAssignment, epoch: int, image: MetadataImage) -> Owned:
    """What a classic leader assigned, as far as it exists."""
    owned: dict[bytes, dict[int, int]] = {}
    for partitions in assignment.assigned_partitions:
        topic = image.topic(partitions.topic)
        if topic is not None:
            numbers = [number for number in partitions.partitions if 0 <= number < len(topic.partitions)]
            if numbers:
                owned.setdefault(topic.topic_id, {}).update(dict.fromkeys(numbers, epoch))
    return owned


def assignment_of(owned: Owned, metadata: bytes, image: MetadataImage) -> bytes:
    """For SyncGroup, in the version that the member speaks."""
    return write_assignment(partition_numbers(owned), version_of(metadata), image)

"""The state of consumer groups ↔ records."""

from __future__ import annotations

from collections.abc import Callable

from penstock.coordinators.groups.consumer.assignors import NO_PARTITIONS, Assignment
from penstock.coordinators.groups.consumer.member import (
    NOTHING_OWNED,
    ClassicMetadata,
    ClassicProtocol,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Owned,
)
from penstock.wire.messages import consumer_group_records as r

# -- keys ------------------------------------------------------------------------------------------------------------


def group_key(group_id: str) -> bytes:
    return r.encode_key(r.ConsumerGroupMetadataKey(group_id))


def partition_metadata_key(group_id: str) -> bytes:
    return r.encode_key(r.ConsumerGroupPartitionMetadataKey(group_id))


def member_key(group_id: str, member_id: str) -> bytes:
    return r.encode_key(r.ConsumerGroupMemberMetadataKey(group_id, member_id))


def target_epoch_key(group_id: str) -> bytes:
    return r.encode_key(r.ConsumerGroupTargetAssignmentMetadataKey(group_id))


def target_key(group_id: str, member_id: str) -> bytes:
    return r.encode_key(r.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id))


def current_key(group_id: str, member_id: str) -> bytes:
    return r.encode_key(r.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id))


def regex_key(group_id: str, regex: str) -> bytes:
    return r.encode_key(r.ConsumerGroupRegularExpressionKey(group_id, regex))


# -- values ----------------------------------------------------------------------------------------------------------


def group_value(epoch: int, metadata_hash: int) -> bytes:
    return r.encode_value(r.ConsumerGroupMetadataValue(epoch, metadata_hash))


def target_epoch_value(epoch: int, timestamp_ms: int) -> bytes:
    return r.encode_value(r.ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms))


def regex_value(topics: tuple[str, ...], version: int, timestamp_ms: int) -> bytes:
    return r.encode_value(r.ConsumerGroupRegularExpressionValue(list(topics), version, timestamp_ms))


def member_value(metadata: MemberMetadata) -> bytes:
    classic = metadata.classic
    return r.encode_value(
        r.ConsumerGroupMemberMetadataValue(
            metadata.instance_id,
            metadata.rack_id,
            metadata.client_id,
            metadata.client_host,
            list(metadata.topic_names),
            metadata.topic_regex,
            metadata.rebalance_timeout_ms,
            metadata.server_assignor,
            None
            if classic is None
            else r.ClassicMemberMetadata(
                classic.session_timeout_ms, [r.ClassicProtocol(name, data) for name, data in classic.protocols]
            ),
        )
    )


def member_metadata(value: bytes, names: Callable[[list[str]], tuple[str, ...]]) -> MemberMetadata:
    """Decode a member's record. `names` sorts and interns the topic names."""
    message = r.decode_value(r.ConsumerGroupMemberMetadataValue, value)
    classic = message.classic_member_metadata
    return MemberMetadata(
        message.instance_id,
        message.rack_id,
        message.client_id,
        message.client_host,
        names(message.subscribed_topic_names),
        message.subscribed_topic_regex,
        message.rebalance_timeout_ms,
        message.server_assignor,
        None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms,
            tuple(ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )


def target_value(assignment: Assignment) -> bytes:
    return r.encode_value(
        r.ConsumerGroupTargetAssignmentMemberValue(
            [r.TargetTopicPartitions(topic_id, list(partitions)) for topic_id, partitions in assignment.items()]
        )
    )


def target_assignment(value: bytes) -> Assignment:
    message = r.decode_value(r.ConsumerGroupTargetAssignmentMemberValue, value)
    return {
        topic.topic_id: tuple(sorted(topic.partitions)) for topic in message.topic_partitions if topic.partitions
    } or NO_PARTITIONS


def current_value(current: CurrentAssignment) -> bytes:
    return r.encode_value(
        r.ConsumerGroupCurrentMemberAssignmentValue(
            current.epoch,
            current.previous_epoch,
            current.state,
            _topic_partitions(current.assigned),
            _topic_partitions(current.revoking),
        )
    )


def current_assignment(value: bytes) -> CurrentAssignment:
    message = r.decode_value(r.ConsumerGroupCurrentMemberAssignmentValue, value)
    try:
        state = MemberState(message.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return CurrentAssignment(
        message.member_epoch,
        message.previous_member_epoch,
        state,
        _owned(message.assigned_partitions, message.member_epoch),
        _owned(message.partitions_pending_revocation, message.member_epoch),
    )


def _topic_partitions(owned: Owned) -> list[r.CurrentTopicPartitions]:
    return [
        r.CurrentTopicPartitions(topic_id, list(partitions), list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]


def _owned(topics: list[r.CurrentTopicPartitions], member_epoch: int) -> Owned:
    """Decode owned partitions. Records before Kafka 4.3 have no epochs: the member's epoch is used."""
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        if topic.partitions:
            owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned or NOTHING_OWNED

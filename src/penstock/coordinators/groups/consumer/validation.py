"""Checks made before anything is changed: Kafka's checks, in its order, with its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Member,
    Owned,
)
from penstock.coordinators.groups.consumer.reconciliation import TopicPartitions
from penstock.coordinators.groups.memory import GroupMemory
from penstock.coordinators.groups.weighing import weight_of_metadata
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

# From this version on clients generate their own member ids (KIP-1082).
CLIENT_MEMBER_ID_FROM: Final = 1


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Check the request without the group."""
    epoch = request.member_epoch
    if version >= CLIENT_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVE_EPOCH:
        _check_not_empty(request.member_id, "MemberId")
    _check_not_empty(request.group_id, "GroupId")
    _check_not_empty(request.instance_id, "InstanceId")
    _check_not_empty(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def check_epoch(member: Member, epoch: int, owned: Sequence[TopicPartitions] | None) -> None:
    """The member must use its epoch, or the previous one if the answer with the new one may have been lost."""
    current = member.current
    if epoch in (JOIN_EPOCH, current.epoch):
        return
    if epoch < current.epoch and epoch == current.previous_epoch and _is_subset(owned, current.assigned):
        return
    compared = "greater" if epoch > current.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
    )


def check_memory(memory: GroupMemory, group: ConsumerGroup, member_id: str, weight: int) -> None:
    """Check that the broker has memory for a member of this weight, new or grown."""
    member = group.members.get(member_id)
    before = 0 if member is None else weight_of_metadata(member.metadata)
    if not memory.admit(weight - before):
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The groups of this broker take {memory.used} bytes of memory: penstock.group.state.bytes.max is "
            f"{memory.bytes_max}.",
        )


def check_not_full(group: ConsumerGroup, member_id: str, size_max: int) -> None:
    if len(group.members) >= size_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member that sent the request; with an instance id it must be the current owner of that id."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown_member(group, member_id)
        return member
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    check_not_fenced(member, member_id, instance_id)
    return member


def check_not_fenced(member: Member, member_id: str, instance_id: str) -> None:
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def check_released(member: Member, member_id: str, instance_id: str) -> None:
    """Check that an instance id is free: its last member must have announced that it left."""
    if member.current.epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {member.member_id} member.",
        )


def unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def _is_subset(owned: Sequence[TopicPartitions] | None, assigned: Owned) -> bool:
    if owned is None:
        return False
    for topic in owned:
        partitions = assigned.get(topic.topic_id)
        if partitions is None or any(partition not in partitions for partition in topic.partitions):
            return False
    return True


def _check_not_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)

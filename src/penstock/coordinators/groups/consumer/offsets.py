"""Checks whether a client may commit or fetch offsets of a consumer group.

A member commits in its epoch. A commit with an older epoch is valid too if the member has owned the partition since
then (KIP-1251): heartbeats and commits use different connections, and a commit must not fail because the epoch has
grown for unrelated reasons.
"""

from __future__ import annotations

from typing import Final

from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.consumer.member import Member
from penstock.coordinators.groups.consumer.validation import unknown_member
from penstock.metadata import MetadataImage
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.offset_commit import OffsetCommitRequestTopic

MEMBER_EPOCH_FROM: Final = 9
TOPIC_IDS_FROM: Final = 10


def check_commit(
    image: MetadataImage,
    version: int,
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    topics: list[OffsetCommitRequestTopic] | None,
) -> None:
    """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION or UNSUPPORTED_VERSION."""
    if epoch < 0 and group.is_empty:
        return  # an administrator, or a consumer that assigns itself
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group, member_id)
    if not member.is_classic and version < MEMBER_EPOCH_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    if epoch == member.current.epoch:
        return
    if epoch > member.current.epoch or topics is None:
        raise _stale(member, f"Received epoch {epoch} is not the member's current one, {member.current.epoch}.")
    for topic in topics:
        topic_id = topic.topic_id
        if version < TOPIC_IDS_FROM:
            found = image.topic(topic.name)
            if found is None:
                continue  # refused for that
            topic_id = found.topic_id
        for partition in topic.partitions:
            _check_owned_since(member, topic_id, partition.partition_index, epoch)


def _check_owned_since(member: Member, topic_id: bytes, partition: int, epoch: int) -> None:
    for owned in (member.current.assigned, member.current.revoking):
        since = owned.get(topic_id, {}).get(partition)
        if since is not None:
            if epoch < since:
                raise _stale(member, f"Received epoch {epoch} is older than the assignment, {since}.")
            return
    raise _stale(member, f"Partition {partition} is not assigned or pending revocation for member.")


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise unknown_member(group, member_id or "")
    if epoch != member.current.epoch:
        raise _stale(member, f"Received epoch {epoch} is not the member's current one, {member.current.epoch}.")


def _stale(member: Member, message: str) -> KafkaError:
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, message)

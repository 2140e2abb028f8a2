"""ConsumerGroupDescribe: a group as its users see it.

Version 1 tells whether a member speaks the classic protocol (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.consumer.member import Member as GroupMember
from penstock.metadata import MetadataImage
from penstock.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def described_group(group: ConsumerGroup, image: MetadataImage, assignors: tuple[str, ...]) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(assignors),
        members=[_described_member(group, member, image) for member in group.members.values()],
    )


def _described_member(group: ConsumerGroup, member: GroupMember, image: MetadataImage) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.topic_names),
        subscribed_topic_regex=metadata.topic_regex,
        assignment=_assignment(member.current.assigned, image),
        target_assignment=_assignment(group.target(member.member_id), image),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], image: MetadataImage) -> Assignment:
    """The assignment in response form. Deleted topics have no name any more and are omitted."""
    topics = []
    for topic_id, numbers in partitions.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            topics.append(TopicPartitions(topic_id, topic.name, sorted(numbers)))
    return Assignment(topics)

"""Estimates the memory of groups and members: slightly more than was measured."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Final

from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicMember

if TYPE_CHECKING:
    from penstock.coordinators.groups.consumer.group import ConsumerGroup
    from penstock.coordinators.groups.consumer.member import Member, MemberMetadata
    from penstock.coordinators.groups.table import GroupTable

GROUP_BYTES: Final = 1_000
MEMBER_BYTES: Final = 3_000
"""A member with its timer, without its metadata."""
PENDING_MEMBER_BYTES: Final = 1_000
PARTITION_BYTES: Final = 300
"""An assigned partition of a consumer group, in all tables."""
NAME_BYTES: Final = 100


def weigh(table: GroupTable) -> Generator[None, None, int]:
    """Estimate the memory of a shard's groups, without their offsets."""
    total = table.undecoded_bytes
    for group in list(table.groups.values()):
        yield
        total += GROUP_BYTES + len(group.group_id)
        if isinstance(group, ClassicGroup):
            total += len(group.pending_join) * PENDING_MEMBER_BYTES
            for classic in list(group.members.values()):
                yield
                total += weight_of_classic(classic) + len(classic.assignment)
        else:
            for member in list(group.members.values()):
                yield
                total += weight_of_member(group, member)
    return total


def weight_of_classic(member: ClassicMember | None) -> int:
    return 0 if member is None else MEMBER_BYTES + len(member.client_id) + weight_of_protocols(member.protocols)


def weight_of_protocols(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(NAME_BYTES + len(metadata) for _, metadata in protocols)


def weight_of_member(group: ConsumerGroup, member: Member) -> int:
    current = member.current
    tables = (current.assigned, current.revoking, group.target(member.member_id))
    partitions = sum(len(owned) for table in tables for owned in table.values())
    return weight_of_metadata(member.metadata) + PARTITION_BYTES * partitions


def weight_of_metadata(metadata: MemberMetadata) -> int:
    """Estimate the memory of a consumer group's member without partitions."""
    classic = 0 if metadata.classic is None else weight_of_protocols(metadata.classic.protocols)
    return MEMBER_BYTES + NAME_BYTES * len(metadata.topic_names) + classic

"""The `range` assignor: consecutive partitions, in the order of the members.

Every topic is split into as many ranges as it has subscribers; if the split is uneven, the first ranges are larger by
one. Members are ordered by instance id; members without one follow, ordered by member id. So a member gets the same
partition numbers of all topics with equal counts and subscribers, and a static member that comes back under a new
member id gets the same partitions.
"""

from __future__ import annotations

from penstock.coordinators.groups.consumer.assignors.spec import NO_PARTITIONS, Assignment, GroupSpec, MemberSpec


def assign_range(spec: GroupSpec) -> dict[str, Assignment]:
    if not spec.members:
        return {}
    members = sorted(spec.members, key=_rank)
    made = _homogeneous(spec, members) if spec.homogeneous else _heterogeneous(spec, members)
    return {
        member.member_id: member.current if assignment == member.current else assignment
        for member, assignment in zip(members, made, strict=True)
    }


def _homogeneous(spec: GroupSpec, members: list[MemberSpec]) -> list[Assignment]:
    """Assign topics that all members subscribe to. Topics with the same number of partitions are split the same way."""
    topics = [(topic_id, spec.partition_counts[topic_id]) for topic_id in members[0].topics]
    counts = dict.fromkeys(count for _, count in topics)
    made: list[Assignment] = []
    for index in range(len(members)):
        cuts = {count: _cut(count, len(members), index) for count in counts}
        if any(cuts.values()):
            made.append({topic_id: cuts[count] for topic_id, count in topics if cuts[count]})
        else:
            made.append(NO_PARTITIONS)
    return made


def _heterogeneous(spec: GroupSpec, members: list[MemberSpec]) -> list[Assignment]:
    subscribers = dict.fromkeys(spec.partition_counts, 0)
    for member in members:
        for topic_id in member.topics:
            subscribers[topic_id] += 1
    served = dict.fromkeys(spec.partition_counts, 0)
    made: list[Assignment] = []
    for member in members:
        assignment: dict[bytes, tuple[int, ...]] = {}
        for topic_id in member.topics:
            cut = _cut(spec.partition_counts[topic_id], subscribers[topic_id], served[topic_id])
            served[topic_id] += 1
            if cut:
                assignment[topic_id] = cut
        made.append(assignment)
    return made


def _cut(count: int, members: int, index: int) -> tuple[int, ...]:
    """The partitions of the member at `index`."""
    size, extra = divmod(count, members)
    first = index * size + min(index, extra)
    return tuple(range(first, first + size + (index < extra)))


def _rank(member: MemberSpec) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id

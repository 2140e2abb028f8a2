"""OffsetFetch (9): the committed offsets of groups.

Served: v1–v10. v2 all topics of a group, v5 leader epochs (KIP-320), v6 flexible, v7 offsets of open transactions may
be waited for (KIP-447), v8 several groups at once (KIP-709), v9 members of the consumer protocol (KIP-848), v10 topic
ids.
Each group is fetched from its coordinator; the answer is sent when all offsets in it are committed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.broker.refusals import element
from penstock.coordinators.groups.offset_requests import UnreadOffsets
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.wire.uuids import ZERO_UUID

BATCHED_FROM = 8
ERROR_OF_ITS_OWN_FROM = 2
NO_OFFSET = -1
AT_ONCE_MAX = 20
"""Groups that are fetched without yielding to the loop."""
OFFSETS_AT_ONCE_MAX = 50
"""Offsets that are encoded without yielding to the loop; each may have 4 KB of metadata."""
NAMED_AT_ONCE_MAX = 1_000
"""Partitions that one coordinator is asked for without yielding to the loop."""
READ_BETWEEN_LOOKS = 8
"""Offsets that are decoded between two looks at the clock: some 10 µs each, more with metadata."""


def serve(
    node: Node, request: Request, body: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    groups = body.groups if request.version >= BATCHED_FROM else [single_group(body)]
    if request.is_restricted:
        return fetch_allowed(node, request, body, groups)
    if len(groups) > AT_ONCE_MAX or any(count_named(group) > NAMED_AT_ONCE_MAX for group in groups):
        return serve_many(node, request, body, groups)
    asked = [ask(node, request, body, group) for group in groups]
    answers = [one.answer for one in asked if isinstance(one.answer, OffsetFetchResponseGroup)]
    count = sum(len(topic.partitions) for group in answers for topic in group.topics)
    if len(answers) == len(asked) and count <= OFFSETS_AT_ONCE_MAX:
        return answered(request, body, answers)
    return wait(node, request, body, asked)


def ask(node: Node, request: Request, body: OffsetFetchRequest, group: OffsetFetchRequestGroup) -> PendingReply:
    call = partial(GroupShard.offset_fetch_group, require_stable=body.require_stable)
    return node.coordinators.ask(
        group.group_id,
        call,
        request,
        group,
        element(OffsetFetchResponseGroup, group_id=group.group_id),
        writes=False,
    )


async def wait(
    node: Node, request: Request, body: OffsetFetchRequest, asked: list[PendingReply]
) -> OffsetFetchResponse:
    return answered(request, body, [await read(node, request, one) for one in asked])


async def read(node: Node, request: Request, asked: PendingReply) -> OffsetFetchResponseGroup:
    """The answer of a coordinator. All offsets of a large group are decoded here, in slices."""
    found = await node.coordinators.settled(asked, Message)
    if isinstance(found, UnreadOffsets):
        with request.slices() as slices:
            return await slices.drive(found.read(), steps_between_looks=READ_BETWEEN_LOOKS)
    assert isinstance(found, OffsetFetchResponseGroup)
    return found


def count_named(group: OffsetFetchRequestGroup) -> int:
    return sum(len(topic.partition_indexes) for topic in group.topics or ())


def portions(group: OffsetFetchRequestGroup) -> list[OffsetFetchRequestGroup]:
    """A request for many partitions as several for fewer: a coordinator answers each in one go."""
    if group.topics is None or count_named(group) <= NAMED_AT_ONCE_MAX:
        return [group]
    parts: list[list[OffsetFetchRequestTopics]] = [[]]
    room = NAMED_AT_ONCE_MAX
    for topic in group.topics:
        start = 0
        while start < len(topic.partition_indexes) or not topic.partition_indexes:
            if room <= 0:
                parts.append([])
                room = NAMED_AT_ONCE_MAX
            taken = topic.partition_indexes[start : start + room]
            named = OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=taken)
            parts[-1].append(named)
            start += len(taken)
            room -= max(1, len(taken))
            if not topic.partition_indexes:
                break
    return [
        OffsetFetchRequestGroup(
            group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=topics
        )
        for topics in parts
    ]


def joined(parts: list[OffsetFetchResponseGroup]) -> OffsetFetchResponseGroup:
    """The answers to `portions`, as one. The first error is that of the group."""
    whole = parts[0]
    for part in parts[1:]:
        if whole.error_code:
            break
        if part.error_code:
            return part
        for topic in part.topics:
            last = whole.topics[-1] if whole.topics else None
            if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
                last.partitions += topic.partitions
            else:
                whole.topics.append(topic)
    return whole


async def serve_many(
    node: Node, request: Request, body: OffsetFetchRequest, groups: list[OffsetFetchRequestGroup]
) -> OffsetFetchResponse:
    asked: list[list[PendingReply]] = []
    with request.slices() as slices:
        for group in groups:
            asked.append([])
            for portion in portions(group):
                asked[-1].append(ask(node, request, body, portion))
                await slices.breathe()
    # Without a place: some may have to wait for a commit.
    answers = []
    others = Slices(node.runtime)
    for parts in asked:
        found = []
        for one in parts:
            found.append(await read(node, request, one))
            await others.breathe()
        answers.append(joined(found))
    return answered(request, body, answers)


async def fetch_allowed(
    node: Node, request: Request, body: OffsetFetchRequest, groups: list[OffsetFetchRequestGroup]
) -> OffsetFetchResponse:
    """Only groups, and in them topics, that the caller may describe."""
    answers = []
    others = Slices(node.runtime)
    for group in groups:
        await others.breathe()
        if not request.allowed(Operation.DESCRIBE, ResourceKind.GROUP, group.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            answers.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            continue
        denied: list[OffsetFetchRequestTopics] = []
        if group.topics is not None:
            may = [may_describe(node, request, topic.name, topic.topic_id) for topic in group.topics]
            denied = [topic for topic, is_allowed in zip(group.topics, may, strict=True) if not is_allowed]
            group.topics = [topic for topic, is_allowed in zip(group.topics, may, strict=True) if is_allowed]
        answer = joined([await read(node, request, ask(node, request, body, part)) for part in portions(group)])
        if not answer.error_code:
            answer.topics = [t for t in answer.topics if may_describe(node, request, t.name, t.topic_id)]
            answer.topics += [denial(topic) for topic in denied]
        answers.append(answer)
    return answered(request, body, answers)


def may_describe(node: Node, request: Request, name: str | None, topic_id: bytes) -> bool:
    if topic_id != ZERO_UUID:
        found = node.image.topic_by_id(topic_id)
        name = None if found is None else found.name
    return name is None or request.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, name)


def denial(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for index in topic.partition_indexes
        ],
    )


def single_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if body.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in body.topics
        ]
    return OffsetFetchRequestGroup(group_id=body.group_id, topics=topics)


def answered(request: Request, body: OffsetFetchRequest, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if request.version >= BATCHED_FROM:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    if group.error_code and request.version < ERROR_OF_ITS_OWN_FROM:
        raise KafkaError(ErrorCode(group.error_code))  # it has no other place than each partition
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=part.partition_index,
                        committed_offset=part.committed_offset,
                        committed_leader_epoch=part.committed_leader_epoch,
                        metadata=part.metadata,
                        error_code=part.error_code,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )

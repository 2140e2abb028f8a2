"""OffsetFetch (9): how far groups have come.

Served: v1–v10. v2 all topics of a group, v5 leader epochs (KIP-320), v6 flexible, v7 offsets of open transactions may
be waited for (KIP-447), v8 several groups at once (KIP-709), v9 members of the consumer protocol (KIP-848), v10 topic
ids.
Each group is asked for at its own coordinator; the answer leaves when all of what it tells is committed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import Asked
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

BATCHED_FROM = 8
ERROR_OF_ITS_OWN_FROM = 2
NO_OFFSET = -1
AT_ONCE_MAX = 20
"""Groups that are asked for without giving the loop back meanwhile."""
OFFSETS_AT_ONCE_MAX = 50
"""Offsets that are told without giving the loop back; each may have 4 KB of metadata."""


def serve(
    node: Node, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    groups = request.groups if context.version >= BATCHED_FROM else [single_group(request)]
    if len(groups) > AT_ONCE_MAX:
        return serve_many(node, context, request, groups)
    asked = [ask(node, context, request, group) for group in groups]
    if all(one.answer is not None for one in asked):
        answers = [one.answer for one in asked if isinstance(one.answer, OffsetFetchResponseGroup)]
        if sum(len(topic.partitions) for group in answers for topic in group.topics) <= OFFSETS_AT_ONCE_MAX:
            return answered(context, request, answers)
    return wait(node, context, request, asked)


def ask(
    node: Node, context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> Asked:
    call = partial(GroupShard.offset_fetch_group, require_stable=request.require_stable)
    return node.coordinators.ask(
        group.group_id, call, context, group, partial(refused, group.group_id), writes=False
    )


async def wait(
    node: Node, context: RequestContext, request: OffsetFetchRequest, asked: list[Asked]
) -> OffsetFetchResponse:
    answers = [await node.coordinators.settled(one, OffsetFetchResponseGroup) for one in asked]
    return answered(context, request, answers)


async def serve_many(
    node: Node, context: RequestContext, request: OffsetFetchRequest, groups: list[OffsetFetchRequestGroup]
) -> OffsetFetchResponse:
    asked = []
    with context.slices() as slices:
        for group in groups:
            asked.append(ask(node, context, request, group))
            await slices.breathe()
    # Without a place: some may have to wait for a commit.
    answers = []
    others = Slices(node.runtime)
    for one in asked:
        answers.append(await node.coordinators.settled(one, OffsetFetchResponseGroup))
        await others.breathe()
    return answered(context, request, answers)


def refused(group_id: str, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, error_code=code)


def single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def answered(
    context: RequestContext, request: OffsetFetchRequest, groups: list[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    if context.version >= BATCHED_FROM:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    if group.error_code and context.version < ERROR_OF_ITS_OWN_FROM:
        return OffsetFetchResponse(topics=[failed(topic, group.error_code) for topic in request.topics or []])
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


def failed(topic: OffsetFetchRequestTopic, error_code: int) -> OffsetFetchResponseTopic:
    """An error has no other place in version 1."""
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code
            )
            for index in topic.partition_indexes
        ],
    )

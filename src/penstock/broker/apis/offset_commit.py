"""OffsetCommit (8): commit the offsets of a group.

Served: v2–v10. v5 drops the retention time (KIP-211), v6 leader epochs (KIP-320), v7 static members (KIP-345), v8
flexible, v9 members of the consumer protocol (KIP-848), v10 topic ids (KIP-848). The answer leaves when the offsets are
committed.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.commits import TOPIC_IDS_FROM, PlainCommit
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def serve(
    node: Node, request: Request, body: OffsetCommitRequest | PlainCommit
) -> PendingReply | Awaitable[OffsetCommitResponse]:
    request.check(Operation.READ, ResourceKind.GROUP, body.group_id)
    if request.is_restricted:
        whole = body.request() if isinstance(body, PlainCommit) else body
        denied = [topic for topic in whole.topics if not may_read(node, request, topic)]
        if denied:
            return commit_allowed(node, request, whole, denied)
    if isinstance(body, PlainCommit):
        return node.coordinators.ask(body.group_id, GroupShard.offset_commit_plain, request, body, request.refused)
    return node.coordinators.ask(body.group_id, GroupShard.offset_commit, request, body, request.refused)


def may_read(node: Node, request: Request, topic: OffsetCommitRequestTopic) -> bool:
    name: str | None = topic.name
    if request.version >= TOPIC_IDS_FROM:
        found = node.image.topic_by_id(topic.topic_id)
        name = None if found is None else found.name
    return name is None or request.allowed(Operation.READ, ResourceKind.TOPIC, name)


async def commit_allowed(
    node: Node, request: Request, body: OffsetCommitRequest, denied: list[OffsetCommitRequestTopic]
) -> OffsetCommitResponse:
    """Commit the offsets of the topics that the caller may read, and refuse the others."""
    response = OffsetCommitResponse()
    body.topics = [topic for topic in body.topics if topic not in denied]
    request.body = body
    if body.topics:
        asked = node.coordinators.ask(body.group_id, GroupShard.offset_commit, request, body, request.refused)
        response = await node.coordinators.settled(asked, OffsetCommitResponse)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    response.topics += [
        OffsetCommitResponseTopic(
            topic_id=topic.topic_id,
            name=topic.name,
            partitions=[
                OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code)
                for entry in topic.partitions
            ],
        )
        for topic in denied
    ]
    return response

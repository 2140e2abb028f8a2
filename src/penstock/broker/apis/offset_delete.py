"""OffsetDelete (47): delete committed offsets of topics that no member of the group reads any more (KIP-496).

Served: v0.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def serve(node: Node, request: Request, body: OffsetDeleteRequest) -> PendingReply | Awaitable[OffsetDeleteResponse]:
    request.check(Operation.DELETE, ResourceKind.GROUP, body.group_id)
    body.topics, denied = request.split(Operation.READ, ResourceKind.TOPIC, body.topics, lambda topic: topic.name)
    if denied:
        return with_denied(node, request, body, denied)
    return node.coordinators.ask(body.group_id, GroupShard.offset_delete, request, body, request.refused)


async def with_denied(
    node: Node, request: Request, body: OffsetDeleteRequest, denied: list[OffsetDeleteRequestTopic]
) -> OffsetDeleteResponse:
    """Forget the offsets of the topics that the caller may read, and refuse the others."""
    response = OffsetDeleteResponse()
    if body.topics:
        asked = node.coordinators.ask(body.group_id, GroupShard.offset_delete, request, body, request.refused)
        response = await node.coordinators.settled(asked, OffsetDeleteResponse)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not response.error_code:
        response.topics += [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=entry.partition_index, error_code=code)
                    for entry in topic.partitions
                ],
            )
            for topic in denied
        ]
    return response

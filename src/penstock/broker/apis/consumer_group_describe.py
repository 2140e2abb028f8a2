"""ConsumerGroupDescribe (69): state, epochs, members and assignments of consumer groups (KIP-848).

Served: v0–v1. v1 tells members of the classic protocol from others. Each group is asked for at its own coordinator.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.net.access import ALL_GROUP_OPERATIONS
from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups.shard import GroupShard
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


async def serve(
    node: Node, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    response = ConsumerGroupDescribeResponse()
    coordinators = node.coordinators
    with context.slices() as slices:
        for group_id in dict.fromkeys(request.group_ids):
            asked = coordinators.ask(
                group_id,
                GroupShard.consumer_group_describe_group,
                context,
                group_id,
                partial(refused, group_id),
                writes=False,
            )
            described = await coordinators.settled(asked, DescribedGroup)
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = ALL_GROUP_OPERATIONS
            response.groups.append(described)
            await slices.breathe()
    return response


def refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code)

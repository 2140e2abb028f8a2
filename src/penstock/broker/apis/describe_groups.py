"""DescribeGroups (15): state, protocol and members of classic groups.

Served: v0–v6. v3 authorised operations (KIP-430), v4 static members (KIP-345), v5 flexible, v6 GROUP_ID_NOT_FOUND and a
message for groups that are not there or not classic (KIP-1043). Each group is asked for at its own coordinator.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.net.access import ALL_GROUP_OPERATIONS
from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups.shard import GroupShard
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


async def serve(node: Node, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse()
    coordinators = node.coordinators
    with context.slices() as slices:
        # Each once, however often it was named: else a small request makes an answer of any size.
        for group_id in dict.fromkeys(request.groups):
            asked = coordinators.ask(
                group_id, GroupShard.describe_group, context, group_id, partial(refused, group_id), writes=False
            )
            described = await coordinators.settled(asked, DescribedGroup)
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = ALL_GROUP_OPERATIONS
            response.groups.append(described)
            await slices.breathe()
    return response


def refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code)

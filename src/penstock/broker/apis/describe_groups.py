"""DescribeGroups (15): state, protocol and members of classic groups.

Served: v0–v6. v3 authorised operations (KIP-430), v4 static members (KIP-345), v5 flexible, v6 GROUP_ID_NOT_FOUND and a
message for groups that are not there or not classic (KIP-1043). Each group is asked for at its own coordinator.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.broker.refusals import element
from penstock.coordinators.groups.shard import GroupShard
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


async def serve(node: Node, request: Request, body: DescribeGroupsRequest) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse()
    coordinators = node.coordinators
    with request.slices() as slices:
        # Each once, however often it was named: else a small request makes an answer of any size.
        for group_id in dict.fromkeys(body.groups):
            refused = element(DescribedGroup, group_id=group_id)
            if not request.allowed(Operation.DESCRIBE, ResourceKind.GROUP, group_id):
                response.groups.append(refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            asked = coordinators.ask(group_id, GroupShard.describe_group, request, group_id, refused, writes=False)
            described = await coordinators.settled(asked, DescribedGroup)
            if body.include_authorized_operations and not described.error_code:
                described.authorized_operations = request.operations(ResourceKind.GROUP, group_id)
            response.groups.append(described)
            await slices.breathe()
    return response

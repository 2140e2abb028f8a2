"""ConsumerGroupDescribe (69): state, epochs, members and assignments of consumer groups (KIP-848).

Served: v0–v1. v1 tells members of the classic protocol from others. Each group is asked for at its own coordinator.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.broker.refusals import element
from penstock.coordinators.groups.shard import GroupShard
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


async def serve(node: Node, request: Request, body: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    response = ConsumerGroupDescribeResponse()
    coordinators = node.coordinators
    with request.slices() as slices:
        # Each once, however often it was named: else a small request makes an answer of any size.
        for group_id in dict.fromkeys(body.group_ids):
            refused = element(DescribedGroup, group_id=group_id)
            if not request.allowed(Operation.DESCRIBE, ResourceKind.GROUP, group_id):
                response.groups.append(refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            call = GroupShard.consumer_group_describe_group
            asked = coordinators.ask(group_id, call, request, group_id, refused, writes=False)
            described = await coordinators.settled(asked, DescribedGroup)
            if body.include_authorized_operations and not described.error_code:
                described.authorized_operations = request.operations(ResourceKind.GROUP, group_id)
            if request.is_restricted and not described.error_code:
                hide_topics(request, described)
            response.groups.append(described)
            await slices.breathe()
    return response


def hide_topics(request: Request, described: DescribedGroup) -> None:
    """A group that reads topics which the caller may not describe is not described, as in Kafka."""
    topics = {
        topic.topic_name: None
        for member in described.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if not all(request.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, name) for name in topics):
        described.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        described.error_message = "The group reads topics that the client is not authorized to describe."
        described.members = []

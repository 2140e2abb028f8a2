"""LeaveGroup (13): members leave a classic group, and it rebalances without waiting for their sessions to end.

Served: v0–v5. v3 several members at once, by member or instance id (KIP-345), v4 flexible, v5 a reason (KIP-800).
"""

from __future__ import annotations

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import Asked
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


def serve(node: Node, context: RequestContext, request: LeaveGroupRequest) -> Asked:
    return node.coordinators.ask(request.group_id, GroupShard.leave_group, context, request, refused)


def refused(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)

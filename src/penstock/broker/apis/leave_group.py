"""LeaveGroup (13): members leave a classic group, and it rebalances without waiting for their sessions to end.

Served: v0–v5. v3 several members at once, by member or instance id (KIP-345), v4 flexible, v5 a reason (KIP-800).
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.messages.leave_group import LeaveGroupRequest


def serve(node: Node, request: Request, body: LeaveGroupRequest) -> PendingReply:
    request.check(Operation.READ, ResourceKind.GROUP, body.group_id)
    return node.coordinators.ask(body.group_id, GroupShard.leave_group, request, body, request.refused)

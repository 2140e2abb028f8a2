"""Heartbeat (12): a member of a classic group is alive, and hears whether the group rebalances.

Served: v0–v4. v3 static members (KIP-345), v4 flexible.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def serve(node: Node, request: Request, body: HeartbeatRequest) -> PendingReply | HeartbeatResponse:
    request.check(Operation.READ, ResourceKind.GROUP, body.group_id)
    asked = node.coordinators.ask(body.group_id, GroupShard.heartbeat, request, body, request.refused, writes=False)
    answer = asked.answer
    # As Kafka does: clients that know only this API would take a load in progress for an error.
    if isinstance(answer, HeartbeatResponse) and answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()
    return asked

"""Heartbeat (12): a member of a classic group is alive, and hears whether the group rebalances.

Served: v0–v4. v3 static members (KIP-345), v4 flexible.
"""

from __future__ import annotations

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import Asked
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def serve(node: Node, context: RequestContext, request: HeartbeatRequest) -> Asked | HeartbeatResponse:
    asked = node.coordinators.ask(
        request.group_id, GroupShard.heartbeat, context, request, refused, writes=False
    )
    answer = asked.answer
    # As Kafka does: clients that know only this API would take a load in progress for an error.
    if isinstance(answer, HeartbeatResponse) and answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()
    return asked


def refused(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)

"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, reports, learns its assignment and leaves (KIP-848).

Served: v0–v1. v1 subscribes by a regular expression that the coordinator evaluates, and lets the client choose its
member id (KIP-1082).
"""

from __future__ import annotations

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import Asked
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CONSUMER = "consumer"


def serve(
    node: Node, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Asked | ConsumerGroupHeartbeatResponse:
    if CONSUMER not in node.config.group_coordinator_rebalance_protocols:
        return refused(ErrorCode.UNSUPPORTED_VERSION)
    # Most heartbeats change nothing, and keep a member alive while nothing can be written.
    return node.coordinators.ask(
        request.group_id, GroupShard.consumer_group_heartbeat, context, request, refused, writes=False
    )


def refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)

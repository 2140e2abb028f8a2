"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, reports, learns its assignment and leaves (KIP-848).

Served: v0–v1. v1 subscribes by a regular expression that the coordinator evaluates, and lets the client choose its
member id (KIP-1082).
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CONSUMER = "consumer"


def serve(node: Node, request: Request, body: ConsumerGroupHeartbeatRequest) -> PendingReply:
    if CONSUMER not in node.config.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    request.check(Operation.READ, ResourceKind.GROUP, body.group_id)
    if request.is_restricted:
        for topic in body.subscribed_topic_names or ():
            request.check(Operation.DESCRIBE, ResourceKind.TOPIC, topic)
    # Most heartbeats change nothing, and keep a member alive while nothing can be written.
    return node.coordinators.ask(
        body.group_id, GroupShard.consumer_group_heartbeat, request, body, request.refused, writes=False
    )

"""DescribeCluster (60): the cluster's id, controller and brokers.

Served: v0–v2. v1 lets the caller ask for controllers instead of brokers (KIP-919), v2 for fenced brokers (KIP-1073).
"""

from __future__ import annotations

from penstock.broker.net.access import ALL_CLUSTER_OPERATIONS, NOT_ASKED
from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


def serve(node: Node, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if context.version >= 1 and request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this listener belongs to a broker: ask for brokers (endpoint type 1)",
            cluster_id=node.cluster_id,
        )
    brokers = []
    for broker in node.image.brokers.values():
        if broker.fenced and not request.include_fenced_brokers:
            continue
        address = node.address_of(broker, context.connection.entrance)
        if address is None:
            continue
        host, port = address
        brokers.append(
            DescribeClusterBroker(
                broker_id=broker.id, host=host, port=port, rack=broker.rack, is_fenced=broker.fenced
            )
        )
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        brokers=brokers,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )

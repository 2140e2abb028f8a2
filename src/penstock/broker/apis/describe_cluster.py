"""DescribeCluster (60): the cluster's id, controller and brokers.

Served: v0–v2. v1 lets the caller ask for controllers instead of brokers (KIP-919), v2 for fenced brokers (KIP-1073).
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.wire.acls import ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


def serve(node: Node, request: Request, body: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.version >= 1 and body.endpoint_type != BROKERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this listener belongs to a broker: ask for brokers (endpoint type 1)"
        )
    brokers = []
    for broker in node.image.brokers.values():
        if broker.fenced and not body.include_fenced_brokers:
            continue
        address = node.address_of(broker, request.listener_info)
        if address is None:
            continue
        host, port = address
        brokers.append(
            DescribeClusterBroker(broker_id=broker.id, host=host, port=port, rack=broker.rack, is_fenced=broker.fenced)
        )
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        brokers=brokers,
        cluster_authorized_operations=request.operations(
            ResourceKind.CLUSTER, asked=body.include_cluster_authorized_operations
        ),
    )

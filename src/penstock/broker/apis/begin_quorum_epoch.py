"""BeginQuorumEpoch (53): a new leader of the metadata quorum makes itself known to voters that do not fetch yet.

Served between controllers: v1, which says where the leader listens (KIP-853).
"""

from __future__ import annotations

from penstock.broker import quorum_wire
from penstock.broker.apis.quorum_requests import answered
from penstock.broker.controlling import Caller
from penstock.broker.node import ControllerNode
from penstock.wire.codec import Message
from penstock.wire.errors import KafkaError
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse


async def serve(node: ControllerNode, caller: Caller, request: BeginQuorumEpochRequest) -> Message:
    try:
        quorum_wire.check_cluster(request.cluster_id, node.cluster_id)
        event = quorum_wire.begin_request(request, node.node_id, 0)
        for endpoint in request.leader_endpoints[:1]:
            node.quorum.learn_endpoint(event.source, (endpoint.host, endpoint.port))
        return await answered(node, lambda number: quorum_wire.begin_request(request, node.node_id, number))
    except KafkaError as error:
        return BeginQuorumEpochResponse(error_code=error.code)

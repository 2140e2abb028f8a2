"""EndQuorumEpoch (54): a leader that gives up leadership tells the voters, and whom it would like to follow it.

Served between controllers: v1, which names successors by node and directory (KIP-853).
"""

from __future__ import annotations

from penstock.broker import quorum_wire
from penstock.broker.apis.quorum_requests import answered
from penstock.broker.controlling import Caller
from penstock.broker.node import ControllerNode
from penstock.wire.codec import Message
from penstock.wire.errors import KafkaError
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


async def serve(node: ControllerNode, caller: Caller, request: EndQuorumEpochRequest) -> Message:
    try:
        quorum_wire.check_cluster(request.cluster_id, node.cluster_id)
        return await answered(node, lambda number: quorum_wire.end_request(request, node.node_id, number))
    except KafkaError as error:
        return EndQuorumEpochResponse(error_code=error.code)

"""Vote (52): a replica of the metadata quorum asks for a vote, or whether it would get one.

Served between controllers: v1–v2. v1 names replicas by node and directory (KIP-853), v2 has pre-votes (KIP-996). The
answer leaves when what it promises is on disk.
"""

from __future__ import annotations

from penstock.broker import quorum_wire
from penstock.broker.apis.quorum_requests import answered
from penstock.broker.controlling import Caller
from penstock.broker.node import ControllerNode
from penstock.wire.codec import Message
from penstock.wire.errors import KafkaError
from penstock.wire.messages.vote import VoteRequest, VoteResponse


async def serve(node: ControllerNode, caller: Caller, request: VoteRequest) -> Message:
    try:
        quorum_wire.check_cluster(request.cluster_id, node.cluster_id)
        return await answered(node, lambda number: quorum_wire.vote_request(request, node.node_id, number))
    except KafkaError as error:
        return VoteResponse(error_code=error.code)

"""Vote (52): a replica of the metadata quorum asks for a vote, or whether it would get one.

Served between controllers: v1–v2. v1 names replicas by node and directory (KIP-853), v2 has pre-votes (KIP-996). The
answer leaves when what it promises is on disk.
"""

from __future__ import annotations

from penstock.broker.apis.quorum_requests import answered
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.wire.codec import Message
from penstock.wire.messages.vote import VoteRequest, VoteResponse


async def serve(node: ControllerNode, caller: Caller, request: VoteRequest) -> Message:
    return await answered(node, caller, request, VoteResponse)

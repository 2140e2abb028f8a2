"""EndQuorumEpoch (54): a leader that gives up leadership tells the voters, and whom it would like to follow it.

Served between controllers: v1, which names successors by node and directory (KIP-853).
"""

from __future__ import annotations

from penstock.broker.apis.quorum_requests import answered
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.wire.codec import Message
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


async def serve(node: ControllerNode, caller: Caller, request: EndQuorumEpochRequest) -> Message:
    return await answered(node, caller, request, EndQuorumEpochResponse)

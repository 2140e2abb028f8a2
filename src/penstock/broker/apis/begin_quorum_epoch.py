"""BeginQuorumEpoch (53): a new leader of the metadata quorum makes itself known to voters that do not fetch yet.

Served between controllers: v1, which says where the leader listens (KIP-853).
"""

from __future__ import annotations

from penstock.broker.apis.quorum_requests import answered
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.wire.codec import Message
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse


async def serve(node: ControllerNode, caller: Caller, request: BeginQuorumEpochRequest) -> Message:
    return await answered(node, caller, request, BeginQuorumEpochResponse)

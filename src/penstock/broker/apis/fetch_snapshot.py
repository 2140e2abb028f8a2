"""FetchSnapshot (59): a snapshot of the metadata, piece by piece, for a replica that is too far behind for the log.

Served on the listeners of controllers: v1, which names the replica's directory (KIP-853).
"""

from __future__ import annotations

from penstock.broker.apis.quorum_requests import answered
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.wire.codec import Message
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


async def serve(node: ControllerNode, caller: Caller, request: FetchSnapshotRequest) -> Message:
    return await answered(node, caller, request, FetchSnapshotResponse)

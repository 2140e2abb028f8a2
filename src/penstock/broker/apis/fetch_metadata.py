"""Fetch (1) on the listeners of controllers: the metadata log, for voters, observers and brokers.

Served: v17–v18. v17 names the replica's directory (KIP-853), v18 what it knows to be committed, so that a leader that
knows more answers at once (KIP-1166). The fetch offset acknowledges everything before it. Where the log no longer has
what is missing the answer names a snapshot, and where it differs, the place to cut to.
"""

from __future__ import annotations

from penstock.broker.apis.quorum_requests import answered
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.wire.codec import Message
from penstock.wire.messages.fetch import FetchRequest, FetchResponse


async def serve(node: ControllerNode, caller: Caller, request: FetchRequest) -> Message:
    return await answered(node, caller, request, FetchResponse)

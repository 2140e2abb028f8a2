"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Served: v0–v6. v1 adds the key type (KIP-98), v3 is flexible, v4 asks for many keys at once (KIP-699), v5 KIP-890,
v6 share groups (KIP-932). A single node coordinates everything it serves. What it does not serve yet (transactions,
share groups) is refused at once, so that a client fails with a reason instead of retrying for ever.
"""

from __future__ import annotations

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
NOT_SERVED = {
    TRANSACTION: "transactions are not served by this version of Penstock",
    SHARE: "share groups are not served by this version of Penstock",
}


def serve(node: Node, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if context.version >= 4 else [request.key]
    reason = None
    if request.key_type != GROUP:
        reason = NOT_SERVED.get(request.key_type, f"there is no coordinator of type {request.key_type}")
    code = ErrorCode.NONE if reason is None else ErrorCode.INVALID_REQUEST
    node_id, host, port = (-1, "", -1) if reason else (node.node_id, *node.advertised_address)
    if context.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=reason)
                for key in keys
            ]
        )
    return FindCoordinatorResponse(error_code=code, error_message=reason, node_id=node_id, host=host, port=port)

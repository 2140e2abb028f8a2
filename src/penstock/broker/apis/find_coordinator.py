"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Served: v0–v6. v1 adds the key type (KIP-98), v3 is flexible, v4 asks for many keys at once (KIP-699), v5 KIP-890,
v6 share groups (KIP-932). The first one who asks makes the topic in which groups are kept, and waits for it. What is
not served yet (transactions, share groups) is refused as Kafka refuses a type of coordinator that it does not have, so
that a client fails with a reason instead of retrying for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.net.request import DENIED, Request
from penstock.broker.node import Node
from penstock.metadata import CONSUMER_OFFSETS
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
KINDS = {
    GROUP: ResourceKind.GROUP,
    TRANSACTION: ResourceKind.TRANSACTIONAL_ID,
    SHARE: ResourceKind.CLUSTER,
}
NOT_SERVED = {
    TRANSACTION: "transactions are not served by this version of Penstock",
    SHARE: "share groups are not served by this version of Penstock",
}


def serve(
    node: Node, request: Request, body: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    keys = body.coordinator_keys if request.version >= 4 else [body.key]
    if request.is_restricted:
        keys, denied = split(request, body.key_type, keys)
        if denied:
            return with_denied(node, request, body, keys, denied)
    return find(node, request, body, keys)


def find(
    node: Node, request: Request, body: FindCoordinatorRequest, keys: list[str]
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    if body.key_type != GROUP:
        reason = NOT_SERVED.get(body.key_type, f"there is no coordinator of type {body.key_type}")
        # librdkafka does not tell the reason to its user, and asks again until it is told to stop.
        node.events.limited("coordinator refused", peer=request.peer, reason=reason)
        return answered(request, [failed(key, ErrorCode.INVALID_REQUEST, reason) for key in keys])
    if node.image.topic(CONSUMER_OFFSETS) is None:
        return create_and_find(node, request, keys)
    return answered(request, [found(node, request, key) for key in keys])


async def create_and_find(node: Node, request: Request, keys: list[str]) -> FindCoordinatorResponse:
    try:
        await node.coordinators.ensure_topic()
    except KafkaError as error:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message
        return answered(request, [failed(key, code, message) for key in keys])
    return answered(request, [found(node, request, key) for key in keys])


def split(request: Request, key_type: int, keys: list[str]) -> tuple[list[str], list[str]]:
    """(keys that the caller may look for, the others)"""
    if key_type == SHARE:
        return (keys, []) if request.allowed_on_cluster(Operation.CLUSTER_ACTION) else ([], keys)
    return request.split(Operation.DESCRIBE, KINDS.get(key_type, ResourceKind.GROUP), keys, lambda key: key)


async def with_denied(
    node: Node, request: Request, body: FindCoordinatorRequest, keys: list[str], denied: list[str]
) -> FindCoordinatorResponse:
    code = DENIED[KINDS.get(body.key_type, ResourceKind.GROUP)]
    refused = [failed(key, code, code.message) for key in denied]
    if not keys:
        return answered(request, refused)
    response = find(node, request, body, keys)
    response = response if isinstance(response, FindCoordinatorResponse) else await response
    response.coordinators += refused
    return response


def found(node: Node, request: Request, key: str) -> Coordinator:
    broker = node.image.brokers.get(node.coordinators.coordinator_of(key))
    address = None if broker is None else node.address_of(broker, request.entrance)
    if broker is None or broker.fenced or address is None:
        return failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    host, port = address
    return Coordinator(key=key, node_id=broker.id, host=host, port=port)


def failed(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def answered(request: Request, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if request.version >= 4:
        return FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # What Kafka says here where nothing is wrong.
        error_message=only.error_message or "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )

"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Served: v0–v6. v1 adds the key type (KIP-98), v3 is flexible, v4 asks for many keys at once (KIP-699), v5 KIP-890,
v6 share groups (KIP-932). The first one who asks makes the topic in which groups are kept, and waits for it. What is
not served yet (transactions, share groups) is refused as Kafka refuses a type of coordinator that it does not have, so
that a client fails with a reason instead of retrying for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.metadata import CONSUMER_OFFSETS
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
NOT_SERVED = {
    TRANSACTION: "transactions are not served by this version of Penstock",
    SHARE: "share groups are not served by this version of Penstock",
}


def serve(
    node: Node, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    keys = request.coordinator_keys if context.version >= 4 else [request.key]
    if request.key_type != GROUP:
        reason = NOT_SERVED.get(request.key_type, f"there is no coordinator of type {request.key_type}")
        # librdkafka does not tell the reason to its user, and asks again until it is told to stop.
        node.events.limited("coordinator refused", peer=context.connection.peer, reason=reason)
        return answered(context, [failed(key, ErrorCode.INVALID_REQUEST, reason) for key in keys])
    if node.image.topic(CONSUMER_OFFSETS) is None:
        return create_and_find(node, context, keys)
    return answered(context, [found(node, context, key) for key in keys])


async def create_and_find(node: Node, context: RequestContext, keys: list[str]) -> FindCoordinatorResponse:
    try:
        await node.coordinators.ensure_topic()
    except KafkaError as error:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message
        return answered(context, [failed(key, code, message) for key in keys])
    return answered(context, [found(node, context, key) for key in keys])


def found(node: Node, context: RequestContext, key: str) -> Coordinator:
    broker = node.image.brokers.get(node.coordinators.coordinator_of(key))
    address = None if broker is None else node.address_of(broker, context.connection.entrance)
    if broker is None or broker.fenced or address is None:
        return failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    host, port = address
    return Coordinator(key=key, node_id=broker.id, host=host, port=port)


def failed(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def answered(context: RequestContext, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= 4:
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

"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Served: v0–v6. v1 adds the key type (KIP-98), v3 is flexible, v4 asks for many keys at once (KIP-699), v5 KIP-890,
v6 share groups (KIP-932). Each key type belongs to a declared coordinator (`penstock.broker.coordination`). The first
request creates the topic in which a coordinator keeps its state, and waits for it. Coordinators that are not supported
yet (share groups) are refused as in Kafka, so that a client fails with a reason instead of retrying for
ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from penstock.broker.coordination import Coordinator as Coordination
from penstock.broker.coordination import CoordinatorType
from penstock.broker.net.request import DENIED, Request
from penstock.broker.net.slices import at_once, in_slices
from penstock.broker.node import Node
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

AT_ONCE_MAX = 200
"""Coordinators that are looked up without giving the loop back meanwhile."""
RESOURCES: dict[int, ResourceKind] = {
    CoordinatorType.GROUP: ResourceKind.GROUP,
    CoordinatorType.TRANSACTION: ResourceKind.TRANSACTIONAL_ID,
    CoordinatorType.SHARE: ResourceKind.CLUSTER,
}
NOT_SERVED: dict[int, str] = {
    CoordinatorType.SHARE: "share groups are not served by this version of Penstock",
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
    coordination = node.coordination.of_type(body.key_type)
    is_missing = coordination is not None and node.image.topic(coordination.topic) is None
    if len(keys) > AT_ONCE_MAX or is_missing:
        return create_and_find(node, request, coordination, body.key_type, keys)
    return answered(request, at_once(look_up(node, request, coordination, body.key_type, keys)))


async def create_and_find(
    node: Node, request: Request, coordination: Coordination[Any] | None, key_type: int, keys: list[str]
) -> FindCoordinatorResponse:
    refusal = None
    try:
        if coordination is not None:
            await coordination.ensure_topic()
    except KafkaError as error:
        refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    work = look_up(node, request, coordination, key_type, keys, refusal)
    return answered(request, await in_slices(request.slices(), work))


def look_up(
    node: Node,
    request: Request,
    coordination: Coordination[Any] | None,
    key_type: int,
    keys: list[str],
    refusal: KafkaError | None = None,
) -> Generator[None, None, list[Coordinator]]:
    if coordination is None:
        reason = NOT_SERVED.get(key_type, f"there is no coordinator of type {key_type}")
        # librdkafka does not tell the reason to its user, and asks again until it is told to stop.
        node.events.limited("coordinator refused", peer=request.peer, reason=reason)
        refusal = KafkaError(ErrorCode.INVALID_REQUEST, reason)
    coordinators = []
    for key in keys:
        yield
        if coordination is None or refusal is not None:
            assert refusal is not None
            coordinators.append(failed(key, refusal.code, refusal.message))
        else:
            coordinators.append(found(node, request, coordination, key))
    return coordinators


def split(request: Request, key_type: int, keys: list[str]) -> tuple[list[str], list[str]]:
    """(keys that the caller may look for, the others)"""
    if key_type == CoordinatorType.SHARE:
        return (keys, []) if request.allowed_on_cluster(Operation.CLUSTER_ACTION) else ([], keys)
    return request.split(Operation.DESCRIBE, RESOURCES.get(key_type, ResourceKind.GROUP), keys, lambda key: key)


async def with_denied(
    node: Node, request: Request, body: FindCoordinatorRequest, keys: list[str], denied: list[str]
) -> FindCoordinatorResponse:
    code = DENIED[RESOURCES.get(body.key_type, ResourceKind.GROUP)]
    refused = [failed(key, code, code.message) for key in denied]
    if not keys:
        return answered(request, refused)
    response = find(node, request, body, keys)
    response = response if isinstance(response, FindCoordinatorResponse) else await response
    response.coordinators += refused
    return response


def found(node: Node, request: Request, coordination: Coordination[Any], key: str) -> Coordinator:
    broker = node.image.brokers.get(coordination.broker_of(key))
    address = None if broker is None else node.address_of(broker, request.listener_info)
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
        # Kafka sends this text when there is no error.
        error_message=only.error_message or "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )

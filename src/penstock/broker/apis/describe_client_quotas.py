"""DescribeClientQuotas (48): the quotas that are set, by user, client id and address (KIP-546).

Served: v0–v1 (v1 is flexible). Each component of the filter names a type of entity, and a name, the default, or any
name. A strict filter finds only entities that have no other parts. The broker's own image is described.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from penstock.broker.net.request import Request
from penstock.broker.net.slices import in_slices
from penstock.broker.node import Node
from penstock.metadata.quotas import ENTITY_TYPES, IP, ClientQuota
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
NAMED: Final = {DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}


async def serve(node: Node, request: Request, body: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    check_filter(body.components)
    return await in_slices(request.slices(), described(node, body))


def described(node: Node, body: DescribeClientQuotasRequest) -> Generator[None, None, DescribeClientQuotasResponse]:
    found: list[EntryData] = []
    for quota in node.image.quotas.values():
        yield
        if matches(quota, body.components, strict=body.strict):
            found.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in quota.entity],
                    values=[ValueData(key=key, value=value) for key, value in quota.values.items()],
                )
            )
    return DescribeClientQuotasResponse(entries=found)


def matches(quota: ClientQuota, components: list[ComponentData], *, strict: bool) -> bool:
    parts = dict(quota.entity)
    if strict and len(parts) != len(components):
        return False
    for component in components:
        if component.entity_type not in parts:
            return False
        name = parts[component.entity_type]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True


def check_filter(components: list[ComponentData]) -> None:
    """Kafka's rules: a filter that makes no sense is told apart from one that finds nothing."""
    seen: list[str] = []
    for component in components:
        kind = component.entity_type
        if not kind:
            raise invalid("Invalid empty entity type.")
        if kind in seen:
            raise invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise invalid(f"Unknown match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            raise invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if component.match_type in NAMED and component.match is not None:
            raise invalid(f"Request specified {NAMED[component.match_type]}, but also specified a match string.")
        seen.append(kind)
    if IP in seen and len(seen) > 1:
        raise invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )


def invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)

"""ListConfigResources (74): which resources have settings of their own.

Served: v0–v1. v0 lists client metrics only (KIP-714), v1 any type that is asked for (KIP-1142). Of those, this broker
has topics, brokers, and the groups and subscriptions to client metrics that have settings.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker.net.request import Request
from penstock.broker.net.slices import in_slices
from penstock.broker.node import Node
from penstock.metadata import ResourceType
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

LISTED = tuple(ResourceType)


async def serve(node: Node, request: Request, body: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    return await in_slices(request.slices(), listed(node, request, body))


def listed(
    node: Node, request: Request, body: ListConfigResourcesRequest
) -> Generator[None, None, ListConfigResourcesResponse]:
    wanted = [ResourceType.CLIENT_METRICS] if request.version == 0 else body.resource_types or list(LISTED)
    if any(kind not in LISTED for kind in wanted):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    found: list[ConfigResource] = []
    if ResourceType.TOPIC in wanted:
        for name in node.image.topic_names():
            yield
            found.append(ConfigResource(resource_name=name, resource_type=ResourceType.TOPIC))
    for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if kind in wanted:
            found += [
                ConfigResource(resource_name=str(broker.id), resource_type=kind) for broker in node.live_brokers()
            ]
    stored = [kind for kind in (ResourceType.CLIENT_METRICS, ResourceType.GROUP) if kind in wanted]
    if stored:
        for resource_type, name in node.image.config_resources():
            yield
            if resource_type in stored:
                found.append(ConfigResource(resource_name=name, resource_type=resource_type))
    return ListConfigResourcesResponse(config_resources=found)

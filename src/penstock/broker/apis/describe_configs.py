"""DescribeConfigs (32): the value of every property of topics, brokers and groups, its origin and its meaning.

Brokers have no loggers whose level could change, and client metrics have no settings yet: both are answered without
any property.

Served: v1–v4. v1 adds sources and synonyms (KIP-226), v3 types and documentation (KIP-569), v4 is flexible.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.net.slices import Slices
from penstock.broker.node import ControllerNode, Node
from penstock.broker.service import RequestContext
from penstock.config import DescribedConfig, describe_broker, describe_broker_defaults, describe_group, describe_topic
from penstock.metadata import ResourceType
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


async def serve(node: Node, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    with context.slices() as slices:
        return await describe(node, request, slices)


async def serve_on_controller(
    node: ControllerNode, caller: object, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return await describe(node, request, Slices(node.runtime))


async def describe(
    node: ControllerNode, request: DescribeConfigsRequest, slices: Slices
) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    # A topic takes a fifth of a millisecond, and tools ask for thousands.
    for resource in each_once(request.resources):
        await slices.breathe()
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            found = look_up(node, resource)
            if resource.configuration_keys is not None:
                wanted = frozenset(resource.configuration_keys)
                found = [config for config in found if config.name in wanted]
            result.configs = [answered(config, request) for config in found]
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        response.results.append(result)
    return response


def each_once(resources: list[DescribeConfigsResource]) -> Iterable[DescribeConfigsResource]:
    """Resources that were named often, once, with all the keys: else a small request makes an answer of any size."""
    found: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in resources:
        known = found.setdefault((resource.resource_type, resource.resource_name), resource)
        if known is not resource and known.configuration_keys is not None:
            if resource.configuration_keys is None:
                known.configuration_keys = None
            else:
                known.configuration_keys += resource.configuration_keys
    return found.values()


def look_up(node: ControllerNode, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        if node.image.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(node.image.config(ResourceType.TOPIC, name), node.config)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return describe_broker_defaults(node.config)
        check_is_own(node, name)
        return describe_broker(node.config)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        # One log without levels (`penstock.runtime.eventlog`): there is no logger whose level could be told.
        check_is_own(node, name)
        return []
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return []
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(node.image.config(ResourceType.GROUP, name), node.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def check_is_own(node: ControllerNode, name: str) -> None:
    """Only a broker itself knows what it runs with."""
    if name != str(node.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node.node_id} but received {name}"
        )


def answered(config: DescribedConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=config.name,
        value=None if config.sensitive else config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        config_type=config.kind,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(
                name=synonym.name, value=None if config.sensitive else synonym.value, source=synonym.source
            )
            for synonym in config.synonyms
        ]
    result.documentation = config.documentation if request.include_documentation else None
    return result

"""DescribeConfigs (32): the value of every property of topics, brokers, loggers and groups, its origin and its meaning.

Loggers have a level each (`penstock.broker.observability.loggers`). Client metrics have no settings yet and are
answered without any property.

Served: v1–v4. v1 adds sources and synonyms (KIP-226), v3 types and documentation (KIP-569), v4 is flexible.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import ControllerNode
from penstock.config import (
    ConfigSource,
    DescribedConfig,
    Kind,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from penstock.metadata import ResourceType
from penstock.wire.acls import Operation
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


async def serve(node: ControllerNode, request: Request, body: DescribeConfigsRequest) -> DescribeConfigsResponse:
    with request.slices() as slices:
        return await describe(node, request, body, slices)


async def describe(
    node: ControllerNode, request: Request, body: DescribeConfigsRequest, slices: Slices
) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    # A topic takes a fifth of a millisecond, and tools ask for thousands.
    for resource in each_once(body.resources):
        await slices.breathe()
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            request.check_config(Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            found = look_up(node, resource)
            if resource.configuration_keys is not None:
                wanted = frozenset(resource.configuration_keys)
                found = [config for config in found if config.name in wanted]
            result.configs = [answered(config, body) for config in found]
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
        node.check_is_own(name)
        return describe_broker(node.config)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        node.check_is_own(name)
        source, text = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, Kind.STRING
        return [
            DescribedConfig(logger, level, source, False, False, (), text, "")
            for logger, level in node.loggers.levels().items()
        ]
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe_client_metrics(node.image.config(ResourceType.CLIENT_METRICS, name))
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(node.image.config(ResourceType.GROUP, name), node.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def answered(config: DescribedConfig, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=config.name,
        value=None if config.sensitive else config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        config_type=config.kind,
    )
    if body.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(
                name=synonym.name, value=None if config.sensitive else synonym.value, source=synonym.source
            )
            for synonym in config.synonyms
        ]
    result.documentation = config.documentation if body.include_documentation else None
    return result

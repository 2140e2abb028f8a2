"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings (KIP-339).

Served: v0–v1 (v1 is flexible). Each resource changes all at once or not at all. The answer leaves when the change is
in force. The levels of a broker's loggers (KIP-412) change at that broker, everything else at the active controller.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode, Node
from penstock.config import Alteration
from penstock.metadata import ConfigAlteration, ResourceType
from penstock.wire.acls import Operation
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def serve(node: Node, request: Request, body: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Serve the request on a broker: change its loggers here, and forward the rest to the controller."""
    loggers = [resource for resource in body.resources if resource.resource_type == ResourceType.BROKER_LOGGER]
    body.resources = [resource for resource in body.resources if resource not in loggers]
    response = IncrementalAlterConfigsResponse()
    if body.resources:
        response = await node.administration.call(request)
    for resource in loggers:
        code, message = ErrorCode.NONE, None
        try:
            request.check_config(Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
            node.check_is_own(resource.resource_name)
            node.loggers.alter(changes_of(resource), validate_only=body.validate_only)
        except KafkaError as error:
            code, message = error.code, error.message
        response.responses.append(answered(resource.resource_type, resource.resource_name, code, message))
    return response


async def decide(
    node: ControllerNode, request: Request, body: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    wanted: list[ConfigAlteration] = []
    responses: list[AlterConfigsResourceResponse] = []
    for resource in body.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            request.check_config(Operation.ALTER_CONFIGS, kind, name)
            wanted.append(ConfigAlteration(kind, name, changes_of(resource)))
        except KafkaError as error:
            responses.append(answered(kind, name, error.code, error.message))
    results = await node.quorum.submit(
        lambda controller: controller.decide_incremental_alter_configs(wanted, validate_only=body.validate_only)
    )
    responses += [
        answered(result.resource_type, result.name, result.outcome.error, result.outcome.message) for result in results
    ]
    return IncrementalAlterConfigsResponse(responses=responses)


def changes_of(resource: AlterConfigsResource) -> tuple[Alteration, ...]:
    return tuple(Alteration(config.name, config.config_operation, config.value) for config in resource.configs)


def answered(kind: int, name: str, code: ErrorCode, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=kind, resource_name=name)

"""AlterConfigs (33): replace all settings of a resource; what is not named goes back to its default.

Served: v0–v2 (v2 is flexible). Superseded by IncrementalAlterConfigs, and kept for older tools.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import ConfigReplacement
from penstock.wire.acls import Operation
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def decide(node: ControllerNode, request: Request, body: AlterConfigsRequest) -> AlterConfigsResponse:
    wanted: list[ConfigReplacement] = []
    responses: list[AlterConfigsResourceResponse] = []
    for resource in body.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            request.check_config(Operation.ALTER_CONFIGS, kind, name)
            changes = tuple((config.name, config.value) for config in resource.configs)
            wanted.append(ConfigReplacement(kind, name, changes))
        except KafkaError as error:
            responses.append(answered(kind, name, error.code, error.message))
    results = await node.quorum.submit(
        lambda controller: controller.decide_alter_configs(wanted, validate_only=body.validate_only)
    )
    responses += [
        answered(result.resource_type, result.name, result.outcome.error, result.outcome.message) for result in results
    ]
    return AlterConfigsResponse(responses=responses)


def answered(kind: int, name: str, code: ErrorCode, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=kind, resource_name=name)

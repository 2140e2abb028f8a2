"""AlterConfigs (33): replace all settings of a resource; what is not named goes back to its default.

Served: v0–v2 (v2 is flexible). Superseded by IncrementalAlterConfigs, and kept for older tools.
"""

from __future__ import annotations

from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.metadata import ConfigReplacement
from penstock.wire.errors import KafkaError
from penstock.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def decide(node: ControllerNode, caller: Caller, request: AlterConfigsRequest) -> AlterConfigsResponse:
    wanted = [
        ConfigReplacement(
            resource.resource_type,
            resource.resource_name,
            tuple((config.name, config.value) for config in resource.configs),
        )
        for resource in request.resources
    ]
    try:
        results = await node.quorum.submit(
            lambda controller: controller.decide_alter_configs(wanted, validate_only=request.validate_only)
        )
    except KafkaError as error:
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.name,
                )
                for resource in wanted
            ]
        )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.outcome.error,
                error_message=result.outcome.message,
                resource_type=result.resource_type,
                resource_name=result.name,
            )
            for result in results
        ]
    )

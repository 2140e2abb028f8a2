"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings (KIP-339).

Served: v0–v1 (v1 is flexible). Each resource changes all at once or not at all. The answer leaves when the change is
in force.
"""

from __future__ import annotations

from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.config import Alteration
from penstock.metadata import ConfigAlteration
from penstock.wire.errors import KafkaError
from penstock.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def decide(
    node: ControllerNode, caller: Caller, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    wanted = [
        ConfigAlteration(
            resource.resource_type,
            resource.resource_name,
            tuple(Alteration(config.name, config.config_operation, config.value) for config in resource.configs),
        )
        for resource in request.resources
    ]
    try:
        results = await node.quorum.submit(
            lambda controller: controller.decide_incremental_alter_configs(wanted, validate_only=request.validate_only)
        )
    except KafkaError as error:
        return IncrementalAlterConfigsResponse(
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
    return IncrementalAlterConfigsResponse(
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

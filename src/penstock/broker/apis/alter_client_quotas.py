"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses (KIP-546).

Served: v0–v1 (v1 is flexible). The quotas of one entity are all changed or none. Decided by the active controller.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import QuotaAlteration, QuotaResult
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)


async def decide(node: ControllerNode, request: Request, body: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    alterations = [
        QuotaAlteration(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            tuple((op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in body.entries
    ]
    results = await node.quorum.submit(
        lambda controller: controller.decide_alter_client_quotas(alterations, validate_only=body.validate_only)
    )
    return AlterClientQuotasResponse(entries=[answered(result) for result in results])


def answered(result: QuotaResult) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=result.outcome.error,
        error_message=result.outcome.message,
        entity=[AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in result.parts],
    )

"""UpdateFeatures (57): raise or lower the levels of features that the whole cluster agrees on.

Served: v0–v2. v1 adds upgrade types and validation only (KIP-778), v2 has one error for all. Either every update is
made or none. A level that some node does not know is refused. Decided by the active controller.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import FeatureUpdate
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE = 1, 2


async def decide(node: ControllerNode, request: Request, body: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(
            update.feature,
            update.max_version_level,
            (SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE) if request.version == 0 else update.upgrade_type,
        )
        for update in body.feature_updates
    ]
    if len(dict.fromkeys(update.name for update in updates)) < len(updates):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Provided feature updates contain duplicates.")
    try:
        await node.quorum.submit(
            lambda controller: controller.decide_update_features(updates, validate_only=body.validate_only)
        )
    except KafkaError as error:
        if error.code != ErrorCode.INVALID_UPDATE_VERSION:
            raise
        reason = f"The update failed for all features since the following feature had an error: {error.message}"
        raise KafkaError(error.code, reason) from None
    results = [UpdatableFeatureResult(feature=update.name, error_message=None) for update in updates]
    return UpdateFeaturesResponse(error_message=None, results=results if request.version < 2 else [])

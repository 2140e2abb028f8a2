"""UpdateFeatures (57): raise or lower the levels of features that the whole cluster agrees on.

Served: v0–v2. v1 adds upgrade types and validation only (KIP-778), v2 has one error for all. Either every update is
made or none. A level that some node does not know is refused. Decided by the active controller.
"""

from __future__ import annotations

from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.metadata import FeatureUpdate
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE = 1, 2


async def decide(node: ControllerNode, caller: Caller, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(
            update.feature,
            update.max_version_level,
            (SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE) if caller.version == 0 else update.upgrade_type,
        )
        for update in request.feature_updates
    ]
    try:
        if len(dict.fromkeys(update.name for update in updates)) < len(updates):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Provided feature updates contain duplicates.")
        await node.quorum.submit(
            lambda controller: controller.decide_update_features(updates, validate_only=request.validate_only)
        )
    except KafkaError as error:
        message = error.message
        if error.code == ErrorCode.INVALID_UPDATE_VERSION:
            message = f"The update failed for all features since the following feature had an error: {message}"
        return UpdateFeaturesResponse(error_code=error.code, error_message=message, results=[])
    results = [UpdatableFeatureResult(feature=update.name, error_message=None) for update in updates]
    return UpdateFeaturesResponse(error_message=None, results=results if caller.version < 2 else [])

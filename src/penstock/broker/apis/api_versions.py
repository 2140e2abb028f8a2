"""ApiVersions (18): what is served, and the cluster's features.

Served: v0–v4. v1 adds the throttle time, v3 the client's name and version and the features (KIP-511, KIP-584),
v4 lets a feature's minimum be 0 (KIP-1022). A request in a version we do not know is answered in v0 with
UNSUPPORTED_VERSION and the table, so that any future client can find a version we share (KIP-35).
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.metadata import SUPPORTED_FEATURES, MetadataImage, finalized_features
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_LENGTH_MAX = 255
_SOFTWARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


def serve(node: Node, request: Request, body: ApiVersionsRequest) -> ApiVersionsResponse:
    if request.version >= 3:
        name, version = body.client_software_name, body.client_software_version
        if not (valid_software(name) and valid_software(version)):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        request.client.software_name, request.client.software_version = name, version
    error = ErrorCode.UNSUPPORTED_VERSION if request.version < 0 else ErrorCode.NONE
    response = ApiVersionsResponse(error_code=error, api_keys=node.advertised_apis)
    return with_features(response, node.image, request.version)


def with_features(response: ApiVersionsResponse, image: MetadataImage, version: int) -> ApiVersionsResponse:
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
        if low > 0 or version >= 4
    ]
    response.finalized_features_epoch = image.offset
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in finalized_features(image.features).items()
        if level > 0
    ]
    return response


def valid_software(text: str) -> bool:
    """Kafka's rule for names and versions that end up in metrics and logs."""
    if not 0 < len(text) <= SOFTWARE_LENGTH_MAX or text[0] in ".-" or text[-1] in ".-":
        return False
    return all(letter in _SOFTWARE for letter in text)

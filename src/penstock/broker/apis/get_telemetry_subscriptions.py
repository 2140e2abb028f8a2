"""GetTelemetrySubscriptions (71): which metrics a client should push, how often, and how (KIP-714).

Served: v0. A client without an instance id gets one. Without a matching subscription the list of metrics is empty, and
the client asks again after the interval.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.wire.compression import Codec
from penstock.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Kafka's order of preference."""


def serve(node: Node, request: Request, body: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    instance = node.client_metrics.asked(request, body.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED],
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=node.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )

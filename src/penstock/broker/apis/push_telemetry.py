"""PushTelemetry (72): the metrics of a client, in OTLP's format (KIP-714).

Served: v0. The payload is limited compressed (`telemetry.max.bytes`) and decompressed, and read in slices. What it says
is exported on the Prometheus endpoint (`penstock.broker.client_metrics`).
"""

from __future__ import annotations

from typing import Final

from penstock.broker.client_metrics.otlp import read_metrics
from penstock.broker.net.request import Request
from penstock.broker.net.slices import in_slices
from penstock.broker.node import Node
from penstock.wire.compression import Codec, CompressionError, DecompressedTooLarge, decompress
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

DECOMPRESSED_BYTES_MAX: Final = 4 << 20


async def serve(node: Node, request: Request, body: PushTelemetryRequest) -> PushTelemetryResponse:
    metrics = node.client_metrics
    instance = metrics.pushed(request, body.client_instance_id, body.subscription_id, terminating=body.terminating)
    if body.compression_type not in tuple(Codec):
        instance.last_error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(body.metrics) > node.config.telemetry_max_bytes:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    try:
        data = decompress(Codec(body.compression_type), body.metrics, DECOMPRESSED_BYTES_MAX)
        payload = await in_slices(request.slices(), read_metrics(data))
    except DecompressedTooLarge:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE) from None
    except (CompressionError, WireError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    metrics.pushes += 1
    metrics.series.dropped += payload.dropped
    metrics.series.take(request.client_id, payload.points, instance.interval_ms, node.runtime.now_ms())
    return PushTelemetryResponse()

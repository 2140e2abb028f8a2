"""Subscriptions to client metrics and pushed metrics, in every version."""

from __future__ import annotations

from broker.session import Session
from penstock.wire.apis import ApiKey
from penstock.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from penstock.wire.messages.push_telemetry import PushTelemetryRequest

CLIENT_METRICS = 16


async def get_telemetry_subscriptions(s: Session, version: int, topic_id: bytes) -> None:
    assert (await s.alter("all", CLIENT_METRICS, metrics="*", interval_ms="1000")).error_code == 0
    answer = await s.call(GetTelemetrySubscriptionsRequest(), version)
    assert (answer.error_code, answer.requested_metrics, answer.push_interval_ms) == (0, ["*"], 1_000)


async def push_telemetry(s: Session, version: int, topic_id: bytes) -> None:
    told = await s.call(GetTelemetrySubscriptionsRequest(), 0)
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id, subscription_id=told.subscription_id, metrics=b""
    )
    assert (await s.call(request, version)).error_code == 0


TELEMETRY_EXCHANGES = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: push_telemetry,
}

"""Client metrics (KIP-714): who is asked for what, when it may push, and what becomes of it."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from broker.session import Session, simulated
from penstock.broker.client_metrics import manager, series
from penstock.broker.client_metrics.otlp import POINTS_MAX, Payload, Point, Temporality, read_metrics
from penstock.broker.client_metrics.series import ClientSeries
from penstock.broker.net.slices import at_once
from penstock.wire.apis import ApiKey
from penstock.wire.compression import Codec, compress
from penstock.wire.errors import ErrorCode, WireError
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from penstock.wire.messages.push_telemetry import PushTelemetryRequest
from penstock.wire.uuids import ZERO_UUID

CLIENT_METRICS = 16
INTERVAL_MS = 10_000


# -- OTLP by hand ------------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def point(value: float | int, **attributes: str) -> bytes:
    data = b"".join(
        field(7, field(1, key.encode()) + field(2, field(1, text.encode()))) for key, text in attributes.items()
    )
    if isinstance(value, int):
        return data + varint(6 << 3 | 1) + pack("<q", value)
    return data + varint(4 << 3 | 1) + pack("<d", value)


def gauge_of(name: str, *points: bytes) -> bytes:
    return field(1, name.encode()) + field(5, b"".join(field(1, one) for one in points))


def sum_of(name: str, *points: bytes, delta: bool = True) -> bytes:
    temporality = varint(2 << 3) + varint(1 if delta else 2)
    return field(1, name.encode()) + field(7, b"".join(field(1, one) for one in points) + temporality)


def payload(*metrics: bytes) -> bytes:
    return field(1, field(2, b"".join(field(2, metric) for metric in metrics)))


def read(data: bytes) -> Payload:
    return at_once(read_metrics(memoryview(data)))


def test_gauges_and_sums_are_read() -> None:
    data = payload(
        gauge_of("a.latency", point(1.5, node_id="1"), point(2.5, node_id="2")),
        sum_of("a.total", point(7)),
        sum_of("a.cumulative", point(9), delta=False),
        field(1, b"a.histogram") + field(9, b""),
    )
    found = read(data)
    assert found.points == [
        Point("a.latency", Temporality.LATEST, 1.5, (("node_id", "1"),)),
        Point("a.latency", Temporality.LATEST, 2.5, (("node_id", "2"),)),
        Point("a.total", Temporality.DELTA, 7.0, ()),
        Point("a.cumulative", Temporality.LATEST, 9.0, ()),
    ]
    assert found.dropped == 1, "histograms"


def test_a_payload_that_ends_early_or_makes_no_sense_is_refused() -> None:
    data = payload(gauge_of("a", point(1.5, k="v")))
    for end in range(1, len(data)):
        with pytest.raises(WireError):
            read(data[:end])
    for bad in (b"\x0f", b"\xff" * 20, varint(1 << 3 | 2) + varint(1 << 60)):
        with pytest.raises(WireError):
            read(bad)


def test_points_beyond_the_limit_are_counted_and_dropped() -> None:
    found = read(payload(*(gauge_of("a", point(1.0)) for _ in range(POINTS_MAX + 5))))
    assert (len(found.points), found.dropped) == (POINTS_MAX, 5)


# -- series ------------------------------------------------------------------------------------------------------------


def test_sums_add_up_gauges_are_replaced_and_silence_ends_both() -> None:
    found = ClientSeries()
    delta = Point("org.apache.kafka.producer.record-send.total", Temporality.DELTA, 5.0, (("topic", "t"),))
    latest = Point("custom.gauge", Temporality.LATEST, 3.0, ())
    for _ in range(2):
        found.take("web", [delta, latest], 1_000, 0.0)
    assert [(one.name, one.labels, one.value) for one in found.samples(1.0)] == [
        ("kafka_client_custom_gauge", (("client_id", "web"),), 3.0),
        ("kafka_client_producer_record_send_total", (("client_id", "web"), ("topic", "t")), 10.0),
    ]
    assert list(found.samples(series.STALE_MS_MIN)) == []
    assert len(found) == 0


def test_names_and_series_from_outside_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SERIES_MAX", 8)
    monkeypatch.setattr(series, "SERIES_PER_CLIENT_MAX", 5)
    found = ClientSeries()
    odd = [
        Point("", Temporality.LATEST, 1.0, ()),
        Point('a"} 1\nb', Temporality.LATEST, 1.0, ()),
        Point("x" * 500, Temporality.LATEST, 1.0, ()),
        Point("a", Temporality.LATEST, float("nan"), ()),
        Point("a", Temporality.LATEST, 1.0, (("k y", "v"),)),
    ]
    found.take("web", odd, 1_000, 0.0)
    assert (len(found), found.dropped) == (0, len(odd))
    for client in ("one", "two", "three"):
        found.take(client, [Point(f"m{n}", Temporality.LATEST, 1.0, ()) for n in range(7)], 1_000, 0.0)
    assert len(found) == 8
    labels = (("client_id", "spoofed"), ("topic", "t" * 1_000))
    found.forget_stale(1e12)
    found.take("honest", [Point("m", Temporality.LATEST, 1.0, labels)], 1_000, 0.0)
    (sample,) = found.samples(0.0)
    assert sample.labels == (("client_id", "honest"), ("topic", "t" * series.LABEL_LENGTH_MAX))


# -- a client and its broker -------------------------------------------------------------------------------------------


async def subscribe(s: Session, name: str, **settings: str | None) -> None:
    answer = await s.alter(name, CLIENT_METRICS, **settings)
    assert answer.error_code == 0, answer.error_message


async def asked(s: Session, instance_id: bytes = ZERO_UUID) -> Any:
    return await s.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


async def pushed(
    s: Session, told: Any, data: bytes, codec: Codec = Codec.NONE, *, terminating: bool = False, **other: Any
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=compress(codec, data),
    )
    for key, value in other.items():
        setattr(request, key, value)
    code: int = (await s.call(request)).error_code
    return code


def exported(s: Session) -> dict[str, float]:
    return {one.name: one.value for one in s.node.served.metrics.samples() if one.name.startswith("kafka_client_")}


@simulated()
async def test_without_a_subscription_a_client_is_asked_for_nothing(s: Session) -> None:
    told = await asked(s)
    assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, [], 300_000)
    assert told.client_instance_id != ZERO_UUID
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.telemetry_max_bytes, told.delta_temporality) == (1_048_576, True)


@simulated()
async def test_clients_hear_of_telemetry_only_while_there_is_a_subscription(s: Session) -> None:
    """A client that hears of it asks at once, and librdkafka prints a line about its instance id."""

    async def named() -> set[int]:
        found = {api.api_key for api in (await s.call(ApiVersionsRequest(), 0)).api_keys}
        return found & {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}

    assert await named() == set()
    await subscribe(s, "all", metrics="*")
    assert await named() == {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    await subscribe(s, "all", metrics=None)
    assert await named() == set()


@simulated()
async def test_subscriptions_are_chosen_by_what_matches_the_client(s: Session) -> None:
    await subscribe(s, "mine", metrics="org.apache.kafka.producer.", interval_ms="20000", match="client_id=sim.*")
    await subscribe(s, "all", metrics="org.apache.kafka.consumer.,org.apache.kafka.producer.", interval_ms="30000")
    await subscribe(s, "others", metrics="*", interval_ms="100", match="client_id=web,client_software_name=.*")
    told = await asked(s)
    assert sorted(told.requested_metrics) == ["org.apache.kafka.consumer.", "org.apache.kafka.producer."]
    assert told.push_interval_ms == 20_000
    await subscribe(s, "others", match="client_source_address=.*")
    again = await asked(s, told.client_instance_id)
    assert (again.error_code, again.requested_metrics, again.push_interval_ms) == (0, ["*"], 100)
    assert again.subscription_id != told.subscription_id
    await subscribe(s, "others", metrics=None, interval_ms=None, match=None)
    assert (await asked(s, told.client_instance_id)).push_interval_ms == 20_000


@pytest.mark.parametrize("codec", list(Codec))
@simulated()
async def test_pushed_metrics_are_exported(s: Session, codec: Codec) -> None:
    await subscribe(s, "all", metrics="*", interval_ms=str(INTERVAL_MS))
    told = await asked(s)
    data = payload(
        gauge_of("org.apache.kafka.producer.request.latency.avg", point(1.25)),
        sum_of("org.apache.kafka.producer.connection.creation.total", point(3)),
    )
    assert await pushed(s, told, data, codec) == 0
    await s.runtime.sleep(INTERVAL_MS)
    assert await pushed(s, told, data, codec) == 0
    assert exported(s) == {
        "kafka_client_producer_request_latency_avg": 1.25,
        "kafka_client_producer_connection_creation_total": 6.0,
    }


@simulated()
async def test_pushes_that_are_not_in_order_are_refused(s: Session) -> None:
    await subscribe(s, "all", metrics="*", interval_ms=str(INTERVAL_MS))
    told = await asked(s)
    assert (await asked(s, told.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    data = payload(gauge_of("a", point(1.0)))
    wrong = {"subscription_id": told.subscription_id + 1}
    assert await pushed(s, told, data, **wrong) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert (await asked(s, told.client_instance_id)).error_code == 0, "it may ask again at once"
    assert await pushed(s, told, data, compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert await pushed(s, told, data) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await s.runtime.sleep(INTERVAL_MS)
    assert await pushed(s, told, b"nonsense") == ErrorCode.INVALID_RECORD
    await s.runtime.sleep(INTERVAL_MS)
    assert await pushed(s, told, data, Codec.ZSTD, metrics=b"nonsense") == ErrorCode.INVALID_RECORD
    assert await pushed(s, told, data, client_instance_id=ZERO_UUID) == ErrorCode.INVALID_REQUEST
    assert await pushed(s, told, data, terminating=True) == 0, "the last push may come early"
    assert await pushed(s, told, data, terminating=True) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
@simulated()
async def test_a_payload_that_expands_too_far_is_refused(s: Session, codec: Codec) -> None:
    await subscribe(s, "all", metrics="*", interval_ms="100")
    told = await asked(s)
    assert await pushed(s, told, bytes(6 << 20), codec) == ErrorCode.TELEMETRY_TOO_LARGE
    await s.runtime.sleep(200)
    assert await pushed(s, told, bytes(1_048_577)) == ErrorCode.TELEMETRY_TOO_LARGE


@simulated()
async def test_instances_are_bounded(s: Session) -> None:
    limit, manager.INSTANCES_MAX = manager.INSTANCES_MAX, 10  # type: ignore[misc]
    try:
        for _ in range(50):
            assert (await asked(s)).error_code == 0
    finally:
        manager.INSTANCES_MAX = limit  # type: ignore[misc]
    assert len(s.node.served.node.client_metrics._instances) == 10


@simulated()
async def test_a_subscription_survives_a_restart(s: Session) -> None:
    await subscribe(s, "all", metrics="*", interval_ms="5000")
    await s.restarted()
    assert (await asked(s)).push_interval_ms == 5_000


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"interval_ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval_ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"interval_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"no_such": "1"}, ErrorCode.INVALID_REQUEST),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "shoe_size=43"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
        ({"match": f"client_id={'x' * 2_000}"}, ErrorCode.INVALID_CONFIG),
    ],
)
@simulated()
async def test_bad_subscriptions_are_refused(s: Session, settings: dict[str, str], code: ErrorCode) -> None:
    assert (await s.alter("bad", CLIENT_METRICS, **settings)).error_code == code
    assert (await s.alter("", CLIENT_METRICS, metrics="*")).error_code == ErrorCode.INVALID_REQUEST

"""Rates, buckets, the choice of a limit, and the bound on memory of client quotas: pure, without a broker."""

from __future__ import annotations

import pytest

from penstock.broker.gate import Gate
from penstock.broker.net.access import ANONYMOUS, Client, ListenerInfo, Principal
from penstock.broker.net.request import Request
from penstock.broker.quotas import client_quotas
from penstock.broker.quotas.admission import Admission
from penstock.broker.quotas.client_quotas import ClientQuotas
from penstock.broker.quotas.rates import TokenBucket, WindowedRate
from penstock.broker.quotas.table import Limit, QuotaTable
from penstock.config import BrokerConfig
from penstock.metadata.quotas import ClientQuota, entity_of
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.messages.produce import ProduceRequest

KEY = "producer_byte_rate"


def quota(value: float, **parts: str | None) -> ClientQuota:
    names = {kind.replace("_", "-"): name for kind, name in parts.items()}
    return ClientQuota(entity_of(names.items()), {KEY: value})


# -- rates -------------------------------------------------------------------------------------------------------------


def test_a_quiet_client_may_send_the_quota_of_ten_windows_at_once() -> None:
    rate = WindowedRate(11, 1_000)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1_000, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(1_000, 0) == pytest.approx(1)


def test_the_throttle_time_is_how_long_the_rate_takes_to_fall_to_the_limit() -> None:
    rate = WindowedRate(11, 1_000)
    rate.record(15_000, 0)
    wait_ms = rate.throttle_ms(1_000, 0)
    assert wait_ms == pytest.approx(5_000), "Kafka: (rate - limit) / limit x window"
    assert rate.throttle_ms(1_000, wait_ms - 1) > 0
    assert rate.throttle_ms(1_000, 10_999) == 0 or rate.per_second(10_999) > 1_000
    assert rate.throttle_ms(1_000, 11_000) == 0, "the window is dropped after eleven seconds"


def test_a_client_that_waits_as_told_keeps_its_limit() -> None:
    rate = WindowedRate(11, 1_000)
    now_ms, sent = 0.0, 0
    while now_ms < 100_000:
        rate.record(700, now_ms)
        sent += 700
        now_ms += 1 + rate.throttle_ms(1_000, now_ms)
    assert sent / 100 == pytest.approx(1_000, rel=0.15)


def test_what_was_recorded_in_vain_can_be_taken_back() -> None:
    rate = WindowedRate(11, 1_000)
    rate.record(9_000, 0)
    rate.record(5_000, 1_500)
    rate.record(-5_000, 1_500)
    assert rate.throttle_ms(1_000, 1_500) == 0


def test_a_bucket_takes_a_burst_and_then_refills_at_its_rate() -> None:
    bucket = TokenBucket(11, 1_000, 2.0, 0)
    bucket.take(22, 2.0, 0)
    assert bucket.debt_ms(2.0, 0) == 0
    bucket.take(10, 2.0, 0)
    assert bucket.debt_ms(2.0, 0) == 5_000
    assert bucket.debt_ms(2.0, 5_000) == 0
    assert not bucket.is_idle(2.0, 5_000)
    assert bucket.is_idle(2.0, 16_000)


# -- which limit -------------------------------------------------------------------------------------------------------


def test_the_most_specific_quota_applies() -> None:
    order = [
        quota(1, user="u", client_id="c"),
        quota(2, user="u", client_id=None),
        quota(3, user="u"),
        quota(4, user=None, client_id="c"),
        quota(5, user=None, client_id=None),
        quota(6, user=None),
        quota(7, client_id="c"),
        quota(8, client_id=None),
    ]
    shared = [("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c")]
    for number in range(8):
        found = QuotaTable(order[number:], {KEY: 9.0}).limit(KEY, "u", "c")
        assert found == Limit(number + 1, *shared[number])
    assert QuotaTable([], {KEY: 9.0}).limit(KEY, "u", "c") == Limit(9.0, "", "c"), "the broker's property comes last"
    assert QuotaTable([]).limit(KEY, "u", "c") is None
    assert QuotaTable([]).is_empty


def test_a_quota_does_not_apply_to_others() -> None:
    table = QuotaTable([quota(1, user="u", client_id="c"), quota(3, user="u"), quota(7, client_id="c")])
    assert table.limit(KEY, "v", "d") is None
    assert table.limit(KEY, "v", "c") == Limit(7, "", "c")
    assert table.limit(KEY, "u", "d") == Limit(3, "u", "")
    assert table.limit("consumer_byte_rate", "u", "c") is None
    assert table.limit(KEY, "v", "") is None, "an empty client id is nobody's"


# -- meters ------------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def __call__(self) -> float:
        return self.now_ms


def request_from(client_id: str, user: Principal = ANONYMOUS) -> Request:
    client = Client(ListenerInfo(), user)
    return Request.of(Gate(), client, SERVED[ApiKey.PRODUCE], 12, ProduceRequest(), client_id=client_id)


def test_clients_of_one_id_share_a_meter_and_others_have_their_own() -> None:
    clock = Clock()
    quotas = ClientQuotas(clock)
    quotas.use(QuotaTable([quota(100, client_id=None)]))
    assert quotas.charge(request_from("a"), 1_500) == 5_000
    assert quotas.charge(request_from("a"), 0) == 5_000
    assert quotas.charge(request_from("b"), 900) == 0


def test_other_limits_apply_at_once_and_usage_is_remembered() -> None:
    clock = Clock()
    quotas = ClientQuotas(clock)
    quotas.use(QuotaTable([quota(100, client_id="a")]))
    request = request_from("a")
    assert quotas.charge(request, 1_500) == 5_000
    quotas.use(QuotaTable([quota(150, client_id="a")]))
    assert quotas.charge(request, 0) == 0
    quotas.use(QuotaTable([quota(50, client_id="a")]))
    assert quotas.charge(request, 0) == 20_000
    quotas.use(QuotaTable([]))
    assert quotas.charge(request, 10**9) == 0
    assert quotas.meter_count == 0


def test_client_ids_from_outside_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "METERS_MAX", 50)
    clock = Clock()
    quotas = ClientQuotas(clock)
    quotas.use(QuotaTable([quota(100, client_id=None)]))
    known = request_from("known")
    assert quotas.charge(known, 1_500) == 5_000
    for number in range(500):
        quotas.charge(request_from(f"{number}-{'x' * 30_000}"), 10)
    assert quotas.meter_count <= 51
    assert max(len(meter.client_id) for meter in quotas.meters()) < 200
    assert quotas.charge(known, 0) == 5_000, "who was there before is not affected"
    assert quotas.charge(request_from("new"), 0) > 0, "newcomers share what is left"
    clock.now_ms += 12_000
    assert quotas.charge(request_from("later"), 900) == 0, "meters without recent traffic made room"
    assert quotas.meter_count < 50


# -- connections -------------------------------------------------------------------------------------------------------


def test_an_address_opens_connections_no_faster_than_its_quota() -> None:
    clock = Clock()
    admission = Admission(clock)
    admission.configure(BrokerConfig.resolve({"quota.window.num": "3"}))
    admission.host_rate_limit = {"greedy": 5.0}.get
    outcomes = [admission.refusal("greedy", "L") for _ in range(20)]
    assert outcomes == [""] * 10 + ["connection_creation_rate=5 of greedy"] * 10
    assert admission.refusal("polite", "L") == ""
    clock.now_ms += 3_000
    assert admission.refusal("greedy", "L") == ""


def test_a_listener_has_limits_of_its_own_and_that_of_brokers_is_not_used_up_by_clients() -> None:
    clock = Clock()
    admission = Admission(clock)
    admission.configure(
        BrokerConfig.resolve(
            {
                "listeners": "OUTSIDE://127.0.0.1:1,INSIDE://127.0.0.1:2,MORE://127.0.0.1:3",
                "advertised.listeners": "OUTSIDE://127.0.0.1:1,INSIDE://127.0.0.1:2,MORE://127.0.0.1:3",
                "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT,MORE:PLAINTEXT",
                "inter.broker.listener.name": "INSIDE",
                "max.connections": "5",
                "quota.window.num": "2",
                "listener.name.outside.max.connections": "3",
                "listener.name.more.max.connection.creation.rate": "1",
            }
        )
    )
    outcomes = [admission.refusal("h", "OUTSIDE") for _ in range(4)]
    assert outcomes == ["", "", "", "max.connections=3 of OUTSIDE"]
    assert [admission.refusal("h", "MORE") for _ in range(2)] == ["", "max.connection.creation.rate=1 of MORE"]
    clock.now_ms += 10_000
    assert [admission.refusal("h", "MORE") for _ in range(2)] == ["", "max.connections=5"]
    assert admission.refusal("h", "INSIDE", for_nodes=True) == ""
    admission.departed("h", "OUTSIDE")
    admission.departed("h", "INSIDE")
    assert admission.refusal("h", "OUTSIDE") == ""

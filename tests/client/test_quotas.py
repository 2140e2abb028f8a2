"""A quota of a broker, Penstock's or Apache Kafka's: found out from its first objection, and kept from then on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import ThrottleEvent

from penstock.__main__ import main
from penstock.client import Producer
from support import apache_kafka
from support.penstock import PenstockServer

QUOTA = 500_000
LEARN_S = 20.0
KEEP_S = 25.0
QUIET_S = 12.0
"""The broker's window: what was sent too fast before counts for so long."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@contextmanager
def cluster(name: str) -> Iterator[str]:
    """The address of a broker with the quota."""
    if name == "penstock":
        with PenstockServer() as penstock:
            yield penstock.bootstrap
        return
    if reason := apache_kafka.available():
        pytest.skip(reason)
    with apache_kafka.ApacheKafka(heap="512M") as kafka:
        yield kafka.bootstrap


@pytest.mark.parametrize("name", ["penstock", pytest.param("apache-kafka", marks=pytest.mark.needs_maven)])
def test_a_producer_finds_its_quota_out_and_is_throttled_less(name: str) -> None:
    events: list[tuple[float, float]] = []

    def throttled(event: ThrottleEvent) -> None:
        if event.throttle_time > 0:
            events.append((time.monotonic(), event.throttle_time))

    with cluster(name) as bootstrap:
        limit = f"producer_byte_rate={QUOTA}"
        assert main(["quotas", "set", "--client-id", "writer", limit, "--bootstrap-server", bootstrap]) == 0
        with Producer(bootstrap, client_id="writer", buffer_memory=1_000_000, throttle_cb=throttled) as producer:
            producer.send("t", b"v").result(60)
            started_s = time.monotonic()
            sent: list[tuple[float, int]] = []
            while (now_s := time.monotonic()) < started_s + LEARN_S + KEEP_S:
                producer.send("t", b"v" * 1000)
                sent.append((now_s, 1000))
            found = producer.metrics.quota_bytes_per_s
    assert events, "the broker never objected"
    assert found is not None
    assert 0.5 * QUOTA < found < 1.5 * QUOTA
    since_s = started_s + LEARN_S
    rate = sum(size for at_s, size in sent if at_s >= since_s) / KEEP_S
    assert 0.5 * QUOTA < rate < 1.1 * QUOTA
    # The estimate rises now and then to see whether the quota has, so the broker objects again, but to less.
    before = sum(delay_s for at_s, delay_s in events if at_s < started_s + QUIET_S) / QUIET_S
    late = sum(delay_s for at_s, delay_s in events if at_s >= since_s) / KEEP_S
    assert late < before / 2, "it slowed down by itself, and the broker had less to do"

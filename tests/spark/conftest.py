"""The brokers that the source is tested against: Penstock, and Apache Kafka in the long run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import apache_kafka
from support.penstock import PenstockServer
from support.server_process import ServerProcess

SETTINGS = {"log.cleaner.backoff.ms": "100", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(
    scope="module",
    params=["penstock", pytest.param("apache-kafka", marks=[pytest.mark.needs_maven, pytest.mark.long])],
)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    if request.param == "penstock":
        running: ServerProcess = PenstockServer(SETTINGS)
    else:
        if reason := apache_kafka.available():
            pytest.skip(reason)
        running = apache_kafka.ApacheKafka(heap="512M", properties=SETTINGS)
    with running:
        yield running

"""The brokers that the source is tested against: Penstock, and Apache Kafka in the long run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.either import EITHER, server_of
from support.server_process import ServerProcess

SETTINGS = {"log.cleaner.backoff.ms": "100", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module", params=EITHER)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with server_of(request.param, SETTINGS) as running:
        yield running

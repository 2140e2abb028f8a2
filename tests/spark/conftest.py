"""The brokers that the source is tested against: Penstock, and Apache Kafka in the long run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from client.secured_kafka import certificates
from penstock.spark import reading
from support.either import EITHER, server_of
from support.records import create_topic
from support.server_process import ServerProcess

__all__ = ["certificates"]

SETTINGS = {"log.cleaner.backoff.ms": "100", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module", params=EITHER)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with server_of(request.param, SETTINGS) as running:
        yield running
        # Kept for the next task, and there is none: they would complain of the broker that is gone.
        while reading._readers:
            reading._readers.popitem()[1].close()


@pytest.fixture
def admin(server: ServerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


@pytest.fixture
def new_topic(server: ServerProcess) -> Callable[..., str]:
    """Makes topics, with names of their own unless told; settings have underscores for dots."""

    def create(partitions: int = 1, *, name: str | None = None, **config: str) -> str:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return create_topic(server.bootstrap, name or f"t-{uuid.uuid4().hex[:12]}", partitions, config=settings)

    return create


@pytest.fixture
def transactional_server(server: ServerProcess) -> ServerProcess:
    return server

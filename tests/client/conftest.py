"""Brokers for the friendly layer: Penstock every time, Apache Kafka in the long run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from client.secured_kafka import certificates
from support.either import EITHER, server_of
from support.server_process import ServerProcess

__all__ = ["certificates"]

NewTopicFunction = Callable[..., str]
PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "3"}


@pytest.fixture(scope="session", params=EITHER)
def broker(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with server_of(request.param, PROPERTIES) as running:
        yield running


@pytest.fixture
def bootstrap(broker: ServerProcess) -> str:
    return broker.bootstrap


@pytest.fixture
def create_topic(bootstrap: str) -> NewTopicFunction:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        # Records with times of long ago are kept: Kafka looks for what is out of date half a minute after its start.
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(timeout=60)
        return name

    return create

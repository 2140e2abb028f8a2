"""Unmodified Kafka clients against a real broker process, over sockets."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from support.penstock import PenstockServer
from support.retention import KEPT_FOR_EVER


@pytest.fixture(scope="session")
def server() -> Iterator[PenstockServer]:
    with PenstockServer({"num.partitions": "3", **KEPT_FOR_EVER}) as running:
        yield running


@pytest.fixture
def bootstrap(server: PenstockServer) -> str:
    return server.bootstrap


@pytest.fixture
def new_topic(bootstrap: str) -> Callable[..., str]:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([topic])[name].result(timeout=60)
        return name

    return create

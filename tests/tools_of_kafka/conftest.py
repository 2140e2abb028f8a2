from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from clients.groups.brokers import SETTINGS
from support import java
from support.apache_kafka import SHORT_LIVED, ApacheKafka
from support.kafka_tools import KafkaTools
from support.penstock import PenstockServer
from tools_of_kafka.both import Both


@pytest.fixture(scope="session")
def tools() -> Iterator[KafkaTools]:
    if reason := java.unavailable():
        pytest.skip(reason)
    with KafkaTools() as running:
        yield running


# With this feature Kafka sets min.insync.replicas for the whole cluster by itself, which every listing then shows.
FEATURES = {"eligible.leader.replicas.version": 0}


@pytest.fixture(scope="session")
def both(tools: KafkaTools) -> Iterator[Both]:
    kafka = ApacheKafka(heap="256M", properties=SETTINGS, features=FEATURES, jvm_flags=SHORT_LIVED)
    with kafka, PenstockServer(SETTINGS) as penstock:
        yield Both(kafka, penstock, tools)
        assert penstock.alive(), f"Penstock ended by itself:\n{penstock.log_tail()}"


@pytest.fixture
def name() -> str:
    """A name for the topics and groups of one test."""
    return f"n{uuid.uuid4().hex[:8]}"

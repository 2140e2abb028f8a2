"""What is to work with any Kafka is tested with Penstock every time, and with Apache Kafka in the long run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support import apache_kafka
from support.penstock import PenstockServer
from support.server_process import ServerProcess

PENSTOCK = "penstock"
APACHE_KAFKA = "apache-kafka"
EITHER = (PENSTOCK, pytest.param(APACHE_KAFKA, marks=[pytest.mark.long, pytest.mark.needs_maven]))
"""The parameters of a fixture that is one or the other."""


def server_of(kind: str, properties: Mapping[str, str]) -> ServerProcess:
    """A server that is not started yet; skips the test where Apache Kafka cannot be had."""
    if kind == PENSTOCK:
        return PenstockServer(properties)
    if reason := apache_kafka.available():
        pytest.skip(reason)
    return apache_kafka.ApacheKafka(heap="512M", properties=properties)

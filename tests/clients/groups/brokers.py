"""The broker that the group tests run against."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from support.apache_kafka import ApacheKafka, available
from support.penstock import PenstockServer
from support.server_process import ServerProcess

# Quick to notice what happens, so that tests are short: nobody waits for more first members, and a member that
# vanished is missed after three seconds.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


def broker_under_test(settings: Mapping[str, str] | None = None) -> ServerProcess:
    """Penstock, unless PENSTOCK_TESTED_BROKER asks for Apache Kafka."""
    wanted = {**SETTINGS, **(settings or {})}
    match os.environ.get("PENSTOCK_TESTED_BROKER", "penstock"):
        case "penstock":
            return PenstockServer(wanted)
        case "apache-kafka":
            if reason := available():
                pytest.skip(reason)
            return ApacheKafka(heap="384M", properties=wanted)
        case other:
            raise ValueError(f"PENSTOCK_TESTED_BROKER is penstock or apache-kafka, not {other!r}")

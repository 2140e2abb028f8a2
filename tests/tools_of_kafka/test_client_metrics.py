"""Client metrics (KIP-714): Kafka's tools set subscriptions, and the Java client pushes what they ask for."""

from __future__ import annotations

import time

import pytest

from support.measured import MeasuredServer
from tools_of_kafka.both import Both

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("tools of Kafka")]

WAIT_S = 60.0


def test_subscriptions_are_set_shown_and_removed(both: Both, name: str) -> None:
    for metrics in (("--list",), ("--describe",), ("--describe", "--name", name), ("--delete", "--name", name)):
        both.same("kafka-client-metrics", *metrics)
    alter = ("--alter", "--name", name, "--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.")
    assert both.same("kafka-client-metrics", *alter, "--interval", "60000").code == 0
    both.wait_for("60000", "kafka-client-metrics", "--describe", "--name", name)
    both.same("kafka-client-metrics", "--describe", "--name", name)
    assert both.same_about(name, "kafka-client-metrics", "--list") == [name]
    assert both.same("kafka-client-metrics", *alter, "--match", "client_id=x,client_software_name=.*").code == 0
    both.wait_for("client_software_name", "kafka-client-metrics", "--describe", "--name", name)
    both.same("kafka-client-metrics", "--describe", "--name", name)
    entity = ("--entity-type", "client-metrics", "--entity-name", name)
    both.same("kafka-configs", "--describe", *entity)
    assert both.same("kafka-configs", "--alter", *entity, "--add-config", "interval.ms=70000").code == 0
    both.wait_for("70000", "kafka-configs", "--describe", *entity)
    for bad in ("interval.ms=1", "no.such=1", "match=shoe_size=43", "interval.ms=soon"):
        both.refused("kafka-configs", "--alter", *entity, "--add-config", bad)
    assert both.same("kafka-client-metrics", "--delete", "--name", name).code == 0


def test_the_java_producer_pushes_its_metrics(both: Both) -> None:
    with MeasuredServer() as server:
        subscribe = ("--alter", "--name", "all", "--metrics", "*", "--interval", "200")
        assert both.run(server, "kafka-client-metrics", *subscribe).code == 0
        assert both.run(server, "kafka-topics", "--create", "--topic", "t").code == 0
        deadline_s = time.monotonic() + WAIT_S
        while 'client_id="perf-producer-client"' not in server.exported():
            assert time.monotonic() < deadline_s, server.exported()
            both.tools.run(
                "kafka-producer-perf-test", "--topic", "t", "--num-records", "2000", "--record-size", "100",
                "--throughput", "1000", "--producer-props", f"bootstrap.servers={server.bootstrap}",
            )  # fmt: skip
        pushed = [line for line in server.exported().splitlines() if line.startswith("kafka_client_producer_")]
        assert any("connection_creation_total" in line for line in pushed), pushed

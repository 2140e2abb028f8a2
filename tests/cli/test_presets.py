"""`penstock plan preset`, and presets applied to topics and tests."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, Producer

from cli.running import Run
from penstock.cli import exit_codes
from penstock.cli.plan_presets import Client, named
from penstock.client.options import consumer_options, producer_options
from penstock.config import TOPIC
from penstock.planning.presets import PRESETS, Preset


@pytest.mark.parametrize("one", PRESETS, ids=lambda one: one.name)
def test_every_client_accepts_the_settings_of_a_preset(one: Preset) -> None:
    Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **named(one, "producer", Client.LIBRDKAFKA)})
    native = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    Consumer({**native, **named(one, "consumer", Client.LIBRDKAFKA)}).close()
    ours = producer_options("127.0.0.1:1", None, named(one, "producer", Client.PENSTOCK))
    assert ours.properties["acks"] == named(one, "producer", Client.JAVA)["acks"]
    consumer_options("127.0.0.1:1", None, named(one, "consumer", Client.PENSTOCK))


@pytest.mark.parametrize("one", PRESETS, ids=lambda one: one.name)
def test_topics_know_the_settings_of_a_preset(one: Preset) -> None:
    assert one.topic_settings.keys() <= TOPIC.keys()


def test_a_preset_is_printed_for_each_client_with_reasons(run: Run) -> None:
    shown = run("plan", "preset", "events", "--jvm").output
    for part in (
        "acks\tall\t",
        "acks=all",
        "compression.type=snappy",
        'Producer(bootstrap_servers, acks="all", enable_idempotence=True',
        "availability or consistency\tconsistency",
        "-XX:+UseG1GC",
    ):
        assert part in shown
    found = json.loads(run("plan", "preset", "logs", "--client", "librdkafka", "--json").output)
    assert found["clients"] == {
        "librdkafka": {
            "producer": {
                "acks": "1", "enable.idempotence": "false", "linger.ms": "10", "batch.size": "65536",
                "compression.type": "gzip",
            },
            "consumer": {"fetch.min.bytes": "1024", "fetch.wait.max.ms": "500"},
        }
    }  # fmt: skip
    assert len(json.loads(run("plan", "preset", "--json").output)) == len(PRESETS)
    assert run("plan", "preset", "event").code == exit_codes.USAGE


def test_a_topic_gets_the_settings_of_a_preset_and_ones_own_over_them(on: Run, topic: str) -> None:
    refused = on("topics", "create", topic, "--preset", "events", "--replication-factor", 1)
    assert refused.code == exit_codes.USAGE
    assert "give --config min.insync.replicas=1 as well" in refused.messages

    own = ("--replication-factor", 1, "--config", "min.insync.replicas=1", "--config", "retention.ms=1000")
    created = on("topics", "create", topic, "--preset", "events", *own)
    assert created.code == exit_codes.OK, created.messages
    (described,) = json.loads(on("topics", "describe", topic, "--json").output)
    assert described["configs"] == {
        "min.insync.replicas": "1", "retention.ms": "1000", "unclean.leader.election.enable": "false",
    }  # fmt: skip

    measured = on("perf", "produce", "--topic", topic, "--num-records", 10, "--record-size", 10, "--throughput", -1,
                  "--preset", "high-throughput")  # fmt: skip
    assert measured.code == exit_codes.OK, measured.messages
    assert on("perf", "produce", "--topic", topic, "--num-records", 1, "--preset", "fast").code == exit_codes.USAGE

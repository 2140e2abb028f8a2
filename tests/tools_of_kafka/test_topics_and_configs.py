"""kafka-topics, kafka-configs, kafka-get-offsets, kafka-delete-records, kafka-broker-api-versions, kafka-log-dirs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clients.groups.librdkafka import produce
from penstock.broker.node import TELEMETRY_APIS
from penstock.wire.apis import SERVED
from tools_of_kafka.both import Both

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("tools of Kafka")]


def test_topics_are_created_listed_described_grown_and_deleted(both: Both, name: str) -> None:
    topic = ("--topic", name)
    assert both.same("kafka-topics", "--create", *topic, "--partitions", "2").output == f"Created topic {name}."
    both.refused("kafka-topics", "--create", *topic)
    assert both.same("kafka-topics", "--create", *topic, "--if-not-exists").code == 0
    assert both.same_about(name, "kafka-topics", "--list") == [name]
    described = both.same("kafka-topics", "--describe", *topic).output
    assert "PartitionCount: 2" in described
    assert described.count("Leader: 1") == 2
    assert both.same("kafka-topics", "--alter", *topic, "--partitions", "4").code == 0
    both.refused("kafka-topics", "--alter", *topic, "--partitions", "3")
    assert both.same("kafka-topics", "--describe", *topic).output.count("Leader: 1") == 4
    assert both.same("kafka-topics", "--describe", "--under-replicated-partitions", *topic).output == ""
    assert both.same("kafka-topics", "--delete", *topic).code == 0
    both.refused("kafka-topics", "--describe", *topic)
    both.refused("kafka-topics", "--create", "--topic", "no/such")
    both.refused("kafka-topics", "--create", *topic, "--replication-factor", "3")
    both.refused("kafka-topics", "--create", *topic, "--config", "cleanup.policy=shred")


def test_configs_are_added_described_and_deleted(both: Both, name: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name, "--config", "retention.ms=60000")
    entity = ("--entity-type", "topics", "--entity-name", name)
    described = both.same("kafka-configs", "--describe", *entity).output
    assert "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000}" in described
    wanted = "cleanup.policy=[compact,delete],segment.ms=9000"
    added = both.same("kafka-configs", "--alter", *entity, "--add-config", wanted)
    assert added.output == f"Completed updating config for topic {name}."
    both.same("kafka-configs", "--describe", *entity)
    both.same("kafka-configs", "--alter", *entity, "--delete-config", "retention.ms")
    assert "retention" not in both.same("kafka-configs", "--describe", *entity).output
    both.refused("kafka-configs", "--alter", *entity, "--add-config", "segment.ms=soon")
    both.refused("kafka-configs", "--alter", *entity, "--add-config", "no.such=1")
    both.same("kafka-configs", "--alter", *entity, "--delete-config", "segment.bytes")
    both.same("kafka-configs", "--describe", "--all", *entity)
    assert "Configs:" in both.same("kafka-topics", "--describe", "--topic", name).output


def test_brokers_configs_are_changed_while_they_run(both: Both) -> None:
    for entity in (("--entity-name", "1"), ("--entity-default",)):
        which = ("--entity-type", "brokers", *entity)
        assert both.same("kafka-configs", "--alter", *which, "--add-config", "log.retention.ms=86400000").code == 0
        # Kafka's broker follows its controller, and describes a value as soon as it has heard of it.
        both.wait_for("log.retention.ms=86400000 sensitive=false", "kafka-configs", "--describe", *which)
        both.same("kafka-configs", "--describe", *which)
        assert both.same("kafka-configs", "--alter", *which, "--delete-config", "log.retention.ms").code == 0


def test_offsets_are_those_of_the_records(both: Both, name: str) -> None:
    # Records of 1970 are older than a week: whichever broker looked at its retention first would have none.
    both.same("kafka-topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=-1")
    for server in (both.kafka, both.penstock):
        produce(server.bootstrap, name, "a", "b", "c", partition=0, timestamps=(2_000, 3_000, 1_000))
        produce(server.bootstrap, name, "d", partition=1, timestamps=(2_500,))
    for when, offsets in {
        "latest": (3, 1),
        "earliest": (0, 0),
        "max-timestamp": (1, 0),
        "earliest-local": (0, 0),
        "-1": (3, 1),
        "-2": (0, 0),
        "2500": (1, 0),
    }.items():
        said = both.same("kafka-get-offsets", "--topic", name, "--time", when).output
        assert said.split() == [f"{name}:{partition}:{offset}" for partition, offset in enumerate(offsets)], when
    both.refused("kafka-get-offsets", "--topic", "is-not-there")
    assert both.same("kafka-get-offsets", "--topic-partitions", f"{name}:0-2").output.count(name) == 2


def test_records_are_deleted_up_to_an_offset(both: Both, name: str, tmp_path: Path) -> None:
    both.same("kafka-topics", "--create", "--topic", name)
    both.same("kafka-console-producer", "--topic", name, given="a\nb\nc\nd\n")
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 3}]}))
    assert (
        f"partition: {name}-0 low_watermark: 3"
        in both.same("kafka-delete-records", "--offset-json-file", str(wanted)).output
    )
    assert both.same("kafka-get-offsets", "--topic", name, "--time", "earliest").output == f"{name}:0:3"
    assert both.same("kafka-console-consumer", "--topic", name, "--from-beginning", "--max-messages", "1").output == "d"


def test_the_versions_of_every_api_that_is_served_are_kafkas(both: Both) -> None:
    kafka, penstock = (
        dict(re.findall(r"^\s*(\w+\(\d+\)): ([^\[,]+)[\[,]", said.output, re.MULTILINE))
        for said in both.each(lambda server: both.run(server, "kafka-broker-api-versions"))
    )
    served = {name: versions for name, versions in penstock.items() if "UNSUPPORTED" not in versions}
    # Penstock names those of telemetry once there is a subscription, Kafka once a plugin takes the metrics.
    assert len(served) == len(SERVED) - len(TELEMETRY_APIS)
    assert {name: kafka[name] for name in served} == served


def test_the_log_directories_are_described(both: Both, name: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name, "--partitions", "2")
    for server in (both.kafka, both.penstock):
        produce(server.bootstrap, name, "a", partition=1)
    sizes = []
    for said in both.each(lambda server: both.run(server, "kafka-log-dirs", "--describe", "--topic-list", name)):
        found = json.loads(next(line for line in said.output.splitlines() if line.startswith("{")))
        (broker,) = found["brokers"]
        partitions = [
            (place["partition"], place["size"], place["offsetLag"], place["isFuture"])
            for directory in broker["logDirs"]
            for place in directory["partitions"]
        ]
        sizes.append((found["version"], broker["broker"], sorted(partitions)))
    assert sizes[0] == sizes[1]


def test_the_cluster_has_an_id(both: Both) -> None:
    for server in (both.kafka, both.penstock):
        said = both.tools.run("kafka-cluster", "cluster-id", "--bootstrap-server", server.bootstrap)
        assert re.fullmatch(r"Cluster ID: \S{22}", said.output.strip())

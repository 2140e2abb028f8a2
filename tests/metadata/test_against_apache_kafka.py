"""What we write, Kafka's tools read; what Kafka formats, we read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

from metadata.cluster import CLUSTER_ID, Cluster
from penstock.metadata import NewPartitions, TopicToDelete, parse_meta_properties, snapshot_values
from penstock.raft import (
    BOOTSTRAP_SNAPSHOT,
    Endpoint,
    HardState,
    LogView,
    OffsetAndEpoch,
    Propose,
    RaftCore,
    ReplicaKey,
    Voter,
    VoterSet,
    encode_batch,
    read_snapshot,
    snapshot_batches,
    snapshot_name,
)
from penstock.wire.messages.metadata_records import encode_metadata_record
from support.apache_kafka import available, kafka_tool

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("metadata of Apache Kafka")]

LOG = "00000000000000000000.log"
SNAPSHOT = OffsetAndEpoch(40, 3)
TIMESTAMP_MS = 1_700_000_000_000
DIRECTORY_ID = bytes(range(100, 116))
VOTERS = VoterSet.of([Voter(1, DIRECTORY_ID, (Endpoint("CONTROLLER", "localhost", 9093),))])


def a_little_history() -> Cluster:
    cluster = Cluster(2)
    cluster.create("orders", 2, 2, retention_ms="5000")
    cluster.create("gone")
    broker = cluster.image.broker(1)
    assert broker is not None
    controller = cluster.controller
    for decision in (
        controller.decide_create_partitions([NewPartitions("orders", 3)]),
        controller.decide_delete_topics([TopicToDelete("gone")]),
        controller.decide_fence_broker(1, broker.epoch),
        controller.decide_allocate_producer_ids(1, broker.epoch),
        controller.decide_unregister_broker(2),
    ):
        cluster.log += decision.records
    return cluster


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What Kafka's own decoder says of a log and a snapshot of ours, by file name."""
    if reason := available():
        pytest.skip(reason)
    cluster = a_little_history()
    core = RaftCore(ReplicaKey(1, DIRECTORY_ID), HardState(), LogView(0, BOOTSTRAP_SNAPSHOT, VOTERS), Random(1))
    batches = core.start(0).append
    batches += core.step(Propose(1, tuple(map(encode_metadata_record, cluster.log))), 1).append
    files = {
        LOG: [encode_batch(batch, TIMESTAMP_MS) for batch in batches],
        snapshot_name(SNAPSHOT): snapshot_batches(
            SNAPSHOT, VOTERS, snapshot_values(cluster.image), timestamp_ms=TIMESTAMP_MS
        ),
    }
    directory = tmp_path_factory.mktemp("__cluster_metadata-0")
    for name, parts in files.items():
        (directory / name).write_bytes(b"".join(parts))
    paths = ",".join(str(directory / name) for name in files)
    text = kafka_tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", paths).stdout
    assert "isvalid: false" not in text
    dumped = [part.split("\n", 1) for part in text.split("Dumping ")[1:]]
    return {Path(path).name: rest for path, rest in dumped}


def record_types(text: str) -> list[str]:
    payloads = [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", text, re.MULTILINE)]
    return [payload["type"] for payload in payloads]


def test_kafka_reads_our_metadata_log(dumps: dict[str, str]) -> None:
    text = dumps[LOG]
    assert record_types(text) == [
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "CONFIG_RECORD",
        "PARTITION_RECORD",
        "PARTITION_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_RECORD",
        "REMOVE_TOPIC_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "PARTITION_CHANGE_RECORD",
        "PARTITION_CHANGE_RECORD",
        "PARTITION_CHANGE_RECORD",
        "PRODUCER_IDS_RECORD",
        "PARTITION_CHANGE_RECORD",
        "PARTITION_CHANGE_RECORD",
        "PARTITION_CHANGE_RECORD",
        "UNREGISTER_BROKER_RECORD",
    ]
    assert 'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}' in text
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in text
    assert '"endpoints":[{"name":"CONTROLLER","host":"localhost","port":9093}]' in text


def test_kafka_reads_our_snapshots(dumps: dict[str, str]) -> None:
    text = dumps[snapshot_name(SNAPSHOT)]
    assert record_types(text) == [
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
    ]
    assert "Snapshot end offset: 40, epoch: 3" in text
    assert "SnapshotHeader" in text
    assert "SnapshotFooter" in text


def test_we_read_what_kafka_formats(tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    data = tmp_path / "data"
    config = tmp_path / "server.properties"
    config.write_text(
        f"process.roles=broker,controller\nnode.id=7\nlog.dirs={data}\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
    )
    kafka_tool("StorageTool", "format", "--standalone", "--cluster-id", CLUSTER_ID, "--config", str(config))
    properties = parse_meta_properties((data / "meta.properties").read_bytes())
    assert (properties.cluster_id, properties.node_id) == (CLUSTER_ID, 7)
    snapshot = read_snapshot((data / "__cluster_metadata-0" / snapshot_name(BOOTSTRAP_SNAPSHOT)).read_bytes())
    (voter,) = snapshot.voter_set.voters
    assert voter.key == ReplicaKey(7, properties.directory_id)
    assert voter.endpoints == (Endpoint("CONTROLLER", "localhost", 9093),)

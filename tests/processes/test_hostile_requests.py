"""A real cluster of three processes under requests that once ended nodes: nobody ends, and the quorum stays healthy."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import pack, unpack
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, NewTopic

from penstock.cli.fleet import CONTROLLERS_ABOVE, INTERNAL_ABOVE
from penstock.runtime.exits import EXIT_CONFIG
from penstock.sim.broker import read_answer, request_frame
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages import begin_quorum_epoch as begin
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from support.cluster import PenstockCluster

NODES = (1, 2, 3)
LONG_HOST = "a" * 64


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    config = tmp_path_factory.mktemp("config") / "server.properties"
    config.write_text("num.partitions=4\nlog.retention.hours=24\n", encoding="utf-8")
    arguments = ["--config", str(config), "--set", "log.retention.hours=48"]
    with PenstockCluster(restart=False, arguments=arguments) as running:
        # The founder is the only voter at first; the others join the quorum one after the other.
        running.wait(lambda: voters(running) == list(NODES), "have its voters")
        yield running


def ask(port: int, request: Message, version: int) -> Any:
    """One request on a connection of its own; None if it is closed instead of answered."""
    frame = request_frame(request, version, 7)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as stream:
        connection.sendall(pack(">i", len(frame)) + frame)
        head = stream.read(4)
        return read_answer(stream.read(*unpack(">i", head)), request, version, 7) if len(head) == 4 else None


def quorum(cluster: PenstockCluster, node: int = 1) -> Any:
    topic = DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])
    answer = ask(cluster.port + node - 1, DescribeQuorumRequest([topic]), 2)
    return answer.topics[0].partitions[0] if answer.topics else None


def voters(cluster: PenstockCluster) -> list[int]:
    """As the leader says; none while there is no leader."""
    described = quorum(cluster)
    return [] if described is None else [voter.replica_id for voter in described.current_voters]


def expect_health(cluster: PenstockCluster, topic: str) -> None:
    """All processes of before are alive, the quorum has its three voters, and records are acknowledged by all."""
    assert "ended with exit code" not in cluster.log()
    cluster.wait(lambda: voters(cluster) == list(NODES), "have its voters")
    cluster.admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    failed: list[object] = []
    for number in range(30):
        producer.produce(topic, b"x", partition=number % 3, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None] * 30


def test_a_healthy_start_and_new_topics_warn_of_nothing(cluster: PenstockCluster) -> None:
    expect_health(cluster, "first")
    unpleasant = [line for line in cluster.log().splitlines() if " WARN " in line or " ERROR " in line]
    assert unpleasant == []


def test_settings_of_a_file_and_of_the_command_line_reach_every_node(cluster: PenstockCluster) -> None:
    for node in NODES:
        broker = ConfigResource(ConfigResource.Type.BROKER, str(node))
        entries = cluster.admin.describe_configs([broker])[broker].result(30)
        assert (entries["num.partitions"].value, entries["log.retention.hours"].value) == ("4", "48")


def test_clients_cannot_fetch_as_followers_where_clients_come_in(cluster: PenstockCluster) -> None:
    topic = FetchTopic(topic_id=b"t" * 16, partitions=[FetchPartition(partition=0)])
    request = FetchRequest(replica_state=ReplicaState(replica_id=2, replica_epoch=1), topics=[topic])
    for_clients = [ask(cluster.port + node - 1, request, 17).error_code for node in NODES]
    assert for_clients == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3
    # Where brokers come in it is looked at: it comes under an epoch that broker 2 does not have.
    assert ask(cluster.port + INTERNAL_ABOVE, request, 17).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_voter_with_a_host_that_no_resolver_takes_ends_no_node(cluster: PenstockCluster) -> None:
    for host, port in ((LONG_HOST, 9092), ("a\0b", 9092), ("", 9092), ("a" * 300, 9092), ("127.0.0.1", 0)):
        request = AddRaftVoterRequest(
            cluster_id=None, voter_id=9, voter_directory_id=b"d" * 16, listeners=[Listener("CONTROLLER", host, port)]
        )
        # Whichever node takes it, the active controller decides: two of these took the quorum from a cluster of three.
        for node in NODES:
            answer = ask(cluster.port + node - 1, request, 0)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert "is not" in answer.error_message
    expect_health(cluster, "after-voters")


def test_a_forged_leader_with_such_a_host_ends_no_node(cluster: PenstockCluster) -> None:
    before = quorum(cluster)
    directories = {voter.replica_id: voter.replica_directory_id for voter in before.current_voters}
    refused = [(LONG_HOST, 9092, 77), ("127.0.0.1", 0, 77), (LONG_HOST, 9092, 2)]
    forged = [*refused, ("127.0.0.1", 1, 77), ("b.invalid", 9, 77)]
    for number, (host, port, leader_id) in enumerate(forged, 1):
        for node in NODES:
            partition = begin.BeginQuorumEpochRequestPartitionData(
                voter_directory_id=directories[node], leader_id=leader_id, leader_epoch=before.leader_epoch + number
            )
            topic = begin.BeginQuorumEpochRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
            endpoint = begin.LeaderEndpoint(name="CONTROLLER", host=host, port=port)
            request = begin.BeginQuorumEpochRequest(
                cluster_id=None, voter_id=node, topics=[topic], leader_endpoints=[endpoint]
            )
            answer = ask(cluster.port + CONTROLLERS_ABOVE + node - 1, request, 1)
            if (host, port, leader_id) in refused and leader_id != node:
                assert answer.error_code == ErrorCode.INVALID_REQUEST
    expect_health(cluster, "after-leaders")


@pytest.mark.parametrize("given", ["listeners=PLAINTEXT://127.0.0.1:1", "node.id=4", "log.dirs=/tmp/elsewhere"])
def test_what_each_node_has_of_its_own_cannot_be_given_to_all(tmp_path: Path, given: str) -> None:
    command = [sys.executable, "-m", "penstock", "up", "--brokers", "3", "--data", str(tmp_path / "data")]
    ended = subprocess.run([*command, "--set", given], capture_output=True, text=True, timeout=60)
    assert ended.returncode == EXIT_CONFIG
    assert f"{given.split('=')[0]}: with --brokers every node gets its own" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_setting_that_no_node_could_start_with_is_refused_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "up", "--brokers", "3", "--data", str(tmp_path / "data")]
    ended = subprocess.run([*command, "--set", "num.partitions=none"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == EXIT_CONFIG
    assert "num.partitions" in ended.stderr
    assert not (tmp_path / "data").exists()

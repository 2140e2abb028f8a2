"""Kafka's own tools on a cluster of three processes: quorum, features, brokers that are gone, leaders.

`penstock cluster quorum` is asked beside them.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from support.cluster import PenstockCluster
from support.kafka_tools import KafkaTools, Said
from support.ports import free_ports
from support.server_process import die_with_parent

pytestmark = [
    pytest.mark.needs_maven,
    pytest.mark.xdist_group("tools of Kafka"),
    pytest.mark.long,
    pytest.mark.timeout(400),
]

TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster() -> Iterator[PenstockCluster]:
    with PenstockCluster(restart=False) as running:
        new = NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})
        running.admin.create_topics([new])[TOPIC].result(30)
        yield running


def told(tools: KafkaTools, cluster: PenstockCluster, tool: str, *arguments: str) -> Said:
    said = tools.run(tool, "--bootstrap-server", cluster.bootstrap, *arguments)
    assert said.code == 0, said
    return said


def status(tools: KafkaTools, cluster: PenstockCluster) -> dict[str, str]:
    said = told(tools, cluster, "kafka-metadata-quorum", "describe", "--status")
    return dict(re.findall(r"^(\w+):\s+(.*)$", said.output, re.MULTILINE))


def voters(tools: KafkaTools, cluster: PenstockCluster) -> dict[int, str]:
    """Node id → directory id."""
    found = json.loads(status(tools, cluster)["CurrentVoters"])
    return {voter["id"]: voter["directoryId"] for voter in found}


def has_caught_up(tools: KafkaTools, cluster: PenstockCluster, node: str) -> bool:
    table = told(tools, cluster, "kafka-metadata-quorum", "describe", "--replication").output
    rows = [line.split() for line in table.splitlines() if line.split()[:1] == [node]]
    return any(lag == "0" and caught_up != "-1" for _, _, _, lag, _, caught_up, *_ in rows)


def test_the_quorum_is_described_alike_by_both_tools(tools: KafkaTools, cluster: PenstockCluster) -> None:
    said = status(tools, cluster)
    assert int(said["LeaderId"]) == cluster.controller()
    assert sorted(voters(tools, cluster)) == [1, 2, 3]
    assert int(said["HighWatermark"]) > 0
    assert int(said["MaxFollowerLag"]) >= 0
    endpoints = [endpoint for voter in json.loads(said["CurrentVoters"]) for endpoint in voter["endpoints"]]
    assert [endpoint.rpartition(":")[2] for endpoint in endpoints] == [str(cluster.port + 100 + n) for n in range(3)]
    table = told(tools, cluster, "kafka-metadata-quorum", "describe", "--replication").output
    roles = [(line.split()[0], line.split()[-1]) for line in table.splitlines() if line[:1].isdigit()]
    assert sorted(node for node, _ in roles) == ["1", "2", "3"]
    assert sorted(role for _, role in roles) == ["Follower", "Follower", "Leader"]
    ours = subprocess.run(
        [sys.executable, "-m", "penstock", "cluster", "quorum", "--bootstrap-server", cluster.bootstrap, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    described = json.loads(ours.stdout)
    assert described["leader"] == int(said["LeaderId"])


def test_the_controllers_themselves_are_asked(tools: KafkaTools, cluster: PenstockCluster) -> None:
    controllers = ",".join(f"127.0.0.1:{cluster.port + 100 + number}" for number in range(3))
    said = tools.run("kafka-metadata-quorum", "--bootstrap-controller", controllers, "describe", "--status")
    assert said.code == 0, said
    assert f"LeaderId:               {cluster.controller()}" in said.output
    features = tools.run("kafka-features", "--bootstrap-controller", controllers, "describe")
    assert features.code == 0, features
    assert "Feature: metadata.version" in features.output


def test_a_controller_is_added_and_removed(tools: KafkaTools, cluster: PenstockCluster, tmp_path: Path) -> None:
    with Observer(cluster, tmp_path) as observer:
        cluster.wait(lambda: has_caught_up(tools, cluster, "4"), "see that the observer has everything")
        said = tools.run(
            "kafka-metadata-quorum",
            "--bootstrap-server",
            cluster.bootstrap,
            "--command-config",
            str(observer.config),
            "add-controller",
        )
        assert said.code == 0, said
        directory = voters(tools, cluster)[4]
        assert sorted(voters(tools, cluster)) == [1, 2, 3, 4]
        removal = ["remove-controller", "--controller-id", "4", "--controller-directory-id"]
        wrong = tools.run(
            "kafka-metadata-quorum", "--bootstrap-server", cluster.bootstrap, *removal, "AAAAAAAAAAAAAAAAAAAAAQ"
        )
        assert wrong.code != 0
        assert "VoterNotFoundException" in wrong.output + wrong.errors
        told(tools, cluster, "kafka-metadata-quorum", *removal, directory)
        assert sorted(voters(tools, cluster)) == [1, 2, 3]


def test_features_are_described_and_changed_all_or_nothing(tools: KafkaTools, cluster: PenstockCluster) -> None:
    described = told(tools, cluster, "kafka-features", "describe").output
    levels = {line.split()[1]: line.split()[-3] for line in described.splitlines() if line.startswith("Feature:")}
    assert "metadata.version" in levels
    unknown = tools.run(
        "kafka-features", "--bootstrap-server", cluster.bootstrap, "upgrade", "--feature", "metadata.version=99"
    )
    assert unknown.code != 0
    assert told(tools, cluster, "kafka-features", "describe").output.count("\n") == described.count("\n")
    elr = "eligible.leader.replicas.version"
    lowered = told(tools, cluster, "kafka-features", "downgrade", "--feature", f"{elr}=0").output
    assert f"{elr} was downgraded to 0" in lowered
    raised = told(tools, cluster, "kafka-features", "upgrade", "--feature", f"{elr}=1").output
    assert f"{elr} was upgraded to 1" in raised


def test_a_broker_that_is_gone_is_unregistered_and_leaders_go_back(tools: KafkaTools, cluster: PenstockCluster) -> None:
    gone = next(node for node in (1, 2, 3) if node != cluster.controller())
    living = tools.run("kafka-cluster", "unregister", "--bootstrap-server", cluster.bootstrap, "--id", str(gone))
    assert living.code != 0
    cluster.signal(gone, signal.SIGTERM)
    cluster.wait(lambda: all(leader not in (gone, -1) for leader in cluster.leaders(TOPIC).values()), "hand over")
    cluster.wait(
        lambda: (
            tools.run("kafka-cluster", "unregister", "--bootstrap-server", cluster.bootstrap, "--id", str(gone)).code
            == 0
        ),
        "unregister a broker that was stopped",
    )
    endpoints = tools.run("kafka-cluster", "list-endpoints", "--bootstrap-server", cluster.bootstrap).output
    assert not re.search(rf"^{gone}\s", endpoints, re.MULTILINE)
    election = tools.run(
        "kafka-leader-election",
        "--bootstrap-server",
        cluster.bootstrap,
        "--election-type",
        "preferred",
        "--all-topic-partitions",
    )
    assert "PreferredLeaderNotAvailable" in election.output + election.errors


class Observer:
    """A controller of its own that follows the cluster and does not vote."""

    def __init__(self, cluster: PenstockCluster, directory: Path) -> None:
        (port,) = free_ports(1)
        servers = ",".join(f"127.0.0.1:{cluster.port + 100 + number}" for number in range(3))
        self.config = directory / "controller.properties"
        self.config.write_text(
            "process.roles=controller\n"
            "node.id=4\n"
            f"listeners=CONTROLLER://127.0.0.1:{port}\n"
            "controller.listener.names=CONTROLLER\n"
            f"controller.quorum.bootstrap.servers={servers}\n"
            f"log.dirs={directory / 'data'}\n"
        )
        self._log = (directory / "log").open("wb")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Observer:
        command = [sys.executable, "-m", "penstock", "server", "--config", str(self.config)]
        self._process = subprocess.Popen([*die_with_parent(), *command], stdout=self._log, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

"""kafka-reassign-partitions against a cluster of Penstock's under load: generate, execute, verify, list, cancel."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from processes.test_cluster import TOPIC, Load
from support.cluster import PenstockCluster
from support.kafka_tools import KafkaTools, Said

pytestmark = [
    pytest.mark.needs_maven,
    pytest.mark.xdist_group("tools of Kafka"),
    pytest.mark.long,
    pytest.mark.timeout(400),
]

BULK = "bulk"
WAIT_S = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[PenstockCluster]:
    with PenstockCluster(4) as running:
        assignments = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        new = [
            NewTopic(TOPIC, 3, replica_assignment=assignments, config={"min.insync.replicas": "2"}),
            NewTopic(BULK, 1, replica_assignment=[[1, 2]]),
        ]
        for created in running.admin.create_topics(new).values():
            created.result(30)
        yield running


class Tool:
    def __init__(self, cluster: PenstockCluster, tools: KafkaTools, directory: Path) -> None:
        self._cluster = cluster
        self._tools = tools
        self._directory = directory

    def run(self, *arguments: str) -> Said:
        return self._tools.run(
            "kafka-reassign-partitions", "--bootstrap-server", self._cluster.bootstrap.split(",")[0], *arguments
        )

    def file(self, name: str, content: object) -> str:
        path = self._directory / name
        path.write_text(json.dumps(content))
        return str(path)

    def plan(self, **replicas: list[list[int]]) -> str:
        partitions = [
            {"topic": topic, "partition": number, "replicas": ids}
            for topic, all_ids in replicas.items()
            for number, ids in enumerate(all_ids)
        ]
        return self.file(f"plan-{len(list(self._directory.iterdir()))}.json", {"version": 1, "partitions": partitions})

    def wait_until_moved(self, plan: str) -> Said:
        deadline_s = time.monotonic() + WAIT_S
        while True:
            said = self.run("--verify", "--reassignment-json-file", plan)
            if "still in progress" not in said.output:
                return said
            assert time.monotonic() < deadline_s, said.output


@pytest.fixture
def tool(cluster: PenstockCluster, tools: KafkaTools, tmp_path: Path) -> Tool:
    return Tool(cluster, tools, tmp_path)


def replicas_of(cluster: PenstockCluster, topic: str) -> dict[int, list[int]]:
    found = cluster.admin.list_topics(topic, timeout=30).topics[topic].partitions
    return {number: list(partition.replicas) for number, partition in found.items()}


def test_a_plan_of_the_tools_is_carried_out_under_load_while_a_broker_is_killed(
    cluster: PenstockCluster, tool: Tool
) -> None:
    load = Load(cluster)
    load.wait_for_more(cluster)
    topics = tool.file("topics.json", {"version": 1, "topics": [{"topic": TOPIC}]})
    said = tool.run("--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3,4")
    assert said.code == 0, said
    proposed = json.loads(said.output.split("Proposed partition reassignment configuration\n")[1])
    wanted = {entry["partition"]: entry["replicas"] for entry in proposed["partitions"]}
    assert {replica for ids in wanted.values() for replica in ids} == {2, 3, 4}
    plan = tool.file("proposed.json", proposed)
    said = tool.run("--execute", "--reassignment-json-file", plan, "--throttle", "5000000")
    assert "Successfully started partition reassignment" in said.output, said
    cluster.kill(4)
    said = tool.wait_until_moved(plan)
    assert said.output.count("is completed.") == 3, said
    assert "Clearing broker-level throttles" in said.output
    assert "Clearing topic-level throttles" in said.output
    assert replicas_of(cluster, TOPIC) == wanted
    load.wait_for_more(cluster)
    load.verify()
    assert not list((cluster.data / "node-1").glob(f"{TOPIC}-[0-9]"))
    assert "No partition reassignments found." in tool.run("--list").output


def test_a_throttled_move_is_listed_and_cancelled_and_the_throttle_goes(cluster: PenstockCluster, tool: Tool) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50})
    for _ in range(300):
        producer.produce(BULK, bytes(100_000), partition=0)
    assert producer.flush(60) == 0
    plan = tool.plan(bulk=[[3, 4]])
    # 30 MB at 100 kB/s to each of two: it goes on for minutes, unless it is cancelled.
    said = tool.run("--execute", "--reassignment-json-file", plan, "--throttle", "100000")
    assert "Successfully started partition reassignment" in said.output, said
    listed = tool.run("--list").output
    assert re.search(r"bulk-0: replicas: 3,4,1,2\. adding: 3,4\. removing: 1,2\.", listed), listed
    told = tool.run("--verify", "--reassignment-json-file", plan, "--preserve-throttles").output
    assert "Reassignment of partition bulk-0 is still in progress." in told
    said = tool.run("--cancel", "--reassignment-json-file", plan)
    assert "Successfully cancelled partition reassignment for: bulk-0" in said.output, said
    assert sorted(replicas_of(cluster, BULK)[0]) == [1, 2]
    cluster.wait(lambda: not list((cluster.data / "node-4").glob(f"{BULK}-[0-9]")), "remove what was copied")
    said = tool.run("--cancel", "--reassignment-json-file", plan)
    assert "None of the specified partition reassignments are active." in said.output, said


def test_replicas_are_added(cluster: PenstockCluster, tool: Tool) -> None:
    plan = tool.plan(bulk=[[1, 2, 3]])
    refused = tool.run("--execute", "--reassignment-json-file", plan, "--disallow-replication-factor-change")
    assert refused.code != 0
    assert "bulk-0: The replication factor is changed from 2 to 3" in refused.output
    assert tool.run("--execute", "--reassignment-json-file", plan).code == 0
    assert "is completed." in tool.wait_until_moved(plan).output
    cluster.wait(lambda: cluster.in_sync(BULK)[0] == [1, 2, 3], "be in sync")


def test_a_plan_with_an_unknown_broker_is_refused(cluster: PenstockCluster, tool: Tool) -> None:
    before = replicas_of(cluster, BULK)
    said = tool.run("--execute", "--reassignment-json-file", tool.plan(bulk=[[1, 9]]))
    assert said.code != 0
    assert "Unknown broker id 9" in said.output + said.errors
    assert replicas_of(cluster, BULK) == before

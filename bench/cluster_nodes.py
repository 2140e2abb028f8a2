"""Three nodes, brokers and controllers at once, of either side, that can be killed one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench import processes
from bench.model import Side
from bench.topics import create_topics
from penstock.client import ClientError, ClientSettings, Cluster
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from support.apache_kafka import ApacheKafka
from support.penstock import PenstockServer
from support.ports import free_ports
from support.server_process import ServerFailed, ServerProcess

NODES: Final = 3
WAIT_TIMEOUT_S: Final = 60
PAUSE_S: Final = 0.02

DURABLE: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
"""On both sides. Nothing else is set unless a case says so."""

KAFKA_ONLY: Mapping[str, str] = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class ThreeNodes:
    """A cluster, while the `with` block lasts."""

    def __init__(self, side: Side, command: Sequence[str], directory: Path, properties: Mapping[str, str]) -> None:
        self.side = side
        ports = free_ports(2 * NODES)
        self.nodes: dict[int, ServerProcess] = {
            number: _node(side, number, ports, command, directory, properties) for number in range(1, NODES + 1)
        }
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes.values())
        self._down: set[int] = set()

    def __enter__(self) -> Self:
        try:
            for node in self.nodes.values():
                node.format()
            for node in self.nodes.values():
                node.start(wait=False)
            for node in self.nodes.values():
                node.wait_until_ready(WAIT_TIMEOUT_S)
            self.wait(lambda: len(self._cluster_ids()) == NODES, "know all brokers")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for node in reversed(self.nodes.values()):
            node.close()

    # ---- faults

    def kill(self, number: int) -> float:
        """kill -9. Returns when, by the monotonic clock: just before."""
        self._down.add(number)
        at_s = time.monotonic()
        self.nodes[number].kill()
        return at_s

    def start(self, number: int) -> None:
        self._down.discard(number)
        self.nodes[number].start(wait=False)

    # ---- what it is like

    def create(self, topic: str, partitions: int) -> None:
        create_topics(self.bootstrap, {topic: partitions}, replication_factor=NODES)
        self.wait_whole(topic)

    def leaders(self, topic: str) -> list[int]:
        """Who leads each partition, as soon as each has a leader among the nodes that are up."""
        found: list[int] = []

        def look() -> bool:
            found[:] = self._leaders_now(topic)
            return bool(found) and all(number in self.nodes and number not in self._down for number in found)

        self.wait(look, f"have leaders of {topic}")
        return found

    def wait_whole(self, topic: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Until every replica of the topic is in sync, as every node has heard."""
        whole = "have all replicas in sync"
        self.wait(lambda: all(self._whole(topic, number) for number in self.nodes), whole, timeout_s)

    def controller(self) -> int:
        found: list[int] = []

        def look() -> bool:
            number = self.controller_now()
            if number is not None:
                found.append(number)
            return number is not None

        self.wait(look, "have a controller")
        return found[0]

    def controller_now(self) -> int | None:
        asked = [DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])]
        with suppress(ClientError, IndexError), self._client() as cluster:
            answer = cluster.any_broker().call(DescribeQuorumRequest(asked), DescribeQuorumResponse)
            number = answer.topics[0].partitions[0].leader_id
            return number if number > 0 else None
        return None

    def living_bootstrap(self) -> str:
        return ",".join(node.bootstrap for number, node in self.nodes.items() if number not in self._down)

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            for number, node in self.nodes.items():
                if number not in self._down and not node.alive():
                    raise ServerFailed(f"{node.name} {number} has ended:\n{node.log_tail()}")
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"{self.side.value} did not {what} within {timeout_s:.0f} s")
            time.sleep(PAUSE_S)

    def cpu_s(self) -> float:
        return sum(processes.cpu_s(node.pid) for node in self.nodes.values())

    def memory(self) -> processes.Memory:
        each = [processes.memory(node.pid) for node in self.nodes.values()]
        return processes.Memory(sum(one.rss_mb for one in each), sum(one.pss_mb for one in each))

    def _leaders_now(self, topic: str) -> list[int]:
        with suppress(ClientError), self._client() as cluster:
            return [one.leader_id for one in cluster.topics([topic])[topic].partitions]
        return []

    def _whole(self, topic: str, number: int) -> bool:
        with suppress(ClientError), self._client(self.nodes[number].bootstrap) as cluster:
            partitions = cluster.topics([topic])[topic].partitions
            return all(one.leader_id > 0 and len(one.in_sync) == len(one.replicas) for one in partitions)
        return False

    def _cluster_ids(self) -> list[int]:
        with suppress(ClientError), self._client() as cluster:
            cluster.topics()
            return cluster.broker_ids()
        return []

    def _client(self, bootstrap: str | None = None) -> Cluster:
        return Cluster(
            ClientSettings.from_properties(
                {
                    "bootstrap.servers": bootstrap or self.living_bootstrap(),
                    "request.timeout.ms": 3000,
                    "default.api.timeout.ms": 3000,
                }
            )
        )


def _node(
    side: Side, number: int, ports: Sequence[int], command: Sequence[str], directory: Path, more: Mapping[str, str]
) -> ServerProcess:
    port, controller_ports = ports[number - 1], ports[NODES:]
    properties = {
        "node.id": str(number),
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(
            f"{voter}@127.0.0.1:{controller_ports[voter - 1]}" for voter in range(1, NODES + 1)
        ),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_ports[number - 1]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        **DURABLE,
        **(KAFKA_ONLY if side is Side.KAFKA else {}),
        **more,
    }
    node: ServerProcess
    if side is Side.PENSTOCK:
        node = PenstockServer(properties, directory=directory, command=command)
    else:
        assert side is Side.KAFKA, f"{side} is no server"
        node = ApacheKafka(directory=directory, properties=properties)
    node.port = port
    node.bootstrap = f"127.0.0.1:{port}"
    return node

"""Several Apache Kafka nodes on loopback: the first one is broker and controller, the others are brokers."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from support.apache_kafka import CLUSTER_ID, ApacheKafka
from support.ports import free_ports
from support.server_process import admin_client
from support.waiting import wait_until

HEAP = "256M"


class Node(ApacheKafka):
    """One of them."""

    def __init__(
        self, number: int, controller_port: int, properties: Mapping[str, str], directory: Path | None
    ) -> None:
        super().__init__(heap=HEAP, directory=directory)
        self.number = number
        listeners = f"PLAINTEXT://{self.bootstrap}"
        if number == 1:
            listeners += f",CONTROLLER://127.0.0.1:{controller_port}"
        more = {
            "process.roles": "broker,controller" if number == 1 else "broker",
            "node.id": str(number),
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": listeners,
            **properties,
        }
        given = dict(line.split("=", 1) for line in self._properties_path.read_text(encoding="utf-8").splitlines())
        lines = [f"{name}={value}\n" for name, value in {**given, **more}.items()]
        self._properties_path.write_text("".join(lines), encoding="utf-8")

    def format(self) -> None:
        """A broker needs no more than its name; Kafka's tool, which takes seconds, is for the controller alone."""
        if self.number == 1:
            super().format()
            return
        if not self.data_dir.exists():
            self.data_dir.mkdir()
            directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            (self.data_dir / "meta.properties").write_text(
                f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={self.number}\ndirectory.id={directory_id}\n"
            )


class ApacheKafkaCluster:
    """Brokers 1 to N. Each may be killed, stopped and started again, all but the first without harm to the others."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Mapping[int, str] | None = None,
        properties: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        (self._controller_port,) = free_ports(1)
        self._racks = dict(racks or {})
        self._properties = {"offsets.topic.replication.factor": str(min(3, brokers)), **(properties or {})}
        self._directory = directory
        self.nodes = {number: self._node(number) for number in range(1, brokers + 1)}

    def __enter__(self) -> Self:
        try:
            for node in self.nodes.values():
                node.start(wait=node.number == 1)
            wait_until(lambda: len(self.serving()) == len(self.nodes), 90)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def serving(self) -> list[int]:
        """The brokers that are in service."""
        return sorted(self.admin.list_topics(timeout=10).brokers)

    def kill(self, number: int) -> None:
        self.nodes[number].kill()

    def restart(self, number: int) -> None:
        self.nodes[number].start()

    def close(self) -> None:
        # The controller last: the others could not say goodbye without it.
        for node in reversed(self.nodes.values()):
            node.close()

    @cached_property
    def admin(self) -> AdminClient:
        return admin_client(self.bootstrap)

    def _node(self, number: int) -> Node:
        rack = {"broker.rack": self._racks[number]} if number in self._racks else {}
        return Node(number, self._controller_port, {**self._properties, **rack}, self._directory)

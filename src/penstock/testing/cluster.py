"""A cluster of nodes in this process."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.config.local_cluster import COPIES_MAX, NODE_SETTINGS, NodeAddress, node_settings, quorum_size
from penstock.metadata import MetadataImage, MetaProperties, format_directory
from penstock.raft import Endpoint, Voter, VoterSet
from penstock.runtime.identity import random_uuid
from penstock.testing.network import HOST, Network, reserve_port
from penstock.testing.node import Node
from penstock.testing.records import Outgoing, Record, RecordClient
from penstock.testing.security import ClusterSecurity
from penstock.wire.messages.metadata_records import UserScramCredentialRecord
from penstock.wire.uuids import format_uuid

__all__ = ["DEFAULTS", "Cluster", "ClusterFailed"]

BROKERS_MAX = 9
WAIT_TIMEOUT_S = 30.0
WAIT_STEP_S = 0.005

DEFAULTS = {
    # Short timeouts, so that a test that removes a broker sees the effect soon and not after Kafka's nine seconds; but
    # long enough that a busy machine does not lose brokers by itself.
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "controller.quorum.election.timeout.ms": "50",
    "controller.quorum.fetch.timeout.ms": "1000",
    # A group of one consumer need not wait for more members, nor for fifty partitions of __consumer_offsets.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "num.partitions": "1",
}
"""Settings that differ from the broker's defaults; see also the replication factors in `Cluster`."""


class ClusterFailed(Exception):
    """A wait timed out; the message includes the nodes' logs."""


class Cluster:
    """Brokers 1 to `brokers`, running from `start` (or `with`) to `close`.

    `settings` are broker properties, under Kafka's names, for all nodes. With three brokers, topics have three replicas
    and acks=all needs two of them; with one broker, they have one.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        directory: Path | str | None = None,
        secure: bool = False,
    ) -> None:
        """`directory`: an empty directory for the data, which is kept; a temporary one is used if it is not given.
        `secure`: clients log in with SCRAM over TLS, and nodes authenticate each other with certificates;
        `client_settings` then are the administrator's."""
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers={brokers}: a cluster in one process can have 1 to {BROKERS_MAX}")
        self._keeps_data = directory is not None
        if directory is not None and Path(directory).exists() and any(Path(directory).iterdir()):
            raise ValueError(f"{directory} is not empty: a cluster must start without data")
        self.directory = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="penstock-"))
        self.network = Network()
        self._held: list[socket.socket] = []
        self.security: ClusterSecurity | None = None
        """Certificates, if the cluster is `secure`."""
        if secure:
            self.security = ClusterSecurity.create(self.directory / "security", HOST, brokers)
        self.nodes = self._make_nodes(brokers, dict(settings or {}))
        self._record_client = RecordClient(self.client_settings)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- lifecycle

    def start(self) -> None:
        """Starts every node that is not running; returns when every node sees all of them in service."""
        for node in self.nodes:
            if not node.is_alive:
                node.begin()
        for node in self.nodes:
            node.await_ready()
        self.await_ready()

    def await_ready(self) -> None:
        """Waits until every running node sees all running nodes in service: after a start, or once a fault is over."""
        self.wait_until(self._in_service, "have every broker in service")

    def stop(self) -> None:
        """Stops all nodes cleanly. `start` brings them back with their data."""
        for node in reversed(self.nodes):
            node.stop()

    def close(self) -> None:
        """Ends all nodes at once and removes their data."""
        for node in self.nodes:
            node.kill()
        for held in self._held:
            held.close()
        if not self._keeps_data:
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- for clients

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def client_settings(self, **more: object) -> dict[str, Any]:
        """Settings for a confluent-kafka client of this cluster, which notices soon when a node comes back.

        Underscores in names stand for dots: `client_settings(group_id="g")`.
        """
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **({} if self.security is None else self.security.client_settings()),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    # ---- topics and records

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Creates a topic and waits until every node knows it; returns its name."""
        copies = min(COPIES_MAX, len(self.nodes)) if replication_factor is None else replication_factor
        self._record_client.create_topic(name, partitions, copies, dict(config or {}))
        self.wait_until(lambda: self._knows_topic(name, partitions), f"know the topic {name}")
        return name

    def new_topic(self, prefix: str = "topic", partitions: int = 1, **more: object) -> str:
        """Creates a topic with a unique name; `more` as for `create_topic`."""
        name = f"{re.sub('[^A-Za-z0-9._-]+', '-', prefix)[:80].strip('-')}-{uuid.uuid4().hex[:8]}"
        return self.create_topic(name, partitions, **more)  # type: ignore[arg-type]

    def produce(self, topic: str, records: Iterable[Outgoing], **settings: object) -> list[Record]:
        """Sends records and waits until all are acknowledged (acks=all); returns them with partitions and offsets.

        A record is a value, a (key, value) pair, or a `Record`; text is encoded as UTF-8. `settings` are those of a
        confluent-kafka producer, with underscores for dots. Raises the error of the first record that fails.
        """
        return self._record_client.produce(topic, records, settings)

    def consume(self, topic: str, count: int | None = None, *, timeout_s: float = 10.0) -> list[Record]:
        """Reads a topic from its beginning: `count` records, or all that exist now.

        Records are in order within each partition. Raises TimeoutError if `count` records did not arrive in time. It
        uses no consumer group, so the application's groups are not affected.
        """
        return self._record_client.consume(topic, count, timeout_s)

    # ---- roles

    def node(self, node_id: int) -> Node:
        if not 1 <= node_id <= len(self.nodes):
            raise ValueError(f"there is no node {node_id}: they are 1 to {len(self.nodes)}")
        return self.nodes[node_id - 1]

    @property
    def controller(self) -> Node:
        """The active controller; waits until there is one."""
        self.wait_until(lambda: any(node.is_controller for node in self.nodes), "have a controller")
        return next(node for node in self.nodes if node.is_controller)

    def leader(self, topic: str, partition: int = 0) -> Node:
        """The partition's leader, from the newest metadata of a running node; waits until a live one leads."""
        self.wait_until(lambda: self._leader(topic, partition) is not None, f"have a leader of {topic}-{partition}")
        found = self._leader(topic, partition)
        assert found is not None
        return found

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The ids of the nodes whose replicas are in sync."""
        image = self._newest_image()
        state = image.partition(topic, partition) if image is not None else None
        return sorted(state.isr) if state is not None else []

    def wait_until(
        self, condition: Callable[[], object], what: str = "do what was waited for", timeout_s: float = WAIT_TIMEOUT_S
    ) -> None:
        """Waits until the condition holds; raises ClusterFailed, with the nodes' logs, on timeout."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                raise ClusterFailed(f"the cluster did not {what} within {timeout_s:g} s\n{self.logs()}")
            time.sleep(WAIT_STEP_S)

    def logs(self) -> str:
        """The logs of all nodes."""
        return "\n".join(f"--- {node!r}\n{node.log}" for node in self.nodes)

    # ---- the network between nodes

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Blocks all bytes from one node to the other, and back unless `one_way`. No connection is closed."""
        self._check(one, other)
        self.network.cut(one, other)
        if not one_way:
            self.network.cut(other, one)
        self._network_changed()

    def heal(self, one: int, other: int) -> None:
        """Undoes `cut`; held bytes arrive now."""
        self._check(one, other)
        self.network.heal(one, other)
        self.network.heal(other, one)
        self._network_changed()

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all other nodes. Clients still reach it."""
        for other in self.nodes:
            if other.id != node_id:
                self.cut(node_id, other.id)

    def heal_all(self) -> None:
        """Undoes all cuts, between nodes and from clients."""
        self.network.heal_all()
        self._network_changed()

    def _check(self, one: int, other: int) -> None:
        if self.node(one) is self.node(other):
            raise ValueError(f"node {one} cannot be cut off from itself")

    def _network_changed(self) -> None:
        for node in self.nodes:
            node.network_changed()

    # ---- making

    def _make_nodes(self, count: int, settings: dict[str, str]) -> list[Node]:
        for _ in range(len(NodeAddress._fields[1:]) * count):
            self._held.append(reserve_port())
        ports = [held.getsockname()[1] for held in self._held]
        addresses = [NodeAddress(HOST, *ports[index::count]) for index in range(count)]
        nodes = []
        for node_id, address in enumerate(addresses, 1):
            for port in address[1:]:
                self.network.listens(port, node_id)
            directory = self.directory / f"node-{node_id}"
            security = None if self.security is None else str(self.security.directory)
            own = node_settings(node_id, count, lambda number: addresses[number - 1], security)
            fixed = {name: value for name, value in own.items() if name in NODE_SETTINGS}
            given = {**DEFAULTS, **own, **settings, **fixed, "log.dirs": str(directory)}
            nodes.append(Node(node_id, address.clients, directory, given, self.network))
        if count > 1 or self.security is not None:
            credentials = [] if self.security is None else self.security.credentials()
            _format(nodes, [address.controllers for address in addresses[: quorum_size(count)]], credentials)
        return nodes

    # ---- looking

    def _images(self) -> list[MetadataImage]:
        return [image for node in self.nodes if not node.is_paused and (image := node.image) is not None]

    def _newest_image(self) -> MetadataImage | None:
        return max(self._images(), key=lambda image: image.offset, default=None)

    def _in_service(self) -> bool:
        wanted = [node.id for node in self.nodes if node.is_alive and not node.is_paused]
        return bool(wanted) and all(
            all((broker := image.broker(node_id)) is not None and not broker.fenced for node_id in wanted)
            for image in self._images()
        )

    def _knows_topic(self, name: str, partitions: int) -> bool:
        states = [image.partition(name, number) for image in self._images() for number in range(partitions)]
        return bool(states) and all(state is not None and state.leader > 0 for state in states)

    def _leader(self, topic: str, partition: int) -> Node | None:
        image = self._newest_image()
        state = image.partition(topic, partition) if image is not None else None
        if state is None or state.leader < 1:
            return None
        node = self.node(state.leader)
        return node if node.is_alive else None


def _format(nodes: list[Node], controller_ports: list[int], credentials: list[UserScramCredentialRecord]) -> None:
    """Gives the nodes one cluster id and one voter set, so that they need not find each other first."""
    cluster_id = format_uuid(random_uuid(os.urandom))
    directory_ids = [random_uuid(os.urandom) for _ in nodes]
    voters = VoterSet.of(
        Voter(node.id, directory_id, (Endpoint("CONTROLLER", HOST, port),))
        for node, directory_id, port in zip(nodes, directory_ids, controller_ports, strict=False)
    )
    for node, directory_id in zip(nodes, directory_ids, strict=True):
        known = voters if node.id in voters.ids else VoterSet()
        identity = MetaProperties(cluster_id, node.id, directory_id)
        now_ms = time.time_ns() // 1_000_000
        for name, data in format_directory(identity, known, timestamp_ms=now_ms, credentials=credentials).items():
            path = node.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

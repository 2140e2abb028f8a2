"""A client of a whole cluster: it finds leaders and coordinators by itself, and times out on unresponsive nodes."""

from __future__ import annotations

from typing import Any

from penstock.sim.broker import Answer, ProtocolClient
from penstock.sim.cluster import SimCluster
from penstock.sim.runtime import SimRuntime
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

__all__ = ["ClusterClient", "NoLeader", "PartitionClient"]

REQUEST_TIMEOUT_MS = 4_000.0
METADATA_VERSION = 12
FIND_COORDINATOR_VERSION = 4


class NoLeader(OSError):
    """There is no leader, or no node knows it. An OSError, because clients handle it like an unreachable node."""


class ClusterClient:
    """At most one connection to each node."""

    def __init__(self, runtime: SimRuntime, cluster: SimCluster) -> None:
        self.runtime = runtime
        self.cluster = cluster
        self._clients: dict[int, ProtocolClient] = {}

    async def connection(self, node_id: int) -> ProtocolClient:
        client = self._clients.get(node_id)
        if client is None or client.frames.is_lost:
            client = self._clients[node_id] = await self.cluster.connect(self.runtime, node_id)
        return client

    async def call(
        self, node_id: int, request: Message, version: int, *, timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> Any:
        """Sends a request; raises OSError if there is no response in time."""
        client = await self.connection(node_id)
        return await self.within(node_id, client, client.send(request, version), timeout_ms=timeout_ms)

    async def within(
        self, node_id: int, client: ProtocolClient, answer: Answer, *, timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> Any:
        timer = self.runtime.call_later(timeout_ms, client.frames.abort)
        try:
            return await answer
        except OSError:
            self.forget(node_id)
            raise
        finally:
            timer.cancel()

    def forget(self, node_id: int) -> None:
        """Closes the connection to a node: the next request opens another."""
        client = self._clients.pop(node_id, None)
        if client is not None:
            client.frames.abort()

    def any_broker(self) -> int:
        """A random broker: a client knows all of them, but not which of them work."""
        return self.runtime.rng.choice([node.node_id for node in self.cluster.nodes if node.is_broker])

    async def coordinator(self, group: str) -> int:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        (found,) = (await self.call(self.any_broker(), request, FIND_COORDINATOR_VERSION)).coordinators
        if found.error_code:
            raise NoLeader(f"no coordinator: {ErrorCode(found.error_code).name}")
        return int(found.node_id)


class PartitionClient(ClusterClient):
    """The knowledge of a producer or reader of one partition."""

    def __init__(self, runtime: SimRuntime, cluster: SimCluster, topic: str, partition: int) -> None:
        super().__init__(runtime, cluster)
        self.topic = topic
        self.partition = partition
        self.leader = -1
        self.leader_epoch = -1

    async def find_leader(self) -> int:
        """The leader, if known, else asked from any node. Ignores answers from an older epoch."""
        if self.leader >= 0:
            return self.leader
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        answer = await self.call(self.any_broker(), wanted, METADATA_VERSION)
        for topic in answer.topics:
            for entry in topic.partitions:
                if entry.partition_index == self.partition and entry.leader_epoch >= self.leader_epoch:
                    self.leader, self.leader_epoch = entry.leader_id, entry.leader_epoch
        if self.leader < 0:
            raise NoLeader(f"{self.topic}-{self.partition} has no leader")
        return self.leader

    def doubt(self) -> None:
        """Forgets the leader, so that it is looked up again."""
        self.leader = -1

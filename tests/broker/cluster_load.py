"""Clients of a whole cluster: they find leaders by themselves, try again, and remember what they were told.

A `Ledger` produces (idempotent, acks=all) and reads (up to the high watermark), and in the end compares with what the
cluster has: nothing acknowledged may be lost, doubled or moved, nothing that was read may be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.session import batch, fetch_request, produce_request, records_of
from penstock.sim import SimRuntime
from penstock.sim.broker import ProtocolClient
from penstock.sim.cluster import SimCluster, SimNode
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

REQUEST_TIMEOUT_MS = 5_000.0
PRODUCE_TIMEOUT_MS = 2_000
RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class ClusterClient:
    """One client: a connection to each node, and its knowledge of one partition's leader."""

    def __init__(self, runtime: SimRuntime, cluster: SimCluster, topic: str = "t", partition: int = 0) -> None:
        self.runtime = runtime
        self.cluster = cluster
        self.topic = topic
        self.partition = partition
        self.leader = -1
        self.leader_epoch = -1
        self._clients: dict[int, ProtocolClient] = {}

    async def call(self, node_id: int, request: Message, version: int) -> Any:
        """OSError if there is no answer, at the latest after a while."""
        client = self._clients.get(node_id)
        if client is None or client.frames.is_lost:
            client = self._clients[node_id] = await self.cluster.connect(self.runtime, node_id)
        timer = self.runtime.call_later(REQUEST_TIMEOUT_MS, client.close)
        try:
            return await client.call(request, version)
        except OSError:
            self._clients.pop(node_id, None)
            raise
        finally:
            timer.cancel()

    async def find_leader(self) -> int:
        """Ask any node for the leader; older epochs are ignored."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        nodes = [node.node_id for node in self.cluster.nodes if node.is_broker]
        try:
            answer = await self.call(self.runtime.rng.choice(nodes), wanted, 12)
        except OSError:
            return -1
        (topic,) = answer.topics
        if topic.error_code or self.partition >= len(topic.partitions):
            return -1
        (entry,) = [one for one in topic.partitions if one.partition_index == self.partition]
        if entry.leader_epoch >= self.leader_epoch:
            self.leader, self.leader_epoch = entry.leader_id, entry.leader_epoch
        return self.leader

    async def produce(
        self, *values: bytes, acks: int = -1, timeout_ms: int = PRODUCE_TIMEOUT_MS, **options: Any
    ) -> Any:
        """One attempt at the leader; None if there is no leader or no response."""
        if self.leader < 0 and await self.find_leader() < 0:
            return None
        request = produce_request(self.topic, batch(*values, **options), self.partition, acks, timeout_ms=timeout_ms)
        try:
            answer = await self.call(self.leader, request, 12)
        except OSError:
            self.leader = -1
            return None
        (topic,) = answer.responses
        result = topic.partition_responses[0]
        if result.error_code:
            self.leader = -1
        return result

    async def fetch(self, offset: int, **options: Any) -> Any:
        if self.leader < 0 and await self.find_leader() < 0:
            return None
        request = fetch_request(self.topic, offset, self.partition, **options)
        try:
            answer = await self.call(self.leader, request, 12)
        except OSError:
            self.leader = -1
            return None
        data = answer.responses[0].partitions[0]
        if data.error_code:
            self.leader = -1
        return data

    async def all_values(self) -> list[bytes]:
        """All readable records, from the leader."""
        found: list[bytes] = []
        while True:
            data = await self.fetch(len(found))
            if data is None or data.error_code:
                await self.runtime.sleep(100)
                continue
            new = [record.value or b"" for record in records_of(data) if record.offset >= len(found)]
            if not new:
                return found
            found += new

    async def until(self, condition: Callable[[], bool], *, limit_ms: float = 120_000) -> float:
        began_ms = self.runtime.now_ms()
        while not condition():
            assert self.runtime.now_ms() - began_ms < limit_ms, "it never became so"
            await self.runtime.sleep(10)
        return self.runtime.now_ms() - began_ms


class Ledger:
    """What clients were told about one partition."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.read: dict[int, bytes] = {}
        self.retries = 0
        self.longest_gap_ms = 0.0
        self.over = False

    def check(self, final: list[bytes]) -> None:
        assert len(dict.fromkeys(final)) == len(final), "a record is there twice"
        for offset, value in self.acknowledged.items():
            assert final[offset : offset + 1] == [value], f"{value!r} was acknowledged at {offset}"
        assert list(self.acknowledged) == sorted(self.acknowledged), "the order of one producer's records changed"
        for offset, value in self.read.items():
            assert final[offset : offset + 1] == [value], f"{value!r} was read at {offset}"

    async def produce(self, client: ClusterClient, producer_id: int, pause_ms: float) -> None:
        """Until told that it is over: record after record, each until it is acknowledged."""
        sequence = 0
        last_ms = client.runtime.now_ms()
        while not self.over:
            value = b"%d-%06d" % (producer_id, sequence)
            result = await client.produce(value, producer_id=producer_id, epoch=0, sequence=sequence)
            if result is not None and not result.error_code:
                assert result.base_offset not in self.acknowledged, "one offset, two records"
                self.acknowledged[result.base_offset] = value
                sequence += 1
                now_ms = client.runtime.now_ms()
                self.longest_gap_ms = max(self.longest_gap_ms, now_ms - last_ms)
                last_ms = now_ms
                await client.runtime.sleep(client.runtime.rng.uniform(0, 2 * pause_ms))
                continue
            assert result is None or result.error_code in RETRIABLE, result
            self.retries += 1
            await client.runtime.sleep(client.runtime.rng.uniform(1, 50))

    async def consume(self, client: ClusterClient, pause_ms: float) -> None:
        offset = 0
        while not self.over:
            data = await client.fetch(offset, max_wait_ms=200, min_bytes=1)
            if data is not None and not data.error_code:
                for record in records_of(data):
                    if record.offset >= offset:
                        assert record.offset < data.high_watermark
                        self.read[record.offset] = record.value or b""
                        offset = record.offset + 1
            await client.runtime.sleep(client.runtime.rng.uniform(1, 2 * pause_ms))


def log_of(node: SimNode, topic: str = "t", partition: int = 0) -> Any:
    found = node.served.manager.table.find(topic.encode(), partition)
    return None if found is None else found.log


def high_watermark(node: SimNode, topic: str = "t", partition: int = 0) -> int:
    found = node.served.manager.table.find(topic.encode(), partition)
    return -1 if found is None else found.high_watermark


def bytes_of(log: Any) -> bytes:
    """The bytes of a log on its disk."""
    return b"".join(segment.file.read(segment.size_bytes, 0) for segment in log.segments)

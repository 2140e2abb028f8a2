"""A transactional producer of a simulated cluster. It finds coordinators and leaders, and retries."""

from __future__ import annotations

from typing import Any

from broker.cluster_load import ClusterClient
from broker.session import fetch_request
from broker.transactional import committed_values, transactional, transactional_request
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest

PAUSE_MS = 50
SETTINGS = {
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
}
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class TransactionalProducer:
    """Version 2 of transactions: Produce v12, EndTxn v5."""

    def __init__(self, runtime: SimRuntime, cluster: SimCluster, transactional_id: str = "ledger") -> None:
        self.client = ClusterClient(runtime, cluster)
        self.runtime = runtime
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def to_coordinator(self, request: Message, version: int) -> Any:
        """Ask the coordinator until it answers something that is not worth a retry."""
        nodes = [node.node_id for node in self.client.cluster.nodes if node.is_broker]
        while True:
            try:
                asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
                found = (await self.client.call(self.runtime.rng.choice(nodes), asked, 4)).coordinators[0]
                if not found.error_code:
                    answer = await self.client.call(found.node_id, request, version)
                    if answer.error_code not in RETRIABLE:
                        return answer
            except OSError:
                pass
            await self.runtime.sleep(PAUSE_MS)

    async def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = await self.to_coordinator(request, 4)
        assert answer.error_code == 0, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    async def send(self, *values: bytes, topic: str = "t", partition: int = 0) -> int:
        """Produce until the batch is acknowledged; its first offset."""
        sequence = self.sequences.get((topic, partition), 0)
        records = transactional(*values, producer_id=self.producer_id, epoch=self.epoch, sequence=sequence)
        request = transactional_request(topic, records, partition, transactional_id=self.transactional_id)
        leader = ClusterClient(self.runtime, self.client.cluster, topic, partition)
        while True:
            if await leader.find_leader() >= 0:
                try:
                    answer = await leader.call(leader.leader, request, 12)
                    (part,) = answer.responses[0].partition_responses
                    if not part.error_code:
                        self.sequences[topic, partition] = sequence + len(values)
                        return int(part.base_offset)
                    assert part.error_code in RETRIABLE, part
                except OSError:
                    pass
            await self.runtime.sleep(PAUSE_MS)

    async def end(self, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = await self.to_coordinator(request, 5)
        assert answer.error_code == 0, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()


async def read_committed(client: ClusterClient, node_id: int | None = None) -> tuple[list[bytes], int]:
    """The values that a consumer with isolation.level=read_committed shows, and the last stable offset; from the
    leader, or from any replica."""
    values: list[bytes] = []
    offset = 0
    while True:
        if node_id is None:
            data = await client.fetch(offset, isolation_level=1)
        else:
            request = fetch_request(client.topic, offset, client.partition, isolation_level=1)
            data = (await client.call(node_id, request, 12)).responses[0].partitions[0]
        if data is None or data.error_code:
            await client.runtime.sleep(PAUSE_MS)
            continue
        found, following = committed_values(data, offset)
        values += found
        if following == offset:
            return values, data.last_stable_offset
        offset = following

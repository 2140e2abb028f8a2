"""Clients with the time-outs that Kafka's clients have by default, and how long they had to wait.

A `PatientProducer` does what librdkafka does: one batch after another with acks=all, sent again until it is
acknowledged; a produce request may take 30 s at the broker; who leads is asked of any broker, and asked again
soon after an error. It sees every node, however the nodes see each other, unless the test cuts it off.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from broker.cluster_load import RETRIABLE, ClusterClient
from broker.session import batch, produce_request
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster
from penstock.wire.codec import Message

PRODUCE_TIMEOUT_MS = 30_000
"""librdkafka's and Java's `request.timeout.ms`."""
SOCKET_TIMEOUT_MS = 60_000.0
RETRY_MS = 100.0
PAUSE_MS = 100.0
"""Between an acknowledgement and the next batch."""


class PatientProducer(ClusterClient):
    def __init__(self, runtime: SimRuntime, cluster: SimCluster, topic: str, partition: int) -> None:
        super().__init__(runtime, cluster, topic, partition)
        self.acknowledged_ms: list[float] = []
        self.over = False

    async def call(self, node_id: int, request: Message, version: int) -> Any:
        client = self._clients.get(node_id)
        if client is None or client.frames.is_lost:
            client = self._clients[node_id] = await self.cluster.connect(self.runtime, node_id)
        timer = self.runtime.call_later(SOCKET_TIMEOUT_MS, client.frames.abort)
        try:
            return await client.call(request, version)
        finally:
            timer.cancel()

    async def run(self, producer_id: int) -> None:
        sequence = 0
        while not self.over:
            if self.leader < 0 and await self.find_leader() < 0:
                await self.runtime.sleep(RETRY_MS)
                continue
            records = batch(b"%d" % sequence, producer_id=producer_id, epoch=0, sequence=sequence)
            request = produce_request(self.topic, records, self.partition, -1, timeout_ms=PRODUCE_TIMEOUT_MS)
            try:
                answer = await self.call(self.leader, request, 12)
            except OSError:
                self.leader = -1
                continue
            result = answer.responses[0].partition_responses[0]
            if not result.error_code:
                self.acknowledged_ms.append(self.runtime.now_ms())
                sequence += 1
                await self.runtime.sleep(PAUSE_MS)
                continue
            assert result.error_code in RETRIABLE, result
            self.leader = -1
            await self.runtime.sleep(RETRY_MS)

    def longest_gap_ms(self) -> float:
        """The longest time without an acknowledgement, up to now."""
        times = [*self.acknowledged_ms, self.runtime.now_ms()]
        return max(after - before for before, after in pairwise(times))

    def waited_ms(self, since_ms: float) -> float:
        """From this moment until the next acknowledgement."""
        return next((time - since_ms for time in self.acknowledged_ms if time >= since_ms), float("inf"))

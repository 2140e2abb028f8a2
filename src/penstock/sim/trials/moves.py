"""Continuously moves partitions to other brokers, or cancels such moves, through any node."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sim.trials.clients import ClusterClient
from penstock.sim.trials.load import Ledger, Violation
from penstock.sim.trials.schedule import LOAD_TOPIC, OFFSETS
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

__all__ = ["Moves"]

VERSION = 1
EXPECTED = (
    ErrorCode.NONE,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # A cancellation that would lose records.
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
)


@dataclass
class Moves:
    """An administrator that keeps changing the target. A requested move may be carried out later, or never."""

    client: ClusterClient
    ledger: Ledger
    pause_ms: float
    begun: int = 0
    cancelled: int = 0

    async def run(self) -> None:
        rng = self.client.runtime.rng
        brokers = [node.node_id for node in self.client.cluster.nodes if node.is_broker]
        while not self.ledger.over:
            target = None if rng.random() < 0.2 else rng.sample(brokers, min(3, len(brokers)))
            entry = ReassignablePartition(partition_index=rng.randrange(2), replicas=target)
            topic = ReassignableTopic(name=rng.choice((LOAD_TOPIC, LOAD_TOPIC, OFFSETS)), partitions=[entry])
            try:
                answer = await self.client.call(
                    self.client.any_broker(), AlterPartitionReassignmentsRequest(topics=[topic]), VERSION
                )
            except OSError:
                await self.client.runtime.sleep(100)
                continue
            if not answer.error_code:
                self._note(ErrorCode(answer.responses[0].partitions[0].error_code), target)
            await self.client.runtime.sleep(rng.uniform(0, 6 * self.pause_ms))

    def _note(self, code: ErrorCode, target: list[int] | None) -> None:
        if code not in EXPECTED or (target is not None and code is ErrorCode.INVALID_REPLICA_ASSIGNMENT):
            raise Violation(f"a move to {target} was refused with {code.name}")
        self.begun += code is ErrorCode.NONE and target is not None
        self.cancelled += code is ErrorCode.NONE and target is None

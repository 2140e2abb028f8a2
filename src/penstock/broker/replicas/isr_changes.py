"""Sends ISR proposals to the controller (AlterPartition).

One request is in flight at a time, with all proposals made before it was sent. The controller's result is one of these:

- recorded: the partition applies it, without waiting for the metadata log;
- refused (a replica that may not join, KIP-841 and KIP-903): the partition returns to the recorded ISR;
- outdated (another epoch, another leader): the metadata log will bring the new state. Until then the partition counts
  both ISRs, because it is unknown which of them the controller has;
- any other error, or no response: the proposal is sent again, because it may have been recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from penstock.broker.net.peers import SILENCE_MS
from penstock.broker.replicas.partition import Partition
from penstock.metadata import PartitionState
from penstock.replication import IsrProposal, Leader
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.runtime.tasks import keep_running
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

TIMEOUT_MS = 30_000
RETRY_MS = 100
QUIET_MS = 1_000
"""How long a leader makes no new proposal after a refusal."""

UNKNOWN_EPOCH = -1

REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
OLD_NEWS = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class ControllerCalls(Protocol):
    """The part of `penstock.broker.net.peers.Peers` that is needed."""

    async def controller_call(self, request: Message, *, timeout_ms: float, silence_ms: float) -> Any: ...


class Pending(NamedTuple):
    leader: Leader
    proposal: IsrProposal


class IsrChanges:
    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        calls: ControllerCalls,
        node_id: int,
        settled: Callable[[Partition], None],
    ) -> None:
        self._runtime = runtime
        self._events = events
        self._calls = calls
        self._node_id = node_id
        self._settled = settled
        """Called when a partition may make its next proposal."""
        self._pending: dict[Partition, Pending] = {}
        self._running = False
        self._closed = False
        self.broker_epoch = -1
        """The epoch of this broker's registration."""
        self.shrinks = 0
        self.expands = 0

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        assert partition.leader is not None
        self._pending[partition] = Pending(partition.leader, proposal)
        if not self._running and not self._closed:
            self._running = True
            self._runtime.spawn(keep_running(self._runtime, self._run, "ISR changes"), "ISR changes")

    def close(self) -> None:
        self._closed = True

    # ---- requests

    async def _run(self) -> None:
        while self._pending and not self._closed:
            if not await self._ask():
                await self._runtime.sleep(RETRY_MS)
        self._running = False

    async def _ask(self) -> bool:
        """Send one request. Returns False if it must be repeated after a pause."""
        for partition, pending in list(self._pending.items()):
            if not is_open(partition, pending):
                del self._pending[partition]
        asked = dict(self._pending)
        if not asked:
            return True
        try:
            response = await self._calls.controller_call(
                self._request(asked), timeout_ms=TIMEOUT_MS, silence_ms=SILENCE_MS
            )
        except KafkaError as error:
            self._events.recurring("ISR change not answered", "", error=str(error))
            return False
        assert isinstance(response, AlterPartitionResponse)
        if response.error_code:
            # An error of the whole request: the controller knows another registration of this broker.
            self._events.recurring("ISR change not accepted", "", error=ErrorCode(response.error_code).name)
            return False
        results = {
            (topic.topic_id, entry.partition_index): entry for topic in response.topics for entry in topic.partitions
        }
        again = False
        for partition, pending in asked.items():
            result = results.get((partition.topic_id, partition.index))
            if not is_open(partition, pending) or self._pending.get(partition) is not pending:
                continue
            if result is None or not self._settle(partition, pending, result):
                again = True
                continue
            del self._pending[partition]
            if partition.leader is pending.leader:
                self._settled(partition)
        return not again

    def _request(self, asked: dict[Partition, Pending]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for partition, (leader, proposal) in asked.items():
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = AlterPartitionRequestTopicData(
                    topic_id=partition.topic_id, partitions=[]
                )
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[self._member(leader, replica) for replica in proposal.isr],
                    new_isr=list(proposal.isr),
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self.broker_epoch, topics=list(topics.values())
        )

    def _member(self, leader: Leader, replica: int) -> BrokerState:
        """A member of the proposed ISR, with the broker epoch that was seen to be in sync; -1 if unknown."""
        if replica == self._node_id:
            return BrokerState(broker_id=replica, broker_epoch=self.broker_epoch)
        # If it stopped being a replica since the proposal was made, the controller knows that and refuses it.
        follower = leader.followers.get(replica)
        return BrokerState(broker_id=replica, broker_epoch=UNKNOWN_EPOCH if follower is None else follower.broker_epoch)

    # ---- responses

    def _settle(self, partition: Partition, pending: Pending, result: AlterPartitionResponsePartitionData) -> bool:
        """Apply the controller's result for one partition. Returns False if the proposal must be sent again."""
        leader, proposal = pending
        now_ms = self._runtime.now_ms()
        code = result.error_code
        if code in REFUSED:
            name = str(partition)
            self._events.recurring("ISR change refused", name, partition=name, isr=str(proposal.isr))
            partition.isr_refused(now_ms + QUIET_MS)
            return True
        if code in OLD_NEWS:
            return True
        if code:
            self._events.recurring(
                "ISR change failed", str(partition), partition=str(partition), error=ErrorCode(code).name
            )
            return False
        if result.leader_id != self._node_id or result.leader_epoch != leader.leader_epoch:
            return True
        state = partition.state
        assert state is not None
        recorded = PartitionState(
            replicas=state.replicas,
            isr=tuple(result.isr),
            leader=result.leader_id,
            leader_epoch=result.leader_epoch,
            partition_epoch=result.partition_epoch,
        )
        self.record(partition, recorded)
        return True

    def record(self, partition: Partition, state: PartitionState) -> None:
        """Apply the state that the controller recorded, as its response or the metadata log reported it."""
        assert partition.leader is not None
        before = partition.leader.isr
        partition.isr_recorded(state, self._runtime.now_ms())
        after = partition.leader.isr
        if before == after:
            return
        grown = len(after) > len(before)
        self.expands += grown
        self.shrinks += not grown
        self._events.info(
            "ISR expanded" if grown else "ISR shrunk", partition=str(partition), before=str(before), after=str(after)
        )


def is_open(partition: Partition, pending: Pending) -> bool:
    """Whether the leadership that made the proposal continues, and the controller has reported nothing new since."""
    leader = pending.leader
    return partition.leader is leader and leader.proposed == pending.proposal.isr

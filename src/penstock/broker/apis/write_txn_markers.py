"""WriteTxnMarkers (27): end transactions in partitions that this broker leads.

Served: v1–v2. v1 is flexible, v2 carries the version of the transaction (KIP-1228). A transaction coordinator sends it;
operators may, to abort a transaction that hangs. Only listeners for nodes of the cluster accept it.

- A marker is answered when it is committed, as with acks=all.
- An older producer epoch is refused (INVALID_PRODUCER_EPOCH), and an older coordinator epoch
  (TRANSACTION_COORDINATOR_FENCED). In version 2 of transactions the epoch must be above that of the open transaction. A
  marker with the same epoch and no open transaction repeats one whose answer was lost, and succeeds (KAFKA-19999).
- A marker for a producer that the partition does not know is accepted.
- In `__consumer_offsets` the group coordinator writes the marker, and with it the pending offsets take effect.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.broker.replicas.partition import Partition
from penstock.coordinators.groups import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.coordinators.shard import CoordinatorEpoch, EndMarker, Producer, ProducerEpoch, ProducerId, Ticket, Turn
from penstock.metadata import CONSUMER_OFFSETS
from penstock.runtime import Future
from penstock.wire.acls import Operation
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TIMEOUT_MS = 30_000
"""How long an answer waits for the commit. The coordinator repeats markers that were not committed in time."""

NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors of a group coordinator for which the sender must look for the leader again, as in Kafka."""


async def serve(node: Node, request: Request, body: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not may_end_transactions(request):
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "only nodes of the cluster end transactions: use a listener for nodes (inter.broker.listener.name)",
        )
    writing = Writing(node)
    response = WriteTxnMarkersResponse()
    results: dict[int, WritableTxnMarkerResult] = {}
    slices = Slices(node.runtime)
    for marker in body.markers:
        # An answer has one result for each producer, as in Kafka.
        result = results.get(marker.producer_id)
        if result is None:
            result = results[marker.producer_id] = WritableTxnMarkerResult(producer_id=marker.producer_id)
            response.markers.append(result)
        for topic in marker.topics:
            answers = []
            for index in dict.fromkeys(topic.partition_indexes):
                answer = WritableTxnMarkerPartitionResult(partition_index=index)
                answers.append(answer)
                writing.write(topic.name, index, marker, answer)
                await slices.breathe()
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=answers))
    await writing.done()
    return response


def may_end_transactions(request: Request) -> bool:
    """An operator may, too, as in Kafka (`kafka-transactions abort`)."""
    return request.client.listener_info.for_nodes and (
        request.allowed_on_cluster(Operation.ALTER) or request.allowed_on_cluster(Operation.CLUSTER_ACTION)
    )


def end_marker_of(marker: WritableTxnMarker) -> EndMarker:
    return EndMarker(
        Producer(ProducerId(marker.producer_id), ProducerEpoch(marker.producer_epoch)),
        marker.transaction_result,
        CoordinatorEpoch(marker.coordinator_epoch),
        marker.transaction_version,
    )


def end_transaction(shard: GroupShard, turn: Turn, ticket: Ticket, marker: EndMarker) -> None:
    shard.end_transaction(turn, marker)
    turn.reply(ticket, WritableTxnMarkerPartitionResult())


class Writing:
    """The markers of one request, until all are committed or refused."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[int, tuple[Partition | None, WritableTxnMarkerPartitionResult]] = {}
        """Markers that are written and not committed, by number."""
        self._count = 0
        self._done: Future[None] | None = None

    def write(
        self, topic: str, index: int, marker: WritableTxnMarker, answer: WritableTxnMarkerPartitionResult
    ) -> None:
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            answer.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            return
        if topic == CONSUMER_OFFSETS:
            self._write_offsets(index, end_marker_of(marker), answer)
            return
        partition = self._node.table.find(topic.encode(), index)
        if partition is None:
            known = self._node.image.topic(topic)
            elsewhere = known is not None and 0 <= index < len(known.partitions)
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        try:
            appended = partition.append_marker(end_marker_of(marker), self._node.runtime.wall_ms())
            number = self._wait(partition, answer)
            if partition.await_commit(appended.last_offset + 1, -1, self, number):
                self.reached(number, ErrorCode.NONE)
        except KafkaError as error:
            answer.error_code = error.code

    def _write_offsets(self, index: int, marker: EndMarker, answer: WritableTxnMarkerPartitionResult) -> None:
        """Only the host of the group coordinator writes to its partition."""
        number = self._wait(None, answer)

        def refused(code: ErrorCode) -> WritableTxnMarkerPartitionResult:
            return WritableTxnMarkerPartitionResult(
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if code in NOT_READY else code
            )

        def answered(reply: PendingReply) -> None:
            result, code = reply.answer, ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(result, WritableTxnMarkerPartitionResult):
                code = ErrorCode(result.error_code)
            self.reached(number, code)

        groups = self._node.coordinators
        groups.ask_partition(index, end_transaction, marker, refused, claim=marker).then(answered)

    def _wait(self, partition: Partition | None, answer: WritableTxnMarkerPartitionResult) -> int:
        self._count += 1
        self._waiting[self._count] = (partition, answer)
        return self._count

    def reached(self, token: int, error: ErrorCode) -> None:
        """A marker is committed, or never will be by this leader."""
        waited = self._waiting.pop(token, None)
        if waited is None:
            return  # too late: it was answered as timed out
        waited[1].error_code = error
        if not self._waiting and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def done(self) -> None:
        if not self._waiting:
            return
        self._done = self._node.runtime.future()
        timer = self._node.runtime.call_later(TIMEOUT_MS, self._timed_out)
        await self._done
        timer.cancel()

    def _timed_out(self) -> None:
        for number, (partition, _) in list(self._waiting.items()):
            if partition is not None:
                partition.forget(self, number)
            self.reached(number, ErrorCode.REQUEST_TIMED_OUT)

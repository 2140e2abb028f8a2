"""TxnOffsetCommit (28): commit the offsets of a group as part of a transaction.

Served: v0–v5. v2 leader epochs (KIP-320), v3 flexible, and names the member of the group (KIP-447), v4 allows
TRANSACTION_ABORTABLE, v5 adds the group's partition to the transaction (KIP-890): no AddOffsetsToTxn is needed.
v6 (topic ids, KIP-1319) is not served.
The first commit of a transaction in a partition asks the transaction coordinator, as the first batch of a Produce does
(`penstock.broker.produce.verifying`). The offsets take effect when the transaction commits.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.broker.produce.verifying import TransactionalBatch
from penstock.broker.replicas.partition import Partition
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.groups.transactional_commits import refused
from penstock.coordinators.shard import Producer, ProducerEpoch, ProducerId
from penstock.log.producers import ProducerState
from penstock.metadata import CONSUMER_OFFSETS, TRANSACTION_VERSION
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

KNOWS_LOADING_FROM = 2
"""The first version whose clients understand COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
KNOWS_ABORTABLE_FROM = 4
ADDS_PARTITION_FROM = 5
VERSION_2 = 2
QUESTIONS_MAX = 3
"""How often the coordinator is asked, if markers of earlier transactions arrive meanwhile."""

RETRIED = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR)
"""Errors of the transaction coordinator that pass by themselves, and that clients do not expect here. They would take
NOT_COORDINATOR for a word about the group's coordinator."""


async def serve(node: Node, request: Request, body: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    request.check(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id)
    request.check(Operation.READ, ResourceKind.GROUP, body.group_id)
    body.topics, denied = request.split(Operation.READ, ResourceKind.TOPIC, body.topics, lambda topic: topic.name)
    response = TxnOffsetCommitResponse()
    if body.topics:
        try:
            await verify(node, request, body)
            response = await commit(node, request, body)
        except KafkaError as error:
            response = refused(body.topics, shown(error.code, request.version))
    response.topics += refused(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED).topics
    return response


async def commit(node: Node, request: Request, body: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    asked = node.coordinators.ask(
        body.group_id,
        GroupShard.txn_offset_commit,
        request,
        body,
        lambda code: refused(body.topics, shown(code, request.version)),
        claim=Producer(ProducerId(body.producer_id), ProducerEpoch(body.producer_epoch)),
    )
    return await node.coordinators.settled(asked, TxnOffsetCommitResponse)


async def verify(node: Node, request: Request, body: TxnOffsetCommitRequest) -> None:
    """Make sure that the group's partition belongs to an open transaction. Raises KafkaError. Until the offsets are
    submitted the loop must not be given back: a marker would end the transaction."""
    if body.producer_id < 0 or body.producer_epoch < 0 or not body.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "offsets of a transaction need a producer and a transactional id")
    adds = request.version >= ADDS_PARTITION_FROM and node.image.features.get(TRANSACTION_VERSION, 0) >= VERSION_2
    batch = TransactionalBatch(
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        0,
        adds,
        request.version >= KNOWS_ABORTABLE_FROM,
    )
    for _ in range(QUESTIONS_MAX if adds else 1):
        partition, producers = led(node, body.group_id)
        known = producers.get(body.producer_id)
        if known is not None:
            # Before the coordinator is asked: a fenced producer must learn that, and can recover (KAFKA-19690).
            known.check_epoch(body.producer_id, body.producer_epoch)
        verification = producers.begin_verification(
            body.producer_id, body.producer_epoch, 0, node.runtime.wall_ms(), is_new_state_expected=adds
        )
        if verification is None:
            return
        code = await node.verifier.ask(partition.topic, partition.index, batch, verification)
        if code:
            raise KafkaError(code)
        _, producers = led(node, body.group_id)
        known = producers.get(body.producer_id)
        if known is not None and known.has_open_transaction(body.producer_epoch):
            return
        if producers.verification_of(body.producer_id) is verification:
            return
        # A marker arrived meanwhile. In version 2 that of the last transaction has the epoch of this one: ask again.
    raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction ended before its offsets were written")


def led(node: Node, group_id: str) -> tuple[Partition, ProducerState]:
    """The partition of the group, if this broker leads it. Raises KafkaError."""
    index = node.coordinators.partition_of(group_id)
    partition = None if index is None else node.table.find(CONSUMER_OFFSETS.encode(), index)
    if partition is None or partition.leader is None or partition.log is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    return partition, partition.log.producers


def shown(code: ErrorCode, version: int) -> ErrorCode:
    """The error for a client of this version, as in Kafka."""
    if code in RETRIED:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < KNOWS_LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code

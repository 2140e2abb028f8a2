"""AddPartitionsToTxn (24): partitions that a transaction writes to.

Served: v0–v5. v2 adds PRODUCER_FENCED, v3 is flexible. v0–v3 come from producers, for one transaction. v4 (KIP-890) is
for brokers: it has several transactions, and may verify only that partitions belong to an open transaction. v5 allows
TRANSACTION_ABORTABLE.
If any partition is refused, none of its transaction is added: the others are answered OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.coordinators.host import PendingReply
from penstock.coordinators.transactions import TransactionShard
from penstock.coordinators.transactions.shard import added
from penstock.metadata import is_internal
from penstock.wire.acls import CLUSTER_NAME, Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)

FROM_BROKERS = 4


async def serve(node: Node, request: Request, body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if request.version >= FROM_BROKERS:
        request.check(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER_NAME)
        # All are asked before the first answer is waited for, so that they share batches.
        asked = [asked_for(node, request, transaction) for transaction in body.transactions]
        results = []
        slices = Slices(node.runtime)
        for one in asked:
            results.append(await result_of(node, one))
            await slices.breathe()
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=body.v3_and_below_transactional_id,
        producer_id=body.v3_and_below_producer_id,
        producer_epoch=body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )
    result = await result_of(node, asked_for(node, request, transaction))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


async def result_of(node: Node, asked: PendingReply | AddPartitionsToTxnResult) -> AddPartitionsToTxnResult:
    if isinstance(asked, PendingReply):
        return await node.transactions.settled(asked, AddPartitionsToTxnResult)
    return asked


def asked_for(
    node: Node, request: Request, transaction: AddPartitionsToTxnTransaction
) -> PendingReply | AddPartitionsToTxnResult:
    """Ask the coordinator of one transaction, unless a partition is refused before."""
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    from_producer = request.version < FROM_BROKERS
    name = transaction.transactional_id
    if from_producer and not request.allowed(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, name):
        return added(transaction, dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    denied: frozenset[str] = frozenset()
    if from_producer:
        topics = [topic.name for topic in transaction.topics]
        _, refused = request.split(Operation.WRITE, ResourceKind.TOPIC, topics, lambda topic: topic)
        # Producers do not write to internal topics; AddOffsetsToTxn adds that of offsets.
        denied = frozenset([*refused, *filter(is_internal, topics)])
    errors = {}
    for partition in partitions:
        if partition[0] in denied:
            errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif node.image.partition(*partition) is None:
            errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if errors:
        return added(transaction, {**dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED), **errors})

    def failed(code: ErrorCode) -> AddPartitionsToTxnResult:
        return added(transaction, dict.fromkeys(partitions, code))

    writes = not transaction.verify_only
    return node.transactions.ask(name, TransactionShard.add_partitions, request, transaction, failed, writes=writes)

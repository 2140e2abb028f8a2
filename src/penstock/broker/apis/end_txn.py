"""EndTxn (26): commit or abort a transaction.

Served: v0–v5. v2 adds PRODUCER_FENCED, v3 is flexible, v4 allows TRANSACTION_ABORTABLE (KIP-890), v5 belongs to
transactions of version 2: it raises the producer's epoch and answers with the producer's id and epoch.
The answer leaves when the decision is committed; the markers are written afterwards
(`penstock.coordinators.transactions.ending`).
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.host import PendingReply
from penstock.coordinators.transactions import TransactionShard
from penstock.coordinators.transactions.ending import VERSION_2_FROM
from penstock.coordinators.transactions.transaction import LAST_EPOCH
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


def serve(node: Node, request: Request, body: EndTxnRequest) -> PendingReply | Awaitable[EndTxnResponse]:
    request.check(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id)
    if body.producer_epoch >= LAST_EPOCH and request.version >= VERSION_2_FROM:
        return with_new_id(node, request, body)
    return ask(node, request, body)


def ask(node: Node, request: Request, body: EndTxnRequest) -> PendingReply:
    return node.transactions.ask(body.transactional_id, TransactionShard.end_txn, request, body, request.refused)


async def with_new_id(node: Node, request: Request, body: EndTxnRequest) -> EndTxnResponse:
    """The epochs of the producer id are used up: the coordinator needs another one, and cannot wait for it."""
    try:
        await node.producer_ids.available()
    except KafkaError as error:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from None
    return await node.transactions.settled(ask(node, request, body), EndTxnResponse)

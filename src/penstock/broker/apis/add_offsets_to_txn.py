"""AddOffsetsToTxn (25): a transaction will commit offsets of a group.

Served: v0–v4. v2 adds PRODUCER_FENCED, v3 is flexible, v4 allows TRANSACTION_ABORTABLE (KIP-890). The partition of
`__consumer_offsets` that belongs to the group becomes part of the transaction. Transactions of version 2 do without
this request: TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.transactions import TransactionShard
from penstock.metadata import CONSUMER_OFFSETS
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


async def serve(node: Node, request: Request, body: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    request.check(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id)
    request.check(Operation.READ, ResourceKind.GROUP, body.group_id)
    await node.coordinators.ensure_topic()
    index = node.coordinators.partition_of(body.group_id)
    if index is None:
        # Created, but this broker has not heard of it yet.
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    call = partial(TransactionShard.add_offsets, partition=(CONSUMER_OFFSETS, index))
    asked = node.transactions.ask(body.transactional_id, call, request, body, request.refused)
    return await node.transactions.settled(asked, AddOffsetsToTxnResponse)

"""DescribeTransactions (65): state, timeout and partitions of transactions (KIP-664).

Served: v0. Each id is described by its coordinator; another broker answers NOT_COORDINATOR for it. Partitions of topics
that the caller may not describe are left out.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.broker.refusals import element
from penstock.coordinators.transactions import TransactionShard
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


async def serve(node: Node, request: Request, body: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    allowed, denied = request.split(
        Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, body.transactional_ids, lambda name: name
    )
    states: list[TransactionState] = []
    slices = Slices(node.runtime)
    for name in allowed:
        refused = element(TransactionState, transactional_id=name)
        asked = node.transactions.ask(name, TransactionShard.describe, request, name, refused, writes=False)
        state = await node.transactions.settled(asked, TransactionState)
        state.topics, _ = request.split(Operation.DESCRIBE, ResourceKind.TOPIC, state.topics, lambda topic: topic.topic)
        states.append(state)
        await slices.breathe()
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    states += [TransactionState(error_code=code, transactional_id=name) for name in denied]
    return DescribeTransactionsResponse(transaction_states=states)

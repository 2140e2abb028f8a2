"""DescribeTransactions (65): state, timeout and partitions of transactions (KIP-664).

Served: v0. There are no transactions yet, so none of the ids that the caller may describe is found.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def serve(node: Node, request: Request, body: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    found, denied = request.split(
        Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, body.transactional_ids, lambda name: name
    )
    absent, refused = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return DescribeTransactionsResponse(
        transaction_states=[TransactionState(error_code=absent, transactional_id=name) for name in found]
        + [TransactionState(error_code=refused, transactional_id=name) for name in denied]
    )

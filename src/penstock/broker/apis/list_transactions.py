"""ListTransactions (66): the transactional ids that this broker coordinates (KIP-664).

Served: v0–v2. v1 filters by duration (KIP-994), v2 by a pattern (KIP-1152). Clients ask every broker. While a
coordinator is still loading the list would not be whole, so the answer says that and nothing else.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.shard import Ticket, Turn
from penstock.coordinators.transactions import TransactionShard
from penstock.coordinators.transactions.listing import Filter
from penstock.coordinators.transactions.states import BY_LABEL
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


async def serve(node: Node, request: Request, body: ListTransactionsRequest) -> ListTransactionsResponse:
    wanted = Filter.of(body)
    response = ListTransactionsResponse(
        unknown_state_filters=[state for state in body.state_filters if state not in BY_LABEL]
    )
    coordinators = node.transactions
    with request.slices() as slices:
        for host in list(coordinators.hosts()):

            def call(turn: Turn, ticket: Ticket, shard: TransactionShard = host.shard) -> None:
                shard.list_transactions(turn, ticket, wanted)

            part = await coordinators.settled(host.submit(call, request.refused), ListTransactionsResponse)
            if part.error_code == ErrorCode.NOT_COORDINATOR:
                continue
            if part.error_code:
                return part
            response.transaction_states += part.transaction_states
            await slices.breathe()
    response.transaction_states, _ = request.split(
        Operation.DESCRIBE,
        ResourceKind.TRANSACTIONAL_ID,
        response.transaction_states,
        lambda transaction: transaction.transactional_id,
    )
    return response

"""How a partition leader reaches the coordinator of a transactional id: over the network, or in this process.

Both ways use AddPartitionsToTxn (v4 on), so that partition leaders and coordinators share nothing but the protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.coordination.coordinator import NO_COORDINATOR
from penstock.broker.coordination.kind import CoordinatorType
from penstock.broker.gate import decided
from penstock.broker.net.request import Request
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from penstock.broker.node import Node

CHANNEL = "verify"
TIMEOUT_MS = 30_000
SILENCE_MS = 10_000
"""An answer waits until the coordinator has replicated its record."""

Serve = Callable[[Any, Request, Any], Any]


class TransactionQuestions:
    """Asks coordinators (`penstock.broker.produce.verifying.Coordination`)."""

    def __init__(self, node: Node, serve: Serve | None) -> None:
        """`serve`: this broker's handler of AddPartitionsToTxn."""
        self._node = node
        self._serve = serve

    def broker_of(self, transactional_id: str) -> int:
        coordinator = self._node.coordination.of_type(CoordinatorType.TRANSACTION)
        return NO_COORDINATOR if coordinator is None else coordinator.broker_of(transactional_id)

    def ask(self, broker_id: int, request: AddPartitionsToTxnRequest) -> Awaitable[AddPartitionsToTxnResponse]:
        if broker_id == self._node.node_id and self._serve is not None:
            return self._ask_here(self._serve, request)
        return self._node.peers.call(broker_id, request, timeout_ms=TIMEOUT_MS, silence_ms=SILENCE_MS, channel=CHANNEL)

    async def _ask_here(self, serve: Serve, body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        node, row = self._node, SERVED[ApiKey.ADD_PARTITIONS_TO_TXN]
        own = Request.of(
            node.gate, node.gate.own, row, row.max_version, body, client_id=f"node-{node.node_id}-{CHANNEL}"
        )
        response = await decided(serve, node, own)
        assert isinstance(response, AddPartitionsToTxnResponse)
        return response

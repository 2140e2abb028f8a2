"""InitProducerId (22): an id and an epoch for an idempotent or transactional producer.

Served: v0–v5. v2 is flexible, v3 lets a producer bump its own epoch (KIP-360), v4 adds PRODUCER_FENCED, v5 KIP-890. v6
(two-phase commit, KIP-939) is not stable in Kafka.
Ids come from blocks of 1,000 that the metadata log grants, so that no id is used twice, even after a crash. For a
transactional id the transaction coordinator decides (`penstock.coordinators.transactions.producers`).
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.transactions import TransactionShard
from penstock.wire.acls import CLUSTER_NAME, Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

REASONS = {
    ErrorCode.INVALID_REQUEST: "the transactional id is empty or longer than 32767 bytes, or the producer id and epoch "
    "contradict each other",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the producer's transaction.timeout.ms is above the broker's "
    "transaction.max.timeout.ms, or not positive",
    ErrorCode.POLICY_VIOLATION: "the broker has penstock.transactional.ids.max transactional ids: producers should "
    "reuse their ids, or the limit be raised",
}
"""What to do, for the broker's log: the answer has no place for a message."""


def serve(node: Node, request: Request, body: InitProducerIdRequest) -> Awaitable[InitProducerIdResponse]:
    if body.transactional_id is not None:
        request.check(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id)
        return transactional(node, request, body)
    # A client that may write to at least one topic may get an id, as in Kafka.
    if not request.allowed_somewhere(Operation.WRITE, ResourceKind.TOPIC):
        request.check(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER, CLUSTER_NAME)
    return idempotent(node)


async def idempotent(node: Node) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await node.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        # The controller cannot be reached. Clients retry after this code.
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from None


async def transactional(node: Node, request: Request, body: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        # The coordinator may need an id, and cannot wait for one.
        await node.producer_ids.available()
    except KafkaError as error:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from None
    asked = node.transactions.ask(
        body.transactional_id or "", TransactionShard.init_producer_id, request, body, request.refused
    )
    answer = await node.transactions.settled(asked, InitProducerIdResponse)
    reason = REASONS.get(ErrorCode(answer.error_code))
    if reason is not None:
        name = (body.transactional_id or "")[:100]
        node.events.limited("transactional producer refused", peer=request.peer, transactional_id=name, reason=reason)
    return answer

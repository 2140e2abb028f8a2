"""InitProducerId (22): an id for an idempotent producer.

Served: v0–v5. v2 is flexible, v3 lets a producer bump its own epoch (KIP-360), v4 adds PRODUCER_FENCED, v5 KIP-890.
Ids come from blocks of 1,000 that the metadata log grants, so that no id is used twice, even after a crash.
Transactional ids are refused: transactions are not served yet.
"""

from __future__ import annotations

from penstock.broker.apis.produce import TRANSACTIONS_ARE_MISSING
from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.wire.acls import CLUSTER_NAME, Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def serve(node: Node, request: Request, body: InitProducerIdRequest) -> InitProducerIdResponse:
    if body.transactional_id is not None:
        request.check(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id)
        node.events.limited("transactional producer refused", peer=request.peer, reason=TRANSACTIONS_ARE_MISSING)
        raise KafkaError(ErrorCode.INVALID_REQUEST, TRANSACTIONS_ARE_MISSING)
    # A client that may write to at least one topic may get an id, as in Kafka.
    if not request.allowed_somewhere(Operation.WRITE, ResourceKind.TOPIC):
        request.check(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER, CLUSTER_NAME)
    try:
        producer_id = await node.producer_ids.next()
    except KafkaError as error:
        # The controller cannot be reached. Clients retry after this code.
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from None
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

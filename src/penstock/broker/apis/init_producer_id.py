"""InitProducerId (22): an id for an idempotent producer.

Served: v0–v5. v2 is flexible, v3 lets a producer bump its own epoch (KIP-360), v4 adds PRODUCER_FENCED, v5 KIP-890.
Ids come from blocks of 1,000 that the metadata log hands out, so that none is ever given twice, whatever crashes.
Transactional ids are refused: transactions are not served yet.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.apis.produce import TRANSACTIONS_ARE_MISSING
from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def serve(
    node: Node, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        peer = context.connection.peer
        node.events.limited("transactional producer refused", peer=peer, reason=TRANSACTIONS_ARE_MISSING)
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    return next_id(node)


async def next_id(node: Node) -> InitProducerIdResponse:
    try:
        producer_id = await node.producer_ids.next()
    except KafkaError:
        # No controller hands out ids at the moment. Kafka says the same, and clients ask again.
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

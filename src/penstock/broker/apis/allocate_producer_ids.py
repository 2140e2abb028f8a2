"""AllocateProducerIds (67): the next block of ids that a broker may give to producers.

Served on the listeners of controllers: v0. A block is given once, whatever crashes.
"""

from __future__ import annotations

from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.wire.errors import KafkaError
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def serve(
    node: ControllerNode, caller: Caller, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    try:
        block = await node.quorum.submit(
            lambda controller: controller.decide_allocate_producer_ids(request.broker_id, request.broker_epoch)
        )
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)

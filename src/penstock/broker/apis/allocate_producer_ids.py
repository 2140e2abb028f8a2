"""AllocateProducerIds (67): the next block of ids that a broker may give to producers.

Served on the listeners of controllers: v0. A block is given once, whatever crashes.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def serve(
    node: ControllerNode, request: Request, body: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    block = await node.quorum.submit(
        lambda controller: controller.decide_allocate_producer_ids(body.broker_id, body.broker_epoch)
    )
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)

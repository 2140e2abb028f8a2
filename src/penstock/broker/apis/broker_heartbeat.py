"""BrokerHeartbeat (63): a broker is alive, and asks to be unfenced or to stop.

Served on the listeners of controllers: v0–v1. A broker is put in service once its image holds its own registration.
One that wants to stop is told that it may when the partitions it led have other leaders, and is fenced then.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def serve(node: ControllerNode, request: Request, body: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    quorum = node.quorum
    controller = quorum.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    broker_id, epoch = body.broker_id, body.broker_epoch
    broker = controller.image.broker(broker_id)
    if broker is None or broker.epoch != epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    caught_up = body.current_metadata_offset >= broker.epoch
    may_stop = False
    node.duties.heard(broker_id, request.connection)
    if body.want_shut_down:
        await quorum.submit(lambda c: c.decide_controlled_shutdown(broker_id, epoch))
        await quorum.submit(lambda c: c.decide_fence_broker(broker_id, epoch))
        node.duties.sessions.forget(broker_id)
        may_stop = True
    elif body.want_fence:
        await quorum.submit(lambda c: c.decide_fence_broker(broker_id, epoch))
    elif broker.fenced and caught_up:
        node.events.info("broker unfenced", broker=broker_id, broker_epoch=epoch)
        await quorum.submit(lambda c: c.decide_unfence_broker(broker_id, epoch))
    now = controller.image.broker(broker_id)
    return BrokerHeartbeatResponse(
        is_caught_up=caught_up, is_fenced=now is None or now.fenced, should_shut_down=may_stop
    )

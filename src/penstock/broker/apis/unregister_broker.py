"""UnregisterBroker (64): a broker that is gone for good leaves the cluster.

Served: v0. A broker that is in service is not unregistered. Its replicas stay where they are listed until they are
reassigned. Decided by the active controller.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import Controller, Decision
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def decide(node: ControllerNode, request: Request, body: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    def unregister(controller: Controller) -> Decision[None]:
        broker = controller.image.broker(body.broker_id)
        # One that is fenced may be about to come back: it would end itself when it finds that it is gone.
        if broker is not None and (not broker.fenced or node.duties.is_alive(broker.id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {body.broker_id} is in service: stop it first, or wait until it has been missed.",
            )
        return controller.decide_unregister_broker(body.broker_id)

    await node.quorum.submit(unregister)
    node.duties.sessions.forget(body.broker_id)
    return UnregisterBrokerResponse(error_message=None)

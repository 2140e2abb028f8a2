"""UnregisterBroker (64): a broker that is gone for good leaves the cluster.

Served: v0. A broker that is in service is not unregistered. Its replicas stay where they are listed until they are
reassigned. Decided by the active controller.
"""

from __future__ import annotations

from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.metadata import Controller, Decision
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def decide(
    node: ControllerNode, caller: Caller, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    def unregister(controller: Controller) -> Decision[None]:
        broker = controller.image.broker(request.broker_id)
        # One that is fenced may be about to come back: it would end itself when it finds that it is gone.
        if broker is not None and (not broker.fenced or node.duties.is_alive(broker.id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {request.broker_id} is in service: stop it first, or wait until it has been missed.",
            )
        return controller.decide_unregister_broker(request.broker_id)

    try:
        await node.quorum.submit(unregister)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    node.duties.sessions.forget(request.broker_id)
    return UnregisterBrokerResponse(error_message=None)

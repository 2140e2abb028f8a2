"""BrokerRegistration (62): a broker joins the cluster, or joins again as a new incarnation.

Served on the listeners of controllers: v0–v4. v2 adds directories (KIP-858), v3 the epoch of the last clean stop
(KIP-966). Without that proof the broker leaves every ISR and every set of eligible leaders in the same batch in which
it is admitted.

A second process under the id of a living broker is refused. One that comes with the very same data directory is that
broker's next incarnation, because two processes cannot hold the lock of one directory: it need not wait until the
session of the last one has run out. But anyone can name a directory, and a broker that finds itself replaced ends. So
it does wait while a connection stands over which the last one was heard: the kernel closes those of a dead process.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import Controller, Decision, Listener, Registration, RegistrationReply, VersionRange
from penstock.wire import valid
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


async def serve(node: ControllerNode, request: Request, body: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    registration = Registration(
        body.broker_id,
        body.cluster_id,
        body.incarnation_id,
        tuple(Listener(at.name, at.host, at.port, at.security_protocol) for at in body.listeners),
        tuple(body.log_dirs),
        {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in body.features},
        body.rack,
        body.previous_broker_epoch,
    )
    quorum = node.quorum
    try:
        check(registration)
    except KafkaError as error:
        node.events.limited("registration refused", broker=body.broker_id, peer=request.peer, reason=error.message)
        raise

    def decide(controller: Controller) -> Decision[RegistrationReply]:
        existing = controller.image.broker(body.broker_id)
        alive = False
        if existing is not None:
            # That of this very process, or one that was heard of lately.
            own = body.broker_id == node.node_id and request.connection is not None
            other = not existing.fenced and existing.directories != registration.directories
            heard = node.duties.is_alive(body.broker_id)
            alive = own or (heard and (other or node.duties.is_connected(body.broker_id)))
        # A single node has no other whose image could lag behind, so it is unfenced at once.
        alone = quorum.is_alone and body.broker_id == node.node_id and request.connection is None
        return controller.decide_register_broker(
            registration, quorum.next_offset, session_alive=alive, fenced=not alone
        )

    try:
        reply = await quorum.submit(decide)
    except KafkaError as error:
        if error.code != ErrorCode.NOT_CONTROLLER:
            node.events.warning("registration refused", broker=body.broker_id, reason=error.message)
        raise
    node.duties.heard(body.broker_id, request.connection)
    return BrokerRegistrationResponse(broker_epoch=reply.broker_epoch)


def check(registration: Registration) -> None:
    """Other nodes connect to these addresses, and clients are told of them."""
    valid.check_node_id(registration.broker_id)
    if not 1 <= len(registration.listeners) <= valid.ENDPOINTS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A broker needs a listener at which others reach it.")
    for listener in registration.listeners:
        valid.check_endpoint(listener.name, listener.host, listener.port)

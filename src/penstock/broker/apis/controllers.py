"""What is served on the listeners of controllers: the quorum's own requests, the brokers', and what they pass on."""

from __future__ import annotations

from penstock.broker.apis import absent_features, quorum_requests
from penstock.broker.apis.administrative import ADMINISTRATIVE, named_after
from penstock.broker.gate import decided
from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.forwarding import Decide
from penstock.wire.apis import OF_CONTROLLERS, ApiKey, api_named
from penstock.wire.codec import Message

OF_THE_QUORUM = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
)
EARLY = (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""Served before there is a quorum, by `penstock.broker.controller_listener`."""

CONTROLLER_HANDLERS: dict[ApiKey, Decide] = {
    **{key: absent_features.answering(key) for key in absent_features.ANSWERS if key in OF_CONTROLLERS},
    **ADMINISTRATIVE,
    **dict.fromkeys(OF_THE_QUORUM, quorum_requests.serve),
}
CONTROLLER_HANDLERS |= {
    key: named_after(row, "serve")
    for key, row in OF_CONTROLLERS.items()
    if key not in CONTROLLER_HANDLERS and key not in EARLY
}


async def decided_here(node: ControllerNode, body: Message, version: int) -> Message:
    """What the controller of this very node answers to a request of its own."""
    row = OF_CONTROLLERS[api_named(type(body).__name__.removesuffix("Request")).key]
    return await decided(CONTROLLER_HANDLERS[row.key], node, Request.of(node.gate, node.gate.own, row, version, body))

"""Envelope (58): a client's administrative request, passed on by the broker that got it (KIP-590).

Served on the listeners of controllers: v0. Only the active controller opens it; others say so and the broker looks
again. The request inside is served in its own version, and its answer travels back as bytes. It is authorised and
charged as its client's: the envelope names the principal and the address, the header inside the client id. A node's own
request has the principal of its connection.
"""

from __future__ import annotations

from penstock.broker.apis.administrative import ADMINISTRATIVE
from penstock.broker.gate import decided
from penstock.broker.net.access import ANONYMOUS, NODE, Client, Principal, host_of_address
from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.wire.apis import OF_CONTROLLERS, ApiKey
from penstock.wire.codec import decode, encode
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.headers import read_request_header, write_response_header
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


async def serve(node: ControllerNode, request: Request, body: EnvelopeRequest) -> EnvelopeResponse:
    if node.quorum.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    try:
        inner = opened(request, body)
    except WireError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    response = await decided(ADMINISTRATIVE[inner.row.key], node, inner)
    out = bytearray()
    write_response_header(out, inner.row.key, inner.version, inner.correlation_id)
    encode(response, inner.version, out)
    return EnvelopeResponse(response_data=bytes(out))


def opened(request: Request, body: EnvelopeRequest) -> Request:
    """The request inside, as its client sent it. Raises KafkaError or WireError."""
    data = body.request_data
    header = read_request_header(data)
    # Of a broker of a newer release there may be requests in it that this one does not know.
    key = ApiKey(header.api_key) if header.api_key in ADMINISTRATIVE else None
    if key is None or header.api_version not in OF_CONTROLLERS[key].versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    # Brokers of earlier releases name no principal.
    sender = ANONYMOUS if body.request_principal is None else Principal.from_bytes(body.request_principal)
    if sender == NODE:
        client = request.client
    else:
        client = Client(request.listener_info, sender, host_of_address(body.client_host_address))
    row = OF_CONTROLLERS[key]
    inner, _ = decode(row.request, header.api_version, data, header.body_position, limits=row.limits)
    name = header.client_id or ""
    made = Request.of(
        request.gate, client, row, header.api_version, inner, client_id=name, connection=request.connection
    )
    made.correlation_id = header.correlation_id
    return made

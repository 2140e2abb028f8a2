"""Envelope (58): a client's administrative request, passed on by the broker that got it (KIP-590).

Served on the listeners of controllers: v0. Only the active controller opens it; others say so and the broker looks
again. The request inside is served in its own version, and its answer travels back as bytes.
"""

from __future__ import annotations

from penstock.broker.apis.administrative import ADMINISTRATIVE
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.wire.apis import OF_CONTROLLERS, ApiKey
from penstock.wire.codec import Message, decode, encode
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.headers import read_request_header, write_response_header
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


async def serve(node: ControllerNode, caller: Caller, request: EnvelopeRequest) -> EnvelopeResponse:
    if node.quorum.controller is None:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    data = request.request_data
    try:
        header = read_request_header(data)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    # Of a broker of a newer release there may be requests in it that this one does not know.
    key = ApiKey(header.api_key) if header.api_key in ADMINISTRATIVE else None
    if key is None or header.api_version not in OF_CONTROLLERS[key].versions:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    api, decide = OF_CONTROLLERS[key], ADMINISTRATIVE[key]
    try:
        inner, _ = decode(api.request, header.api_version, data, header.body_position, limits=api.limits)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        result = decide(node, Caller(header.api_version, header.client_id or "", caller.connection), inner)
        response = result if isinstance(result, Message) else await result
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    out = bytearray()
    write_response_header(out, api.key, header.api_version, header.correlation_id)
    encode(response, header.api_version, out)
    return EnvelopeResponse(response_data=bytes(out))

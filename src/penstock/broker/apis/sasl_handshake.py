"""SaslHandshake (17): the client chooses the mechanism of its login.

Served: v0–v1. v1 is followed by SaslAuthenticate; v0 would be followed by messages without a header, and is refused.
An unknown mechanism is answered with those that the listener offers. ILLEGAL_SASL_STATE on a listener without SASL.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def serve(node: object, request: Request, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
    authentication = request.gate.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return authentication.handshake(request, body)

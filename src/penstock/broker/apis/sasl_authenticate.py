"""SaslAuthenticate (36): one message of a login (KIP-152), or of its renewal (KIP-368).

Served: v0–v2. v1 tells for how long the login is valid, v2 is flexible. The answer to a failed login is held back
(`connection.failed.authentication.delay.ms`), says nothing about the reason, and the connection is closed after it.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.net.request import Request
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def serve(
    node: object, request: Request, body: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    authentication = request.gate.authentication
    if authentication is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="This listener has no logins; connect with security.protocol=PLAINTEXT.",
        )
    return authentication.authenticate(request, body)

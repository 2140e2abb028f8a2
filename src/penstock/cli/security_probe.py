"""Asks a listener what it accepts, without logging in: TLS versions, the certificate, SASL mechanisms."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.runtime.authority import expiry_of
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message, WireError, decode, encode
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import read_response_header, write_request_header
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 1 << 20
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class Unreachable(Exception):
    """Nothing answers there."""


@dataclass
class Found:
    """What a listener accepts."""

    protocol: str = "unknown"
    mechanisms: list[str] = field(default_factory=list)
    tls_versions: list[str] = field(default_factory=list)
    client_certificate: str = "not asked for"
    expires: datetime | None = None
    trusted: str = "not checked"

    def as_dict(self) -> dict[str, object]:
        shown: dict[str, object] = {"security.protocol": self.protocol}
        if self.mechanisms:
            shown["sasl.mechanisms"] = ", ".join(self.mechanisms)
        if self.tls_versions:
            shown["tls.versions"] = ", ".join(self.tls_versions)
            shown["client.certificate"] = self.client_certificate
            shown["certificate.trusted"] = self.trusted
        if self.expires is not None:
            shown["certificate.expires"] = self.expires.isoformat()
        return shown

    def problem(self, days: int) -> str | None:
        if self.expires is not None:
            left = self.expires - datetime.now(UTC)
            if left < timedelta():
                return f"the certificate expired at {self.expires.isoformat()}"
            if left < timedelta(days=days):
                return f"the certificate expires in {left.days} days"
        if self.trusted.startswith("no:"):
            return f"the certificate is not trusted: {self.trusted.removeprefix('no: ')}"
        return None


def probe(host: str, port: int, ca: Path | None) -> Found:
    """Raises Unreachable."""
    found = Found()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    certificate: bytes | None = None
    mechanisms: list[str] | None = None
    for name, version in VERSIONS.items():
        context.minimum_version = context.maximum_version = version
        with (
            suppress(ssl.SSLError, ConnectionError, TimeoutError),
            _connected(host, port) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            found.tls_versions.append(name)
            certificate = secured.getpeercert(binary_form=True)
            mechanisms = _mechanisms(secured)
            if mechanisms is None:
                found.client_certificate = "required"
    if found.tls_versions:
        found.expires = None if certificate is None else expiry_of(certificate)
        found.mechanisms = mechanisms or []
        found.protocol = "SASL_SSL" if mechanisms else "SSL"
        if ca is not None:
            found.trusted = _verified(host, port, ca)
        return found
    with _connected(host, port) as plain:
        mechanisms = _mechanisms(plain)
    if mechanisms is None:
        found.protocol = "unknown: it speaks neither TLS nor Kafka's protocol, or requires a client certificate"
    else:
        found.mechanisms = mechanisms
        found.protocol = "SASL_PLAINTEXT" if mechanisms else "PLAINTEXT"
    return found


def _connected(host: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=TIMEOUT_S)
    except OSError as error:
        raise Unreachable(error.strerror or str(error)) from None


def _verified(host: str, port: int, ca: Path) -> str:
    try:
        context = ssl.create_default_context(cafile=str(ca))
        with _connected(host, port) as plain, context.wrap_socket(plain, server_hostname=host):
            return "yes"
    except ssl.SSLCertVerificationError as error:
        return f"no: {error.verify_message}"
    except OSError as error:
        return f"no: {error.strerror or error}"


def _mechanisms(connection: socket.socket) -> list[str] | None:
    """Those that are offered; empty without SASL; None if there was no answer."""
    out = bytearray(4)
    write_request_header(out, ApiKey.SASL_HANDSHAKE, 1, 1, "penstock-security-check")
    request: Message = SaslHandshakeRequest(mechanism="?")
    encode(request, 1, out)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    try:
        connection.sendall(out)
        size = int.from_bytes(_exactly(connection, 4), "big")
        if not 4 <= size <= ANSWER_BYTES_MAX:
            return None
        frame = _exactly(connection, size)
        _, position = read_response_header(frame, ApiKey.SASL_HANDSHAKE, 1)
        answer, _ = decode(SaslHandshakeResponse, 1, frame, position)
    except (OSError, WireError):
        return None
    return list(answer.mechanisms) if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else []


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data

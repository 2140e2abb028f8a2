"""SASL authentication. Each mechanism is a pure exchange of bytes.

A mechanism produces its first message and then answers every challenge, until it is satisfied (`complete`). It raises
AuthenticationFailed if the broker does not prove its part: a SCRAM server has to know the password too, which exposes
an impostor.

| mechanism | how | standard |
|---|---|---|
| PLAIN | name and password in one message | RFC 4616 |
| SCRAM-SHA-256, SCRAM-SHA-512 | salted challenge; passwords as UTF-8, without SASLprep, as in Kafka | RFC 5802, 7677 |
| OAUTHBEARER | a token from an endpoint or a file, or an unsecured token for tests | RFC 7628, KIP-255, KIP-768 |
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.client.errors import AuthenticationFailed
from penstock.client.tls import TlsSettings

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

# The minimum of Kafka's own client; with fewer, a captured exchange is too cheap to crack.
SCRAM_ITERATIONS_MIN = 4096
# Limits the CPU time a broker can demand: about a second, and 60 × the largest number Kafka can be configured with.
SCRAM_ITERATIONS_MAX = 1_000_000
NONCE_BYTES = 24
CHALLENGE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class OAuthSettings:
    """The source of a token: an endpoint (client credentials), a file, or claims for an unsecured one."""

    token_endpoint_url: str | None = None
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    tls: TlsSettings = field(default_factory=TlsSettings)
    """TLS settings for the token endpoint, independent of the brokers'."""
    extensions: tuple[tuple[str, str], ...] = ()
    unsecured_claims: tuple[tuple[str, str | float], ...] = ()
    unsecured_lifetime_s: int = 3600


@dataclass(frozen=True)
class SaslSettings:
    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_auth: bool = False
    """Whether the credentials are those of a delegation token (KIP-48)."""
    oauth: OAuthSettings | None = None


class Mechanism(Protocol):
    """One authentication exchange on one connection."""

    @property
    def complete(self) -> bool:
        """Whether the broker has proved everything required, so that its last answer may end the exchange."""

    def first(self) -> bytes:
        """The first message to send."""

    def answer(self, challenge: bytes) -> bytes | None:
        """The next message to send; None if there is none."""


class Plain:
    """A single message; the broker's error code is the verdict."""

    complete = True

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class Scram:
    """Two messages each way: nonces, salt and iterations, then proofs from both sides."""

    def __init__(
        self, mechanism: str, username: str, password: str, *, token_auth: bool = False, nonce: str | None = None
    ) -> None:
        self._hash = "sha256" if mechanism == SCRAM_SHA_256 else "sha512"
        self._password = password.encode()
        self._nonce = nonce or base64.b64encode(os.urandom(NONCE_BYTES)).decode()
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}" + (",tokenauth=true" if token_auth else "")
        self._server_signature: bytes | None = None
        self.complete = False

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._prove(challenge)
        self._check(challenge)
        self.complete = True
        return None

    def _prove(self, challenge: bytes) -> bytes:
        server_first = _text(challenge)
        fields = _fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), _decode(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt or not iterations.isdecimal():
            raise AuthenticationFailed(f"the broker sent an invalid SCRAM challenge{_error_in(fields)}")
        count = int(iterations) if len(iterations) < 10 else SCRAM_ITERATIONS_MAX + 1
        if not SCRAM_ITERATIONS_MIN <= count <= SCRAM_ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the broker asks for {iterations} SCRAM iterations; {SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX} "
                "are accepted: store the credential again with a number in that range"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, count)
        client_key = self._hmac(salted, b"Client Key")
        final_bare = f"c=biws,r={nonce}"  # biws: "n,,", we bind no channel
        transcript = f"{self._first_bare},{server_first},{final_bare}".encode()
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), transcript)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), transcript)
        return f"{final_bare},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, challenge: bytes) -> None:
        fields = _fields(_text(challenge))
        assert self._server_signature is not None
        if not hmac.compare_digest(_decode(fields.get("v", "")), self._server_signature):
            raise AuthenticationFailed(
                f"the broker did not prove that it knows the password{_error_in(fields)}: it may be an impostor"
            )

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


class OAuthBearer:
    """Sends the token in one message; a refusal is a challenge that must be answered before the error code arrives."""

    complete = True

    def __init__(self, token: str, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        pairs = "".join(f"\x01{name}={value}" for name, value in extensions)
        self._message = f"n,,\x01auth=Bearer {token}{pairs}\x01\x01".encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        return b"\x01" if challenge else None


def _text(challenge: bytes) -> str:
    if len(challenge) > CHALLENGE_BYTES_MAX:
        raise AuthenticationFailed(f"the SASL challenge is too long: {len(challenge)} bytes")
    try:
        return challenge.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the SASL challenge is not valid text") from None


def _fields(text: str) -> dict[str, str]:
    return {item[0]: item[2:] for item in text.split(",") if item[1:2] == "="}


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _error_in(fields: dict[str, str]) -> str:
    return f" ({fields['e'][:200]})" if "e" in fields else ""

"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84): both sides, and how a credential is made. Pure.

    client → server   n,,n=alice,r=<client nonce>
    server → client   r=<client nonce><server nonce>,s=<salt>,i=4096
    client → server   c=biws,r=<both nonces>,p=<proof>
    server → client   v=<signature>

The server stores neither the password nor anything that would let a thief log in: `stored_key` checks a proof,
`server_key` proves to the client that the server knows the user. Checking costs two HMACs. Only the client, and whoever
makes a credential, hashes the password `iterations` times; that is CPU work for a thread (hashlib releases the lock).

A user that does not exist gets a challenge as well, with a salt that is always the same for the same name: so nobody
can find out by logging in which users exist.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final, NamedTuple

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's numbers, in records and in APIs 50 and 51."""
NAMES: Final = {number: name for name, number in MECHANISMS.items()}
HASHES: Final = {1: "sha256", 2: "sha512"}
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""Kafka's limits. They also bound what a client must compute."""
SALT_BYTES: Final = 24
SALT_BYTES_MAX: Final = 1_024
NONCE_BYTES: Final = 24
NONCE_LETTERS_MAX: Final = 1_024
NAME_LETTERS_MAX: Final = 1_024
_GS2_HEADER: Final = b"n,,"


class ScramError(Exception):
    """A message that is not part of a valid exchange. Never told to the peer in detail."""


class Credential(NamedTuple):
    """What the server stores of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def salted_password(mechanism: int, password: str, salt: bytes, iterations: int) -> bytes:
    """Slow on purpose: run it in a thread."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: int, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """The credential for a salted password, as a client of AlterUserScramCredentials sends it."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return Credential(salt, _hash(mechanism, client_key), _hmac(mechanism, salted, b"Server Key"), iterations)


def make_credential(mechanism: int, password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> Credential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def absent_credential(mechanism: int, user: str, secret: bytes) -> Credential:
    """For a user that does not exist: the same salt each time, and keys that no password fits."""
    salt = hmac.digest(secret, f"salt-{mechanism}-{user}".encode(), "sha256")[:SALT_BYTES]
    size = hashlib.new(HASHES[mechanism]).digest_size
    key = hmac.digest(secret, f"key-{mechanism}-{user}".encode(), HASHES[mechanism])[:size]
    return Credential(salt, key, key, ITERATIONS_MIN)


class ServerExchange:
    """The server's side of one login."""

    def __init__(self, mechanism: int, nonce: str) -> None:
        self._mechanism = mechanism
        self._own_nonce = nonce
        self._credential: Credential | None = None
        self._gs2 = b""
        self._client_first_bare = b""
        self._server_first = b""
        self._nonce = b""
        self._client_nonce = b""
        self.user = ""
        self.token_auth = False
        """The user is the id of a delegation token (KIP-48)."""

    def first(self, message: bytes) -> str:
        """Read the client's first message; returns the user's name. `challenge` follows."""
        parts = message.split(b",", 2)
        if len(parts) != 3 or parts[0] not in (b"n", b"y"):
            raise ScramError("not a first message, or one that asks for channel binding")
        authzid = parts[1]
        self._gs2 = parts[0] + b"," + authzid + b","
        self._client_first_bare = parts[2]
        fields = _fields(parts[2])
        if "m" in fields:
            raise ScramError("an unknown mandatory extension")
        self.user = _decoded_name(fields.get("n", ""))
        nonce = fields.get("r", "")
        if not self.user or not nonce or len(nonce) > NONCE_LETTERS_MAX or not nonce.isascii():
            raise ScramError("no user name or nonce")
        # One user must not act as another.
        if authzid and authzid != b"a=" + parts[2].split(b",", 1)[0].removeprefix(b"n="):
            raise ScramError("an authorisation id that differs from the user's name")
        self.token_auth = fields.get("tokenauth", "") == "true"
        self._client_nonce = nonce.encode()
        self._nonce = (nonce + self._own_nonce).encode()
        return self.user

    def challenge(self, credential: Credential) -> bytes:
        self._credential = credential
        salt = b64encode(credential.salt)
        self._server_first = b"r=" + self._nonce + b",s=" + salt + b",i=" + str(credential.iterations).encode()
        return self._server_first

    def final(self, message: bytes) -> bytes:
        """Check the client's proof; returns the server's signature. Raises ScramError if the password is wrong."""
        assert self._credential is not None, "`challenge` comes first"
        without_proof, separator, proof_text = message.rpartition(b",p=")
        fields = _fields(without_proof)
        if not separator:
            raise ScramError("no proof")
        if fields.get("c", "").encode() != b64encode(self._gs2):
            raise ScramError("another header than in the first message")
        # A nonce of another exchange, or only the client's half: a replay. librdkafka before 2.6.1 repeats its own half
        # before the whole nonce; that is bound to this exchange just as well.
        nonce = fields.get("r", "").encode()
        known = (self._nonce, self._client_nonce + self._nonce)
        if not any(hmac.compare_digest(nonce, allowed) for allowed in known):
            raise ScramError("a nonce of another exchange")
        auth_message = self._client_first_bare + b"," + self._server_first + b"," + without_proof
        mechanism, credential = self._mechanism, self._credential
        signature = _hmac(mechanism, credential.stored_key, auth_message)
        proof = _base64(proof_text.decode("ascii", "replace"))
        if len(proof) != len(signature):
            raise ScramError("a proof of another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key):
            raise ScramError("a wrong password or an unknown user")
        return b"v=" + b64encode(_hmac(mechanism, credential.server_key, auth_message))


class ClientExchange:
    """The client's side, for this node's logins to other nodes."""

    def __init__(self, mechanism: int, user: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}".encode()
        self._server_first = b""
        self._both_nonces = ""
        self._signature = b""

    def first(self) -> bytes:
        return _GS2_HEADER + self._first_bare

    def challenged(self, message: bytes) -> tuple[bytes, int]:
        """The salt and the iterations for `salted_password`."""
        fields = _fields(message)
        self._server_first = message
        self._both_nonces = fields.get("r", "")
        if not self._both_nonces.startswith(self._nonce) or len(self._both_nonces) <= len(self._nonce):
            raise ScramError("the server answered with a nonce of another exchange")
        iterations = fields.get("i", "")
        if not iterations.isascii() or not iterations.isdigit() or len(iterations) > 9:
            raise ScramError("the server sent no number of iterations")
        count = int(iterations)
        if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
            raise ScramError(f"the server asks for {count} iterations, which is not acceptable")
        return _base64(fields.get("s", "")), count

    def final(self, salted: bytes) -> bytes:
        without_proof = b"c=" + b64encode(_GS2_HEADER) + b",r=" + self._both_nonces.encode()
        auth_message = self._first_bare + b"," + self._server_first + b"," + without_proof
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        signature = _hmac(self._mechanism, _hash(self._mechanism, client_key), auth_message)
        self._signature = _hmac(self._mechanism, _hmac(self._mechanism, salted, b"Server Key"), auth_message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return without_proof + b",p=" + b64encode(proof)

    def verify(self, message: bytes) -> None:
        """Check that the server knows the user too. Raises ScramError."""
        if not hmac.compare_digest(_base64(_fields(message).get("v", "")), self._signature):
            raise ScramError("the server does not know the password of this user: it may be an impostor")


def _fields(message: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    try:
        for part in message.decode().split(","):
            name, separator, value = part.partition("=")
            if not separator or not name or name in fields:
                raise ScramError("an attribute without a value, or one that appears twice")
            fields[name] = value
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None
    return fields


def _decoded_name(text: str) -> str:
    if len(text) > NAME_LETTERS_MAX:
        raise ScramError("a user name that is too long")
    rest = text.replace("=2C", "").replace("=3D", "")
    if "=" in rest:
        raise ScramError("an invalid escape in the user name")
    return text.replace("=2C", ",").replace("=3D", "=")


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise ScramError("not base64") from None


def _hmac(mechanism: int, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def _hash(mechanism: int, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()

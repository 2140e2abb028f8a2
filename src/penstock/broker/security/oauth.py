"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a signed token instead of a password.

A token must be signed by a key of the issuer's key set (JWKS) with an asymmetric algorithm, name the expected audience
and issuer, and be valid now, give or take `sasl.oauthbearer.clock.skew.seconds`. Unsigned tokens, and tokens "signed"
with a public key as if it were a shared secret, are refused: only the algorithms in `ALGORITHMS` count, and only the
one that the key itself is for.

Keys are fetched at the start, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and when a token names an unknown key,
at most every `REFETCH_MS`. While the issuer cannot be reached the known keys stay in use. The claims are checked here
and not by the library, because it reads the clock of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import jwt

from penstock.broker.net.access import Principal
from penstock.broker.security.exchange import LoginFailed, NoKeys, Outcome
from penstock.config import ListenerSecurity
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog

ALGORITHMS: Final = {
    "RS256": "RSA", "RS384": "RSA", "RS512": "RSA", "PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
    "ES256": "EC", "ES384": "EC", "ES512": "EC", "EdDSA": "OKP",
}  # fmt: skip
"""Accepted algorithms, and the type of key that each needs."""
JWKS_BYTES_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 100
FETCH_MS: Final = 10_000
REFETCH_MS: Final = 10_000
TOKEN_BYTES_MAX: Final = 64 * 1024


class Verifier:
    """Checks the tokens of one listener."""

    def __init__(self, runtime: Runtime, events: EventLog, security: ListenerSecurity) -> None:
        self._runtime = runtime
        self._events = events
        self._security = security
        assert security.jwks_endpoint_url is not None
        self._url = security.jwks_endpoint_url
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_ms = float("-inf")
        self._is_stopping: Callable[[], bool] = lambda: False
        self.fetch_failures = 0

    async def start(self, is_stopping: Callable[[], bool]) -> None:
        """Fetch the keys. Raises NoKeys: a node that could admit nobody, or anybody, must not start."""
        self._is_stopping = is_stopping
        await self._fetch()
        self._runtime.call_later(self._security.jwks_endpoint_refresh_ms, self._refresh)

    def _refresh(self) -> None:
        if not self._is_stopping():
            self._runtime.spawn(self._fetch_again(), "fetch JWKS")
            self._runtime.call_later(self._security.jwks_endpoint_refresh_ms, self._refresh)

    async def _fetch_again(self) -> None:
        try:
            await self._fetch()
        except NoKeys as error:
            self.fetch_failures += 1
            self._events.recurring("keys not refreshed", self._url, url=self._url, reason=str(error))

    async def _fetch(self) -> None:
        self._fetched_ms = self._runtime.now_ms()
        try:
            data = await self._runtime.offload(self._runtime.fetch_url, self._url, JWKS_BYTES_MAX, FETCH_MS)
        except (OSError, ValueError) as error:
            raise NoKeys(f"sasl.oauthbearer.jwks.endpoint.url={self._url} cannot be read: {error}") from None
        self._keys = parse_keys(data)
        if not self._keys:
            raise NoKeys(f"sasl.oauthbearer.jwks.endpoint.url={self._url} holds no key for signatures")

    async def check(self, message: bytes) -> Outcome:
        token = token_in(message)
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise LoginFailed("not a token in JWT format") from None
        kid = header.get("kid")
        if kid not in self._keys and self._runtime.now_ms() - self._fetched_ms >= REFETCH_MS:
            await self._fetch_again()
        key = self._keys.get(kid) if kid is not None else None
        if kid is None and len(self._keys) == 1:
            key = next(iter(self._keys.values()))
        if key is None:
            raise LoginFailed("a token signed with an unknown key")
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS or ALGORITHMS[algorithm] != key.key_type or key.algorithm_name != algorithm:
            raise LoginFailed(f"a token with the algorithm {str(algorithm)[:20]!r}, which its key is not for")
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                options=dict.fromkeys(_CHECKED_HERE, False) | {"verify_signature": True},  # type: ignore[arg-type]
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise LoginFailed(f"a token that cannot be trusted: {type(error).__name__}") from None
        user, expires_ms = check_claims(claims, self._security, self._runtime.wall_ms())
        return Outcome(b"", Principal("User", user), expires_ms)


_CHECKED_HERE: Final = (
    "verify_exp",
    "verify_nbf",
    "verify_iat",
    "verify_aud",
    "verify_iss",
    "verify_sub",
    "verify_jti",
)


def parse_keys(data: bytes) -> dict[str, jwt.PyJWK]:
    """The keys for signatures, by their id. Keys of other kinds are left out. Raises NoKeys."""
    try:
        found = json.loads(data)["keys"]
        assert isinstance(found, list)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        raise NoKeys("the key set is not a JWKS document") from None
    keys: dict[str, jwt.PyJWK] = {}
    for entry in found[:KEYS_MAX]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
            continue
        try:
            keys[str(entry.get("kid", ""))] = jwt.PyJWK(entry)
        except (jwt.PyJWTError, ValueError):
            continue
    return keys


def token_in(message: bytes) -> str:
    """The token of a client's message. Raises LoginFailed."""
    header, separator, rest = message.partition(b"\x01")
    if len(message) > TOKEN_BYTES_MAX or not separator or not header.startswith((b"n,", b"y,")):
        raise LoginFailed("not a message of OAUTHBEARER")
    if header[2:] not in (b"", b","):
        # The token says who it is; an authorisation id could only contradict it.
        raise LoginFailed("an authorisation id beside the token")
    for pair in rest.split(b"\x01"):
        name, _, value = pair.partition(b"=")
        if name == b"auth":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer" and token:
                return token.strip().decode("ascii", "replace")
    raise LoginFailed("no token in the message")


def check_claims(claims: dict[str, Any], security: ListenerSecurity, wall_ms: int) -> tuple[str, int]:
    """(user, expiry in wall ms). Raises LoginFailed."""
    skew_ms = security.oauth_clock_skew_seconds * 1000
    expires = _time_ms(claims, "exp")
    if expires is None or expires + skew_ms <= wall_ms:
        raise LoginFailed("an expired token, or one without an expiry")
    for name in ("nbf", "iat"):
        begins = _time_ms(claims, name)
        if begins is not None and begins - skew_ms > wall_ms:
            raise LoginFailed(f"a token that is not valid yet ({name})")
    if security.oauth_expected_issuer is not None and claims.get("iss") != security.oauth_expected_issuer:
        raise LoginFailed("a token of another issuer")
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if not any(name in named for name in security.oauth_expected_audience):
        raise LoginFailed("a token for another audience")
    user = claims.get(security.oauth_sub_claim_name)
    if not isinstance(user, str) or not user.strip():
        raise LoginFailed(f"a token without the claim {security.oauth_sub_claim_name}")
    return user, expires


def _time_ms(claims: dict[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise LoginFailed(f"a token with an invalid {name}")
    return int(value * 1000)

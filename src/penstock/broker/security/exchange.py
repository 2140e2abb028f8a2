"""The login of one connection: a mechanism is chosen (SaslHandshake), then messages are exchanged (SaslAuthenticate).

    CHOOSING → EXCHANGING → DONE
                   └────────→ FAILED: the answer is held back, then the connection is closed

A connection that is logged in may log in again (KIP-368): as the same user and with the same mechanism, or it is
closed. That extends `Client.expires_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from penstock.broker.net.access import Client, Principal
from penstock.broker.security import scram
from penstock.broker.security.plain import PlainError, check_plain
from penstock.config import ListenerSecurity


class LoginFailed(Exception):
    """`reason` is for the log; the client is told only that it failed."""

    def __init__(self, reason: str, user: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.user = user


class NoKeys(Exception):
    """The key set of a token issuer cannot be had, or holds no usable key."""


class Outcome(NamedTuple):
    """The result of one message: a challenge, or with `principal` the end of a successful login."""

    message: bytes
    principal: Principal | None = None
    expires_wall_ms: int | None = None
    """When the credentials themselves expire (tokens)."""


class TokenVerifier(Protocol):
    def check(self, message: bytes) -> Any:
        """An awaitable `Outcome`. Raises LoginFailed."""


class Directory(NamedTuple):
    """Where the mechanisms look users up."""

    plain_users: Callable[[str], Mapping[str, str]]
    """By listener."""
    scram_credential: Callable[[int, str], scram.Credential | None]
    """By mechanism and user."""
    token: Callable[[str], tuple[Principal, Callable[[int], scram.Credential], int] | None]
    """A delegation token by its id: its owner, the credential of its secret for a mechanism, and when it expires."""
    verifier: Callable[[str], TokenVerifier]
    """By listener: checks the tokens of OAUTHBEARER."""
    secret: bytes
    """Of this process, for the salts of users that do not exist."""
    nonce: Callable[[], str]


class Login:
    """The login in progress on one connection."""

    def __init__(self, client: Client, security: ListenerSecurity, mechanism: str, directory: Directory) -> None:
        self.client = client
        self.mechanism = mechanism
        self._security = security
        self._directory = directory
        self._scram: scram.ServerExchange | None = None
        self._scram_principal: Principal | None = None
        self._expires_wall_ms: int | None = None
        self._rounds = 0

    async def message(self, data: bytes) -> Outcome:
        """Raises LoginFailed."""
        self._rounds += 1
        try:
            if self.mechanism == "PLAIN":
                user = check_plain(data, self._directory.plain_users(self._security.name))
                return Outcome(b"", Principal("User", user))
            if self.mechanism == "OAUTHBEARER":
                outcome: Outcome = await self._directory.verifier(self._security.name).check(data)
                return outcome
            return self._scram_message(data)
        except PlainError as error:
            raise LoginFailed(str(error), error.user) from None
        except scram.ScramError as error:
            raise LoginFailed(str(error), self._scram.user if self._scram is not None else "") from None

    def _scram_message(self, data: bytes) -> Outcome:
        number = scram.MECHANISMS[self.mechanism]
        if self._scram is None:
            self._scram = scram.ServerExchange(number, self._directory.nonce())
            user = self._scram.first(data)
            credential: scram.Credential | None = None
            if self._scram.token_auth:
                token = self._directory.token(user)
                if token is not None:
                    self._scram_principal, make, self._expires_wall_ms = token
                    credential = make(number)
            else:
                self._scram_principal = Principal("User", user)
                credential = self._directory.scram_credential(number, user)
            if credential is None:
                credential = scram.absent_credential(number, user, self._directory.secret)
            return Outcome(self._scram.challenge(credential))
        answer = self._scram.final(data)
        assert self._scram_principal is not None, "only a known user has a credential that a password fits"
        return Outcome(answer, self._scram_principal, self._expires_wall_ms)

"""The node's authentication policy: principals of connections, and the two APIs of a login."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from penstock.broker.net.access import ANONYMOUS, Client, ListenerInfo, Principal
from penstock.broker.net.request import Request
from penstock.broker.security import scram
from penstock.broker.security.exchange import Directory, Login, LoginFailed, NoKeys, Outcome
from penstock.broker.security.plain import users_of
from penstock.broker.security.principal_rules import Rule, parse_rules, user_of
from penstock.config import ConfigError, ListenerSecurity, parse_properties
from penstock.metadata import MetadataImage
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.telemetry.samples import Sample, counter
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ["Authenticator", "NoKeys"]

FAILED: Final = "Authentication failed: invalid user credentials"
USERS_FILE_CHECK_MS: Final = 5_000
FAILED_WAITING_MAX: Final = 1_000
"""Failed logins whose answers are held back. Beyond it they are answered at once: a flood must not fill the memory."""


class Authenticator:
    def __init__(self, runtime: Runtime, events: EventLog, security: Mapping[str, ListenerSecurity]) -> None:
        """`security`: of each listener of this node. Raises ValueError or OSError if the settings cannot be used."""
        self._runtime = runtime
        self._events = events
        self._security = security
        self._rules: dict[str, tuple[Rule, ...]] = {}
        self._plain: dict[str, dict[str, str]] = {}
        self._file_users: dict[str, dict[str, str]] = {}
        self._verifiers: dict[str, Any] = {}
        self._failed_waiting = 0
        self.image: Callable[[], MetadataImage | None] = lambda: None
        """The metadata, for the credentials of SCRAM and for tokens. None until this node has it."""
        self.successes = 0
        self.failures = 0
        self._directory = Directory(
            plain_users=self._plain_users,
            scram_credential=self._scram_credential,
            token=self._token,
            verifier=self._verifier,
            secret=runtime.secret_bytes(32),
            nonce=lambda: runtime.secret_bytes(scram.NONCE_BYTES).hex(),
        )
        for name, listener in security.items():
            self._rules[name] = parse_rules(listener.ssl_principal_mapping_rules)
            login = listener.logins.get("PLAIN")
            self._plain[name] = users_of(login.options) if login is not None else {}
            if listener.uses_sasl and "PLAIN" in listener.sasl_enabled_mechanisms:
                self._read_users(listener)

    @property
    def is_needed(self) -> bool:
        """Whether any listener identifies its clients."""
        return any(listener.protocol != "PLAINTEXT" for listener in self._security.values())

    async def start(self, is_stopping: Callable[[], bool]) -> None:
        """Fetch the keys of OAUTHBEARER. Raises NoKeys."""
        for name, listener in self._security.items():
            if listener.uses_sasl and "OAUTHBEARER" in listener.sasl_enabled_mechanisms:
                # Imported here: without it, a node need not load the cryptography.
                from penstock.broker.security.oauth import Verifier

                verifier = Verifier(self._runtime, self._events, listener)
                await verifier.start(is_stopping)
                self._verifiers[name] = verifier
        if any(listener.penstock_sasl_plain_users_file is not None for listener in self._security.values()):
            self._runtime.call_later(USERS_FILE_CHECK_MS, self._check_users, is_stopping)

    def samples(self) -> Iterator[Sample]:
        """Counters for the metrics. Nothing here names a user."""
        text = "Logins with SASL, by their result"
        yield counter("penstock_logins_total", text, self.successes, (("result", "succeeded"),))
        yield counter("penstock_logins_total", text, self.failures, (("result", "failed"),))

    # ---- for the gate

    def principal(self, listener_info: ListenerInfo) -> Principal | None:
        return ANONYMOUS if listener_info.protocol == "PLAINTEXT" else None

    def frame_bytes_max(self, listener_info: ListenerInfo) -> int:
        return self._security[listener_info.listener].sasl_server_max_receive_size

    def secured(self, client: Client, subject: str) -> None:
        info = client.listener_info
        if info.protocol != "SSL":
            return
        if not subject:
            client.principal = ANONYMOUS
            return
        user = user_of(subject, self._rules[info.listener])
        if not user:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"no rule of ssl.principal.mapping.rules matches {subject!r}"
            )
        client.principal = Principal("User", user)

    # ---- SaslHandshake and SaslAuthenticate

    def handshake(self, request: Request, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
        client = request.client
        security = self._security.get(client.listener_info.listener)
        if security is None or not security.uses_sasl or request.version < 1:
            # v0 is followed by messages without a header, which no current client sends.
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        offered = list(security.sasl_enabled_mechanisms)
        if body.mechanism not in offered:
            client.rejected = client.principal is None
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
        before = client.login
        if isinstance(before, Login) and client.principal is not None and before.mechanism != body.mechanism:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "the mechanism must not change when logging in again")
        client.login = Login(client, security, body.mechanism, self._directory)
        return SaslHandshakeResponse(mechanisms=offered)

    async def authenticate(self, request: Request, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        client = request.client
        login = client.login
        if not isinstance(login, Login):
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslHandshake comes first"
            )
        try:
            outcome = await login.message(bytes(body.auth_bytes))
            if outcome.principal is not None:
                self._succeeded(request, login, outcome)
        except LoginFailed as failure:
            return await self._failed(request, login, failure)
        lifetime = 0
        if client.expires_ms is not None and outcome.principal is not None:
            lifetime = max(0, int(client.expires_ms - self._runtime.now_ms()))
        return SaslAuthenticateResponse(error_message=None, auth_bytes=outcome.message, session_lifetime_ms=lifetime)

    def _succeeded(self, request: Request, login: Login, outcome: Outcome) -> None:
        client, principal = request.client, outcome.principal
        assert principal is not None
        if client.principal is not None and client.principal != principal:
            raise LoginFailed("another user than before when logging in again", principal.name)
        security = self._security[client.listener_info.listener]
        lifetimes = []
        if security.connections_max_reauth_ms > 0:
            lifetimes.append(float(security.connections_max_reauth_ms))
        if outcome.expires_wall_ms is not None:
            lifetimes.append(max(0.0, outcome.expires_wall_ms - self._runtime.wall_ms()))
        now_ms = self._runtime.now_ms()
        client.expires_ms = now_ms + min(lifetimes) if lifetimes else None
        is_renewal = client.principal is not None
        client.principal = principal
        self.successes += 1
        if not is_renewal:
            self._tell_audit(request, login.mechanism, str(principal))
        if request.connection is not None:
            request.connection.logged_in()

    async def _failed(self, request: Request, login: Login, failure: LoginFailed) -> SaslAuthenticateResponse:
        client = request.client
        self.failures += 1
        client.rejected = True
        client.principal = None
        client.login = None
        self._events.limited(
            "login failed",
            peer=request.peer,
            listener=client.listener_info.listener,
            mechanism=login.mechanism,
            user=failure.user or None,
            reason=failure.reason,
        )
        claimed = str(Principal("User", failure.user)) if failure.user else ""
        self._tell_audit(request, login.mechanism, claimed, failure.reason)
        delay_ms = self._security[client.listener_info.listener].connection_failed_authentication_delay_ms
        if delay_ms and self._failed_waiting < FAILED_WAITING_MAX:
            self._failed_waiting += 1
            try:
                await self._runtime.sleep(delay_ms)
            finally:
                self._failed_waiting -= 1
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=FAILED)

    def _tell_audit(self, request: Request, mechanism: str, principal: str, reason: str = "") -> None:
        """`reason`: why the login failed; empty if it succeeded."""
        audit = request.gate.audit
        if audit is not None:
            audit.login(
                principal=principal,
                host=request.host,
                listener=request.listener_info.listener,
                mechanism=mechanism,
                succeeded=not reason,
                reason=reason,
            )

    # ---- where users are

    def _plain_users(self, listener: str) -> Mapping[str, str]:
        from_file = self._file_users.get(listener)
        return {**from_file, **self._plain[listener]} if from_file else self._plain[listener]

    def _read_users(self, listener: ListenerSecurity) -> None:
        path = listener.penstock_sasl_plain_users_file
        if path is None:
            return
        try:
            self._file_users[listener.name] = parse_properties(self._runtime.read_file(path).decode())
        except OSError as error:
            raise ValueError(f"penstock.sasl.plain.users.file={path} cannot be read: {error.strerror}") from None
        except (ConfigError, UnicodeDecodeError):
            raise ValueError(f"penstock.sasl.plain.users.file={path} is not a properties file") from None

    def _check_users(self, is_stopping: Callable[[], bool]) -> None:
        if is_stopping():
            return
        self._runtime.spawn(self._reread_users(), "read users")
        self._runtime.call_later(USERS_FILE_CHECK_MS, self._check_users, is_stopping)

    async def _reread_users(self) -> None:
        for listener in self._security.values():
            try:
                await self._runtime.offload(self._read_users, listener)
            except ValueError as error:
                self._events.recurring("users not reread", listener.name, reason=str(error))

    def _scram_credential(self, mechanism: int, user: str) -> scram.Credential | None:
        image = self.image()
        if image is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node has not read its metadata yet")
        found = image.scram.get((user, mechanism))
        return None if found is None else scram.Credential(*found)

    def _token(self, token_id: str) -> tuple[Principal, Callable[[int], scram.Credential], int] | None:
        return None

    def _verifier(self, listener: str) -> Any:
        return self._verifiers[listener]

"""Access control and quotas: every request passes the gate before it is served, and again when it is answered.

    entry   authenticated?   one for cluster members, or allowed on the cluster as a whole?   within quota?
    exit    bytes and time are charged, and the throttle time goes into the answer

The API's row in the table (`penstock.wire.apis`) says which checks apply. Most APIs are authorised per topic, group or
configuration and may succeed partially: their handlers call `Request.allowed` for each element.

Three policies decide, and all of them can be replaced: `Authentication`, `Authorizer` and `Quotas`. Without them
all clients are anonymous, everything is allowed, and nothing is limited; the gate then only checks a flag.

An administrative request passes two gates. The gate of the receiving broker only checks that the client has
authenticated. The gate of the active controller authorises the request, by the principal in the Envelope (KIP-590).
Both charge it to quotas, which can differ; `Request.row.is_forwarded` tells the two cases apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.net.access import ANONYMOUS, NODE, Client, ListenerInfo, Principal
from penstock.broker.refusals import refusal
from penstock.wire.apis import QuotaClass
from penstock.wire.codec import Encoded, Message
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.broker.net.request import Request
    from penstock.metadata import Charge
    from penstock.wire.acls import Operation, ResourceKind
    from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_pack_throttle = Struct(">i").pack
_THROTTLE_BYTES = 4


class Authentication(Protocol):
    def principal(self, listener_info: ListenerInfo) -> Principal | None:
        """The principal of a new connection on this listener. None: it must log in first."""

    def secured(self, client: Client, subject: str) -> None:
        """The TLS handshake is done. Sets the principal, if this listener takes it from the certificate. Raises
        KafkaError if the certificate names no user."""

    def frame_bytes_max(self, listener_info: ListenerInfo) -> int:
        """The largest request before a client has logged in."""

    def handshake(self, request: Request, body: SaslHandshakeRequest) -> SaslHandshakeResponse: ...
    def authenticate(self, request: Request, body: SaslAuthenticateRequest) -> Awaitable[SaslAuthenticateResponse]:
        """Sets the client's principal once its login has succeeded."""


class Authorizer(Protocol):
    def allows(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> bool: ...

    def allows_somewhere(self, request: Request, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the operation is allowed on at least one possible resource of this kind."""

    @property
    def has_acls(self) -> bool:
        """Whether ACLs decide, and can be listed and changed."""

    def rule(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> str:
        """The rule that decides, in words, for the audit log."""


class Audit(Protocol):
    """The audit log (`penstock.broker.audit`)."""

    def access(self, request: Request, operation: Operation, kind: ResourceKind, name: str, allowed: bool) -> None: ...

    def answered(self, request: Request, response: Message) -> None: ...

    def login(
        self, *, principal: str, host: str, listener: str, mechanism: str, succeeded: bool, reason: str = ""
    ) -> None: ...


class Quotas(Protocol):
    def enter(self, request: Request) -> None:
        """Raise KafkaError(THROTTLING_QUOTA_EXCEEDED) if the request must not be started."""

    def charge(self, request: Request, data_bytes: int) -> int:
        """Count the bytes of records received or sent, when the answer is made. Returns the throttle time in
        milliseconds for all quotas that the client has exceeded."""

    def took(self, request: Request, busy_ms: float) -> None:
        """Count the time that the broker worked on a request, without the time that its answer waited."""

    def fetch_bytes_max(self, request: Request) -> int | None:
        """The most bytes of records that one Fetch may return; None if there is no limit."""

    def mutation_charge(self, request: Request) -> Charge | None:
        """Charges partitions that the controller creates or deletes for this client; None if there is no limit."""


class Gate:
    """One per node, for all of its listeners."""

    __slots__ = ("audit", "authentication", "authorizer", "is_active", "own", "quotas")

    def __init__(self) -> None:
        self.own = Client(ListenerInfo(), NODE)
        """The client object for this node's own requests."""
        self.audit: Audit | None = None
        """Used only with an authorizer."""
        self.configure()

    def configure(
        self,
        authentication: Authentication | None = None,
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.authentication = authentication
        self.authorizer = authorizer
        self.use_quotas(quotas)

    def use_quotas(self, quotas: Quotas | None) -> None:
        """None: nobody has a quota, so nothing is counted."""
        self.quotas = quotas
        self.is_active = self.authentication is not None or self.authorizer is not None or quotas is not None

    def authenticate(self, authentication: Authentication) -> None:
        """Identify clients from now on; authoriser and quotas stay as they are."""
        self.configure(authentication, self.authorizer, self.quotas)

    def client(self, listener_info: ListenerInfo) -> Client:
        """The client object for a new connection on this listener."""
        policy = self.authentication
        return Client(listener_info, ANONYMOUS if policy is None else policy.principal(listener_info))

    def check_login(self, request: Request) -> None:
        """Raise KafkaError, which closes the connection, if its client has not authenticated yet."""
        client = request.client
        if client.principal is None:
            if not request.row.before_login or client.rejected:
                reason = f"{request.row.name} before the client has authenticated"
                raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, reason)
        elif client.expires_ms is not None and not request.row.before_login:
            # Judged by its arrival: a request that waited for its turn, or behind a throttle, was in time (KIP-368).
            assert request.connection is not None
            if request.connection.active_ms > client.expires_ms:
                raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the login has expired, and was not renewed")

    def enter(self, request: Request) -> None:
        """Raise KafkaError, which is answered, if the whole request is refused."""
        row = request.row
        if row.is_forwarded:
            return
        if row.whole is not None and not request.allowed_on_cluster(row.whole):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if self.quotas is not None and row.quota is not QuotaClass.NONE:
            self.quotas.enter(request)

    def charge(self, request: Request, data_bytes: int) -> int:
        """Charge the request to quotas when it is answered. Returns the throttle time.

        The client's connection is not served until that time is over (KIP-219).
        """
        throttle_ms = self._charge(request, data_bytes)
        if throttle_ms:
            hold(request, throttle_ms)
        return throttle_ms

    def _charge(self, request: Request, data_bytes: int) -> int:
        quotas = self.quotas
        if quotas is None or request.row.quota is QuotaClass.NONE or request.client is self.own:
            return 0
        return quotas.charge(request, data_bytes)

    def took(self, request: Request, busy_ms: float) -> None:
        if self.quotas is not None and request.row.quota is not QuotaClass.NONE and request.client is not self.own:
            self.quotas.took(request, busy_ms)

    def leave(self, request: Request, response: Message) -> None:
        """Charge a request whose answer the codec encodes, and put the throttle time into the answer."""
        throttle_ms = self._charge(request, 0)
        if isinstance(response, Encoded):
            if throttle_ms:
                response.body = _pack_throttle(throttle_ms) + response.body[_THROTTLE_BYTES:]  # its first field
        else:
            # The controller may have throttled a forwarded request for longer.
            throttle_ms = max(throttle_ms, getattr(response, "throttle_time_ms", 0))
            if throttle_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
        if throttle_ms:
            hold(request, throttle_ms)


def hold(request: Request, throttle_ms: int) -> None:
    """Serve nothing more of the client's connection for this time. A request from an Envelope came over another."""
    if request.connection is not None and request.has_frame:
        request.connection.throttle(throttle_ms)


async def decided(handler: Callable[[Any, Request, Any], Any], node: object, request: Request) -> Message:
    """Serve a request that did not come in a frame: apply the gate, and turn errors into this API's error answer."""
    assert request.body is not None
    gate = request.gate
    try:
        if gate.is_active:
            gate.enter(request)
        result: Message | Awaitable[Message] = handler(node, request, request.body)
        response = result if isinstance(result, Message) else await result
    except KafkaError as error:
        response = refusal(request.row, request.version, request.body, error.code, error.message)
    if gate.quotas is not None:
        gate.leave(request, response)
    if gate.audit is not None:
        gate.audit.answered(request, response)
    return response

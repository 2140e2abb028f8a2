"""The gate that every request passes, at its entry and at its exit.

    entry   authenticated?   one for cluster members, or allowed on the cluster as a whole?   within quota?
    exit    bytes and time are charged, and the throttle time goes into the answer

What it asks stands in the API's row of the table (`penstock.wire.apis`). Most APIs are authorised per topic, group or
configuration and answered in part: their handlers ask `Request.allowed` for each element.

Three policies decide, and all of them can be replaced: `Authentication`, `Authorizer` and `Quotas`. Without them
everyone is anonymous, everything is allowed, and nothing is limited; the gate then costs a request one look at a flag.

An administrative request passes two gates. The one of the broker that takes it asks only whether its sender has
authenticated; the one of the active controller authorises it, by the principal that the Envelope carries (KIP-590).
Both charge it: what they charge for can differ, and `Request.row.is_forwarded` tells them apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.net.access import ANONYMOUS, Client, Entrance, Principal
from penstock.broker.refusals import refusal
from penstock.wire.apis import QuotaClass
from penstock.wire.codec import Encoded, Message
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.broker.net.request import Request
    from penstock.wire.acls import Operation, ResourceKind

_pack_throttle = Struct(">i").pack
_THROTTLE_BYTES = 4


class Authentication(Protocol):
    def principal(self, entrance: Entrance) -> Principal | None:
        """Whom a new connection of this listener speaks for. None: it must log in first."""


class Authorizer(Protocol):
    def allows(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> bool: ...

    def allows_somewhere(self, request: Request, operation: Operation, kind: ResourceKind) -> bool:
        """Whether some resource of this kind could be named that the operation is allowed on."""


class Quotas(Protocol):
    def enter(self, request: Request) -> None:
        """Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) for a request that is not even to be begun."""

    def charge(self, request: Request, data_bytes: int) -> int:
        """Count the bytes of records that came or go, as the answer is made. Returns for how many milliseconds the
        client is to be throttled, for whatever it has used up."""

    def took(self, request: Request, busy_ms: float) -> None:
        """Count the time that the broker spent on a request, not the time that its answer waited."""


class Gate:
    """One per node, for all of its listeners."""

    __slots__ = ("authentication", "authorizer", "is_active", "own", "quotas")

    def __init__(self) -> None:
        self.own = Client(Entrance(), ANONYMOUS)
        """This node, as the sender of requests of its own."""
        self.configure()

    def configure(
        self,
        authentication: Authentication | None = None,
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.authentication = authentication
        self.authorizer = authorizer
        self.quotas = quotas
        self.is_active = authentication is not None or authorizer is not None or quotas is not None

    def client(self, entrance: Entrance) -> Client:
        """For a new connection of this listener."""
        policy = self.authentication
        return Client(entrance, ANONYMOUS if policy is None else policy.principal(entrance))

    def check_login(self, request: Request) -> None:
        """Raises KafkaError, which closes the connection, if its client has yet to authenticate."""
        if request.client.principal is None and not request.row.before_login:
            reason = f"{request.row.name} before the client has authenticated"
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, reason)

    def enter(self, request: Request) -> None:
        """Raises KafkaError, which is answered, if the request as a whole is not to be served."""
        row = request.row
        if row.is_forwarded:
            return
        if row.whole is not None and not request.allowed_on_cluster(row.whole):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if self.quotas is not None and row.quota is not QuotaClass.NONE:
            self.quotas.enter(request)

    def charge(self, request: Request, data_bytes: int) -> int:
        """The throttle time, for an answer that is about to leave."""
        quotas = self.quotas
        if quotas is None or request.row.quota is QuotaClass.NONE:
            return 0
        return quotas.charge(request, data_bytes)

    def took(self, request: Request, busy_ms: float) -> None:
        if self.quotas is not None and request.row.quota is not QuotaClass.NONE:
            self.quotas.took(request, busy_ms)

    def leave(self, request: Request, response: Message) -> None:
        """Charge a request that the codec answers, and tell its client of the throttle time."""
        throttle_ms = self.charge(request, 0)
        if throttle_ms and isinstance(response, Encoded):
            response.body = _pack_throttle(throttle_ms) + response.body[_THROTTLE_BYTES:]  # its first field
        elif throttle_ms and hasattr(response, "throttle_time_ms"):
            # The controller may have throttled a request that was passed on to it for longer.
            response.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)


async def decided(handler: Callable[[Any, Request, Any], Any], node: object, request: Request) -> Message:
    """The answer to a request that did not come in a frame: through the gate, and with errors as its API has them."""
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
    return response

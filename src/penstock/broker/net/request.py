"""One request, as every kind of handler sees it, on the listeners of brokers and of controllers.

A connection has one `Request` that it fills anew for each frame, so that a small request allocates nothing. Handlers of
Produce and Fetch read their own frames, and copy what they need later. Other handlers keep the object if they do not
answer at once; their connection then takes another one (`detached`).

A request that a broker forwarded in an Envelope has the client of the original request, and the connection of the
broker. A node's own request has no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.broker.net.access import NOT_ASKED, Client, ListenerInfo, Principal
from penstock.broker.refusals import refusal
from penstock.metadata import Charge, ResourceType, free
from penstock.wire.acls import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.broker.gate import Gate
    from penstock.broker.net.connection import Connection
    from penstock.broker.net.slices import RequestSlices
    from penstock.wire.apis import ServedApi
    from penstock.wire.codec import Message

T = TypeVar("T")

_read_length = Struct(">h").unpack_from
CLIENT_ID_AT = 8
"""The position of the client id's length in the header: after API key, version and correlation id."""

ALL_OPERATIONS = {kind: sum(1 << operation for operation in owned) for kind, owned in OPERATIONS_OF.items()}


class Request:
    __slots__ = (
        "_client_id",
        "body",
        "client",
        "connection",
        "correlation_id",
        "end",
        "gate",
        "owed_ms",
        "position",
        "row",
        "start",
        "version",
    )

    row: ServedApi
    """The API's row in the table."""

    def __init__(self, gate: Gate, client: Client, connection: Connection | None) -> None:
        self.gate = gate
        self.client = client
        self.connection = connection
        """None for a request of this node itself."""
        self._client_id: str | None = None
        self.version = 0
        self.correlation_id = 0
        self.start = 0
        """The position of the frame in the connection's buffer."""
        self.position = 0
        """The position of the body, which ends with the frame."""
        self.end = 0
        self.owed_ms = 0
        """Throttle time that the handler found to be due, for its partitions created and deleted."""
        self.body: Message | None = None
        """The decoded body, if the codec decodes it."""

    @classmethod
    def of(
        cls,
        gate: Gate,
        client: Client,
        row: ServedApi,
        version: int,
        body: Message,
        *,
        client_id: str = "",
        connection: Connection | None = None,
    ) -> Request:
        """A request without a frame: a node's own, or one from an Envelope."""
        made = cls(gate, client, connection)
        made.row = row
        made.version = version
        made.body = body
        made._client_id = client_id
        return made

    def detached(self) -> Request:
        """Let this request outlive its frame. Returns a new object for its connection."""
        self._client_id = self.client_id
        return Request(self.gate, self.client, self.connection)

    def kept(self) -> Request:
        """A copy that outlives the frame."""
        copy = Request(self.gate, self.client, self.connection)
        copy.row, copy.version, copy.correlation_id = self.row, self.version, self.correlation_id
        copy.start, copy.position, copy.end = self.start, self.position, self.end
        copy._client_id = self.client_id
        return copy

    # ---- its origin

    @property
    def has_frame(self) -> bool:
        """Whether the client sent it over `connection` itself."""
        return self.end > 0

    @property
    def client_id(self) -> str:
        """The client id, empty if there is none. Read from the frame on first use."""
        if self._client_id is not None:
            return self._client_id
        assert self.connection is not None
        at = self.start + CLIENT_ID_AT
        length = _read_length(self.connection.buffer, at)[0]
        return "" if length <= 0 else bytes(self.connection.view[at + 2 : at + 2 + length]).decode("utf-8", "replace")

    @property
    def principal(self) -> Principal | None:
        return self.client.principal

    @property
    def listener_info(self) -> ListenerInfo:
        """The listener that received the request."""
        return self.client.listener_info

    @property
    def host(self) -> str:
        return self.client.host

    @property
    def peer(self) -> str:
        """The sender, for log lines."""
        return "this node" if self.connection is None else self.connection.peer

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def slices(self) -> RequestSlices:
        """For a handler that may take long: `with request.slices() as slices: … await slices.breathe()`."""
        assert self.connection is not None
        return self.connection.slices(self.took)

    @property
    def took(self) -> Callable[[float], None] | None:
        """Counts time that the loop worked for this request, in milliseconds; None if nobody counts it."""
        gate = self.gate
        return None if gate.quotas is None else partial(gate.took, self)

    # ---- authorisation

    @property
    def is_restricted(self) -> bool:
        """Whether there is an authorizer. Without one everything is allowed, and handlers skip their loops."""
        return self.gate.authorizer is not None

    @property
    def has_acls(self) -> bool:
        """Whether ACLs decide, and can be listed and changed."""
        authorizer = self.gate.authorizer
        return authorizer is not None and authorizer.has_acls

    def allowed(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether the client may do what it asks for. The answer may be recorded in the audit log."""
        gate = self.gate
        authorizer = gate.authorizer
        if authorizer is None or self.client is gate.own:
            return True
        allowed = authorizer.allows(self, operation, kind, name)
        if gate.audit is not None:
            gate.audit.access(self, operation, kind, name, allowed)
        return allowed

    def permits(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER_NAME) -> bool:
        """Like `allowed`, without a record in the audit log: for lists that show only what the client may see, and
        where another right is enough. A "no" is then not an attempt to do something forbidden."""
        authorizer = self.gate.authorizer
        return authorizer is None or self.client is self.gate.own or authorizer.allows(self, operation, kind, name)

    def allowed_on_cluster(self, operation: Operation) -> bool:
        return self.allowed(operation, ResourceKind.CLUSTER, CLUSTER_NAME)

    def may_describe(self, topic: str) -> bool:
        """Whether the client may see this topic, which it did not name."""
        return self.permits(Operation.DESCRIBE, ResourceKind.TOPIC, topic)

    def split(
        self,
        operation: Operation,
        kind: ResourceKind,
        items: Iterable[T],
        name: Callable[[T], str],
        *,
        listing: bool = False,
    ) -> tuple[list[T], list[T]]:
        """Split elements into (allowed, denied) for the operation on their resources. Each name is checked once.

        `listing`: the client did not name them, so those that it may not see are no attempt to see them.
        """
        items = list(items)
        if not self.is_restricted:
            return items, []
        allowed = self.permits if listing else self.allowed
        verdicts = {found: allowed(operation, kind, found) for found in dict.fromkeys(map(name, items))}
        return [item for item in items if verdicts[name(item)]], [item for item in items if not verdicts[name(item)]]

    def check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """Raise KafkaError, with the code for that kind of resource, unless the operation is allowed."""
        if self.gate.authorizer is not None and not self.allowed(operation, kind, name):
            raise KafkaError(DENIED[kind])

    def allowed_somewhere(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the operation is allowed on at least one possible resource of this kind."""
        authorizer = self.gate.authorizer
        if authorizer is None or self.client is self.gate.own:
            return True
        return authorizer.allows_somewhere(self, operation, kind)

    def check_config(self, operation: Operation, resource_type: int, name: str) -> None:
        """Like `check`, for a resource that has configurations: those of brokers belong to the cluster."""
        if resource_type == ResourceType.TOPIC:
            self.check(operation, ResourceKind.TOPIC, name)
        elif resource_type == ResourceType.GROUP:
            self.check(operation, ResourceKind.GROUP, name)
        elif resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS):
            self.check(operation, ResourceKind.CLUSTER, CLUSTER_NAME)

    @property
    def may_speak_for_a_broker(self) -> bool:
        return self.client.listener_info.for_nodes and self.permits(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)

    def operations(self, kind: ResourceKind, name: str = CLUSTER_NAME, *, asked: bool = True) -> int:
        """The operations allowed on a resource, as a bit set (KIP-430)."""
        if not asked:
            return NOT_ASKED
        if self.gate.authorizer is None:
            return ALL_OPERATIONS[kind]
        if kind is ResourceKind.CLUSTER and not self.permits(Operation.DESCRIBE, kind, name):
            return 0
        return sum(1 << operation for operation in OPERATIONS_OF[kind] if self.permits(operation, kind, name))

    def charge(self, data_bytes: int) -> int:
        """The throttle time, for handlers that encode their own answers."""
        gate = self.gate
        return 0 if gate.quotas is None else gate.charge(self, data_bytes)

    def fetch_bytes_max(self, asked: int) -> int:
        """At most as many bytes of records as the client's quota allows at once."""
        quotas = self.gate.quotas
        most = None if quotas is None else quotas.fetch_bytes_max(self)
        return asked if most is None else min(asked, most)

    @property
    def mutation_charge(self) -> Charge:
        """Charges the client for partitions that the controller creates or deletes; refuses those over its quota."""
        gate = self.gate
        if gate.quotas is None or self.client is gate.own:
            return free
        return gate.quotas.mutation_charge(self) or free

    # ---- errors

    def refused(self, code: ErrorCode, message: str | None = None) -> Message:
        """The answer that refuses the whole request, with the error in every error field of the API."""
        assert self.body is not None
        return refusal(self.row, self.version, self.body, code, message)


DENIED = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceKind.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceKind.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code for a denied operation, by kind of resource."""

TOPIC_DENIED: dict[str, Any] = {
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "error_message": ErrorCode.TOPIC_AUTHORIZATION_FAILED.message,
}
"""The error fields for a denied topic, in answers with a message."""

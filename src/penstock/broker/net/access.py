"""The sender of a request: its listener, its principal, and its client id.

A broker has listeners for clients, one of which (`inter.broker.listener.name`) is also for other brokers; a controller
has one for nodes. Requests between controllers and brokers (Vote, BrokerHeartbeat, AlterPartition, Envelope …) are in
the table of the controllers' listeners alone, so other listeners reject them as unknown APIs. A connection to a
broker's listener may act for another broker, as a follower in Fetch, if that listener is one for nodes and its
principal has ClusterAction.

A listener that is shared by clients and brokers cannot tell them apart until connections are authenticated. To separate
them, configure a separate listener for brokers, on a network that clients cannot reach. `penstock up`,
`penstock chaos` and `penstock.testing` do so (`penstock.config.local_cluster`).
"""

from __future__ import annotations

from ipaddress import ip_address
from struct import Struct
from typing import Final, NamedTuple

from penstock.wire.codec import decode_whole, encode
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages.default_principal_data import DefaultPrincipalData

NOT_ASKED: Final = -(2**31)
"""Kafka's value of authorised operations (KIP-430) if the client did not request them."""

_VERSION: Final = Struct(">h")
PRINCIPAL_VERSION: Final = 0


class ListenerInfo(NamedTuple):
    """The properties of a listener that its connections need."""

    listener: str = ""
    """The listener's name. Metadata gives clients the other brokers' listeners of the same name."""
    for_nodes: bool = True
    """Whether other nodes of the cluster use this listener."""
    protocol: str = "PLAINTEXT"
    """The security protocol."""

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")


class Principal(NamedTuple):
    """The identity that a connection has authenticated as."""

    kind: str
    name: str
    token_authenticated: bool = False
    """Whether it logged in with a delegation token."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def to_bytes(self) -> bytes:
        """The form used in Envelope: the version of `DefaultPrincipalData`, then the message (KIP-590)."""
        out = bytearray(_VERSION.pack(PRINCIPAL_VERSION))
        data = DefaultPrincipalData(type_=self.kind, name=self.name, token_authenticated=self.token_authenticated)
        encode(data, PRINCIPAL_VERSION, out)
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> Principal:
        """Raises KafkaError(PRINCIPAL_DESERIALIZATION_FAILURE)."""
        try:
            if len(data) < _VERSION.size or _VERSION.unpack_from(data)[0] != PRINCIPAL_VERSION:
                raise WireError("the principal has an unknown version")
            found = decode_whole(DefaultPrincipalData, PRINCIPAL_VERSION, data, _VERSION.size)
        except WireError as error:
            raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
        return cls(found.type_, found.name, found.token_authenticated)


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Kafka's principal of an unauthenticated client, on a listener without authentication."""


NODE: Final = Principal("Penstock", "node")
"""The principal of a node's own requests. In an Envelope it stands for the node that sent it: the controller authorises
such a request by the connection's principal. No login gives a client a principal of this kind."""


def address_of_host(host: str) -> bytes:
    """A client's address in the form used in Envelope: 4 or 16 bytes, or empty if it is not an IP address."""
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b""


def host_of_address(address: bytes) -> str:
    """Raises WireError."""
    if not address:
        return ""
    try:
        return str(ip_address(bytes(address)))
    except ValueError:
        raise WireError(f"a client address has {len(address)} bytes, not 4 or 16") from None


class Client:
    """The sender of the requests of one connection."""

    __slots__ = (
        "expires_ms",
        "host",
        "listener_info",
        "login",
        "meters",
        "principal",
        "rejected",
        "software_name",
        "software_version",
    )

    def __init__(self, listener_info: ListenerInfo, principal: Principal | None, host: str = "") -> None:
        self.listener_info = listener_info
        self.principal = principal
        """None until the client has authenticated, on a listener that requires it."""
        self.login: object = None
        """The login in progress, on a listener with SASL (`penstock.broker.security.exchange`)."""
        self.expires_ms: float | None = None
        """When the client must have logged in again (KIP-368), on the monotonic clock. None: never."""
        self.rejected = False
        """Its login has failed: the connection is closed after the answer."""
        self.host = host
        """The address from which it connected, as text."""
        self.meters: object = None
        """What `penstock.broker.quotas` found for it last."""
        self.software_name = "unknown"
        """What ApiVersions told of the client library (KIP-511)."""
        self.software_version = "unknown"

"""Addresses: listeners and advertised listeners (`NAME://HOST:PORT`), and voters of the quorum (`ID@HOST:PORT`).

`listener.security.protocol.map` maps a listener's name to its security protocol. An empty host means every interface;
port 0 means any free port. In these cases the broker decides which address to advertise, because only it knows what it
was bound to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.wire.errors import KafkaError
from penstock.wire.valid import PORT_MAX, check_host, check_listener_name

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Kafka's numbers, in registrations."""
NODE_ID_MAX = 2**31 - 1
INT32_MAX = 2**31 - 1
LISTENER_PREFIX = "listener.name."


class Endpoint(NamedTuple):
    """The address that a listener is bound to, or that is advertised to clients."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class QuorumVoter(NamedTuple):
    """A controller that is a voter from the start of the cluster."""

    id: int
    host: str
    port: int


class ListenerLimits(NamedTuple):
    """Limits of one listener (`listener.name.NAME.max.connections` …)."""

    max_connections: int = INT32_MAX
    max_connection_creation_rate: int = INT32_MAX


LISTENER_LIMITS = {
    "max.connections": "max_connections",
    "max.connection.creation.rate": "max_connection_creation_rate",
}


def parse_listener_limits(static: Mapping[str, str], names: Collection[str]) -> dict[str, ListenerLimits]:
    """The limits of each listener that has some. Raises ValueError."""
    limits: dict[str, ListenerLimits] = {}
    listeners = {name.lower(): name for name in names}
    for key, text in static.items():
        lowered, _, setting = key.removeprefix(LISTENER_PREFIX).partition(".")
        if not key.startswith(LISTENER_PREFIX) or setting not in LISTENER_LIMITS:
            continue
        listener = listeners.get(lowered)
        if listener is None:
            raise ValueError(f"{key}: there is no listener {lowered.upper()}; the name in the key is in lower case")
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) > INT32_MAX:
            raise ValueError(f"{key}={text.strip()}: must be a number from 0 to {INT32_MAX}")
        known = limits.get(listener, ListenerLimits())
        limits[listener] = known._replace(**{LISTENER_LIMITS[setting]: int(text)})
    return limits


def parse_endpoints(entries: tuple[str, ...], protocol_of: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The endpoints of a `listeners` value. Raises ValueError, which names the wrong entry and the reason."""
    endpoints = tuple(_parse_endpoint(entry, protocol_of) for entry in entries if entry)
    if not endpoints:
        raise ValueError("needs at least one entry such as PLAINTEXT://127.0.0.1:9092")
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"names the listener {name} more than once; names must be unique")
    return endpoints


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse `NAME:PROTOCOL,…` into a mapping."""
    protocols: dict[str, str] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        name, _, protocol = item.strip().partition(":")
        protocol = protocol.upper()
        if not name or protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"{item.strip()!r} is not NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}")
        protocols[name.upper()] = protocol
    return protocols


def parse_host_port(text: str) -> tuple[str, int]:
    """`host:port`, `[v6 address]:port` or `:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT with a port between 0 and {PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address goes in brackets, as in [::1]:{port}")
    try:
        if host:
            check_host(host)
    except KafkaError as error:
        raise ValueError(f"{text!r}: {error.message}") from None
    return host, int(port)


def listener_of(address: str) -> str:
    """The `listeners` entry for `--listen HOST:PORT`."""
    host, port = parse_host_port(address)
    return str(Endpoint("PLAINTEXT", host, port, "PLAINTEXT"))


def parse_voters(entries: tuple[str, ...]) -> tuple[QuorumVoter, ...]:
    """The voters in order of their ids. Raises ValueError, which names the wrong entry and the reason."""
    voters: dict[int, QuorumVoter] = {}
    for entry in entries:
        number, separator, address = entry.partition("@")
        number = number.strip()
        if not separator or not number.isascii() or not number.isdigit() or int(number) > NODE_ID_MAX:
            raise ValueError(f"has {entry!r}, which is not ID@HOST:PORT, as in 1@localhost:9093")
        host, port = parse_host_port(address)
        if not host or not port:
            raise ValueError(f"has {entry!r}, but other nodes need a host and a port to reach it")
        voter = QuorumVoter(int(number), host, port)
        if voter.id in voters:
            raise ValueError(f"names node {voter.id} twice; ids must be unique")
        voters[voter.id] = voter
    return tuple(voters[node_id] for node_id in sorted(voters))


def _parse_endpoint(entry: str, protocol_of: Mapping[str, str]) -> Endpoint:
    name, separator, address = entry.partition("://")
    if not separator or not name:
        raise ValueError(f"{entry!r} is not of the form NAME://HOST:PORT")
    host, port = parse_host_port(address)
    try:
        check_listener_name(name)
    except KafkaError as error:
        raise ValueError(f"has {entry!r}: {error.message}") from None
    protocol = protocol_of.get(name.upper())
    if protocol is None:
        raise ValueError(f"has {entry!r}, but listener.security.protocol.map lacks {name}; add {name}:PLAINTEXT")
    return Endpoint(name.upper(), host, port, protocol)

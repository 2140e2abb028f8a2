"""Validates hosts, ports, names and ids from other nodes and clients.

Each of these reaches the operating system, a file or a log line: a host is passed to the resolver, a cluster id is
written into `meta.properties`. So each is checked where it enters the node, by one of these functions, which raise
KafkaError(INVALID_REQUEST) with the reason. Topic names have rules of their own (`penstock.metadata.topic_names`).

| enters by | checked in |
|---|---|
| AddRaftVoter | `broker.apis.add_raft_voter` |
| BrokerRegistration | `broker.apis.broker_registration` |
| BeginQuorumEpoch, and every quorum response that says where nodes listen | `broker.quorum_peers` |
| records and snapshots of the leader: voters, brokers, controllers, topics | `broker.quorum_wire` |
| the cluster id that another node names | `broker.formation` |
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.uuids import is_reserved

HOST_LENGTH_MAX: Final = 255
LABEL_LENGTH_MAX: Final = 63
PORT_MAX: Final = 65_535
NAME_LENGTH_MAX: Final = 100
ENDPOINTS_MAX: Final = 100
"""The maximum number of listeners of one node."""

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def check_host(host: str) -> None:
    """Accepts a name that a resolver can look up, or an address."""
    problem = _host_problem(host)
    if problem:
        raise _invalid(f"{_shown(host)} is not a host name or address: {problem}")


def check_port(port: int) -> None:
    if not 1 <= port <= PORT_MAX:
        raise _invalid(f"{port} is not a valid port: ports are 1 to {PORT_MAX}")


def check_listener_name(name: str) -> None:
    if len(name) > NAME_LENGTH_MAX or _NAME.fullmatch(name) is None:
        raise _invalid(
            f"{_shown(name)} is not a listener name: use 1 to {NAME_LENGTH_MAX} letters, digits, '.', '_' or '-'"
        )


def check_address(host: str, port: int) -> None:
    check_host(host)
    check_port(port)


def check_endpoint(name: str, host: str, port: int) -> None:
    check_listener_name(name)
    check_address(host, port)


def check_node_id(node_id: int) -> None:
    if node_id < 0:
        raise _invalid(f"{node_id} is not a node id: ids are not negative")


def check_directory_id(directory_id: bytes) -> None:
    if is_reserved(directory_id):
        raise _invalid("a directory id must not be all zeros or one that Kafka reserves")


def check_cluster_id(cluster_id: str) -> None:
    if len(cluster_id) > NAME_LENGTH_MAX or _NAME.fullmatch(cluster_id) is None:
        raise _invalid(
            f"{_shown(cluster_id)} is not a cluster id: use 1 to {NAME_LENGTH_MAX} letters, digits, '.', '_' or '-'"
        )


def _host_problem(host: str) -> str:
    if not host:
        return "it is empty"
    if len(host) > HOST_LENGTH_MAX:
        return f"it has {len(host)} characters, more than {HOST_LENGTH_MAX}"
    if ":" in host:
        try:
            IPv6Address(host)
        except AddressValueError:
            return "it has a colon, but is not an IPv6 address"
        return ""
    try:
        # The resolver's first step: it fails for empty or long labels, and for characters that IDNA forbids.
        ascii_host = host.encode("idna").decode("ascii")
    except UnicodeError:
        return f"each part between dots must have 1 to {LABEL_LENGTH_MAX} characters, and letters of one alphabet"
    labels = ascii_host.removesuffix(".").split(".")
    if any(len(label) > LABEL_LENGTH_MAX or _LABEL.fullmatch(label) is None for label in labels):
        return f"each part between dots must have 1 to {LABEL_LENGTH_MAX} letters, digits or '-', and no '-' at an end"
    return "" if len(ascii_host) <= HOST_LENGTH_MAX else f"it has more than {HOST_LENGTH_MAX} characters on the wire"


def _shown(text: str) -> str:
    """The text quoted, with unprintable characters escaped, shortened if it is long."""
    return ascii(text if len(text) <= LABEL_LENGTH_MAX else f"{text[:LABEL_LENGTH_MAX]}…")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)

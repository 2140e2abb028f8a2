"""Finds out why a cluster cannot be reached: tries each address, and reports the cause and the remedy."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

CONNECT_TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 4096
DEFAULT_PORT = 9092

_CORRELATION_ID = 0x70656E73
_API_VERSIONS = 18
TLS_ALERT = b"\x15\x03"


class Finding(NamedTuple):
    """The result of trying one address."""

    address: str
    speaks_kafka: bool
    text: str
    advice: str = ""


def split_addresses(bootstrap_server: str) -> list[str]:
    """The addresses of a bootstrap list, each with its port."""
    addresses = []
    for item in bootstrap_server.split(","):
        address = item.strip().rpartition("://")[2]
        if address:
            addresses.append(address if _port_of(address) else f"{address}:{DEFAULT_PORT}")
    return addresses


def examine(addresses: Iterable[str], timeout_s: float = CONNECT_TIMEOUT_S) -> list[Finding]:
    """Tries each address: does its name resolve, does anything listen, is it a Kafka broker?"""
    return [_examine(address, timeout_s) for address in addresses]


def accepts_connections(addresses: Iterable[str], timeout_s: float = CONNECT_TIMEOUT_S) -> bool:
    """Whether anything at all listens at one of the addresses."""
    for address in addresses:
        host, port = _host_and_port(address)
        try:
            socket.create_connection((host, port), timeout_s).close()
        except OSError:
            continue
        return True
    return False


def _examine(address: str, timeout_s: float) -> Finding:
    host, port = _host_and_port(address)
    try:
        connection = socket.create_connection((host, port), timeout_s)
    except socket.gaierror:
        return Finding(address, False, f"the name {host} does not resolve", "check the name, or use an address")
    except ConnectionRefusedError:
        return Finding(address, False, "nothing listens there (connection refused)", "check the port")
    except TimeoutError:
        return Finding(
            address,
            False,
            f"no answer within {timeout_s:g} s",
            "check the address, and that no firewall drops the connection",
        )
    except OSError as error:
        return Finding(address, False, (error.strerror or str(error)).lower(), "check the address and the network")
    with connection:
        return _ask(connection, address, timeout_s)


def _ask(connection: socket.socket, address: str, timeout_s: float) -> Finding:
    """Sends the one request that every Kafka broker answers, and looks at what comes back."""
    client = b"penstock"
    body = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION_ID, len(client)) + client
    try:
        connection.settimeout(timeout_s)
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.recv(ANSWER_BYTES_MAX)
    except TimeoutError:
        return Finding(
            address,
            False,
            "it accepts connections but does not answer",
            "it may be a TLS port (set security.protocol=SSL in --command-config), or not a Kafka broker",
        )
    except OSError:
        answer = b""
    if len(answer) >= 8 and struct.unpack(">i", answer[4:8])[0] == _CORRELATION_ID:
        return Finding(address, True, "a Kafka broker answers there")
    if answer.startswith(TLS_ALERT):
        return Finding(address, False, "it speaks TLS", "set security.protocol=SSL (or SASL_SSL) in --command-config")
    if answer.startswith(b"HTTP/"):
        return Finding(address, False, "it speaks HTTP, not Kafka's protocol", "use the port of a broker's listener")
    if not answer:
        return Finding(
            address,
            False,
            "it closed the connection without an answer",
            "it may want authentication (security.protocol and sasl.* in --command-config), or is not a Kafka broker",
        )
    return Finding(address, False, "the server there is not a Kafka broker", "check the port")


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _port_of(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return port if colon and port.isdigit() and (host.endswith("]") or ":" not in host) else ""

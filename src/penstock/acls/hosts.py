"""The host of an ACL: `*`, one IP address, or a range of addresses in CIDR notation.

Kafka knows the first two and compares texts. Ranges are Penstock's extension: they need no name service, and one ACL
covers a subnet. Kafka stores such a host too, but it never applies there.

Addresses are compared as numbers, so `::1` and `0:0:0:0:0:0:0:1` are the same host, and an IPv4 client of an IPv6
socket (`::ffff:10.1.2.3`) is its IPv4 address.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

ANY_HOST: Final = "*"
HOST_LENGTH_MAX: Final = 64
"""An IPv6 address with a prefix length has at most 43 characters."""
REMEMBERED_MAX: Final = 4_096


def check_host(host: str) -> None:
    """Raises ValueError unless the text is `*`, an address or a range. The message says what is wrong."""
    if host == ANY_HOST:
        return
    if len(host) > HOST_LENGTH_MAX:
        raise ValueError(f"the host is longer than {HOST_LENGTH_MAX} characters")
    try:
        ip_network(host)
    except ValueError:
        hint = ""
        with suppress(ValueError):
            hint = f"; did you mean {ip_network(host, strict=False)}?" if "/" in host else ""
        raise ValueError(f"{host!r} is not *, an IP address or a range such as 10.1.0.0/16{hint}") from None


def host_matches(pattern: str, host: str) -> bool:
    """Whether a client at `host` is covered. A host that is not an address is covered by `*` and by the same text."""
    if pattern in (ANY_HOST, host):
        return True
    network = _network(pattern)
    if network is None:
        return False
    address = _address(host)
    return address is not None and address.version == network.version and address in network


@lru_cache(REMEMBERED_MAX)
def _network(pattern: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(pattern)
    except ValueError:
        return None


@lru_cache(REMEMBERED_MAX)
def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address

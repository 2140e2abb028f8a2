"""What a shard must know of a request besides its body."""

from __future__ import annotations

from typing import NamedTuple


class RequestInfo(NamedTuple):
    """Who asks, and in which version of the API."""

    version: int
    client_id: str
    client_host: str
    """As Kafka shows it, with the slash: `/127.0.0.1`."""

"""What a shard must know of a request besides its body."""

from __future__ import annotations

from typing import Final, NamedTuple

STRING_BYTES_MAX: Final = 32_767
"""Of Kafka's strings. What goes into records must keep to it, whatever a request could carry."""

UTF8_BYTES_MAX: Final = 4


class RequestInfo(NamedTuple):
    """Who asks, and in which version of the API."""

    version: int
    client_id: str
    client_host: str
    """As Kafka shows it, with the slash: `/127.0.0.1`."""


def fits_string(text: str) -> bool:
    return len(text) <= STRING_BYTES_MAX // UTF8_BYTES_MAX or len(text.encode()) <= STRING_BYTES_MAX

"""Random identifiers in Kafka's format."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable

__all__ = ["random_uuid"]

UUID_BYTES = 16


def random_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """A version 4 UUID. Its version bits distinguish it from Kafka's reserved ids, whose upper half is zero.

    Like Kafka's, its text form never starts with '-', which a command line would take for an option.
    """
    while True:
        raw = bytearray(random_bytes(UUID_BYTES))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        if not urlsafe_b64encode(raw).startswith(b"-"):
            return bytes(raw)

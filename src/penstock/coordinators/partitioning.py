"""Maps a key to a partition of its internal topic. Same hash as Kafka, so that tools and other brokers agree."""

from __future__ import annotations

from functools import lru_cache

_INT32_MIN = -(2**31)
KEYS_REMEMBERED = 16_384


def partition_of(key: str, partition_count: int) -> int:
    return _java_hash(key) % partition_count


@lru_cache(KEYS_REMEMBERED)
def _java_hash(text: str) -> int:
    """`Utils.abs(String.hashCode())` of Java: over UTF-16 code units, in 32 bits, without the sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return 0 if signed == _INT32_MIN else abs(signed)

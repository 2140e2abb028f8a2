"""Choosing the partition of a record.

A name selects one of librdkafka's partitioners (default: `murmur2_random`). A function decides in Python:

    def by_country(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int: ...
    Producer("localhost:9092", partitioner=by_country)

| name | keys | no key |
|---|---|---|
| `murmur2_random` | where Java's producers put them | a partition for each batch (sticky) |
| `murmur2` | the same | all on one partition |
| `consistent_random` | by crc32: librdkafka's own default | sticky |
| `fnv1a_random` | by FNV-1a, as Sarama (Go) does | sticky |
| `random` | sticky | sticky |
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

NAMES: Final = (
    "murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a", "random",
)  # fmt: skip

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, number of partitions) → partition."""

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash by which Kafka's Java clients choose a key's partition, as an unsigned number."""
    length = len(data)
    whole = length & ~3
    value = _SEED ^ length
    for index in range(0, whole, 4):
        chunk = int.from_bytes(data[index : index + 4], "little") * _M & _MASK
        chunk = (chunk ^ chunk >> 24) * _M & _MASK
        value = value * _M & _MASK ^ chunk
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition of a key, as Java's clients and compatible ones choose it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class RoundRobin:
    """Sends records to the partitions in turn, ignoring keys; each topic has its own turn."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        with self._lock:
            number = self._next.get(topic, 0)
            self._next[topic] = number + 1
        return number % partitions

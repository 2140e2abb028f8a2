"""Where the common clients put a key: the partitioners of Java, librdkafka and Sarama. Pure."""

from __future__ import annotations

import zlib


def murmur2_partition(key: bytes, partitions: int) -> int:
    """Where Java's clients put a key, and `penstock produce`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def crc32_partition(key: bytes, partitions: int) -> int:
    """Where librdkafka's clients put a key unless they are told otherwise."""
    return zlib.crc32(key) % partitions


def fnv1a_partition(key: bytes, partitions: int) -> int:
    """Where Sarama's clients put a key: the hash is signed there."""
    digest = 0x811C9DC5
    for byte in key:
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    signed = digest - (1 << 32) if digest & 0x80000000 else digest
    return abs(signed) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2 with Kafka's seed, as an unsigned number of 32 bits."""
    multiplier = 0x5BD1E995
    digest = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        block = int.from_bytes(data[position : position + 4], "little") * multiplier & 0xFFFFFFFF
        block = (block ^ (block >> 24)) * multiplier & 0xFFFFFFFF
        digest = (digest * multiplier & 0xFFFFFFFF) ^ block
    tail = data[whole:]
    if tail:
        digest = (digest ^ int.from_bytes(tail, "little")) * multiplier & 0xFFFFFFFF
    digest = (digest ^ (digest >> 13)) * multiplier & 0xFFFFFFFF
    return digest ^ (digest >> 15)

"""A persistent map: readers keep their version, and a new version costs only what changed.

The entries are in a fixed number of dicts ("shards"). An edit copies the shards it touches and the list of shards, and
shares the rest: with 100,000 entries one insertion copies about a hundred. A tree would scale to any size, but every
lookup would cost several times more; dicts and a list copy are the fastest structures in Python.

Keys are bytes and are assigned to shards by CRC, not by `hash`, so nothing depends on the process's hash seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar
from zlib import crc32

V = TypeVar("V")

SHARDS: Final = 1024
MASK: Final = SHARDS - 1


class ShardedMap(Generic[V]):
    """Immutable. `edit` starts the next version."""

    __slots__ = ("_shards", "_size")

    def __init__(self) -> None:
        empty: dict[bytes, V] = {}
        self._shards = [empty] * SHARDS
        self._size = 0

    def get(self, key: bytes) -> V | None:
        return self._shards[crc32(key) & MASK].get(key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._shards[crc32(key) & MASK]

    def __len__(self) -> int:
        return self._size

    def keys(self) -> Iterator[bytes]:
        """Keys in an arbitrary order that is the same in every process."""
        for shard in self._shards:
            yield from shard

    def values(self) -> Iterator[V]:
        for shard in self._shards:
            yield from shard.values()

    def items(self) -> Iterator[tuple[bytes, V]]:
        for shard in self._shards:
            yield from shard.items()

    def edit(self) -> Editor[V]:
        return Editor(self)


class Editor(Generic[V]):
    """Collects the changes of one version. Do not use it after `finish`."""

    __slots__ = ("_base", "_owned", "_shards", "_size")

    def __init__(self, base: ShardedMap[V]) -> None:
        self._base = base
        self._shards: list[dict[bytes, V]] | None = None
        self._owned: dict[int, dict[bytes, V]] = {}
        self._size = len(base)

    def get(self, key: bytes) -> V | None:
        shard = self._owned.get(crc32(key) & MASK)
        return self._base.get(key) if shard is None else shard.get(key)

    def put(self, key: bytes, value: V) -> None:
        shard = self._own(crc32(key) & MASK)
        before = len(shard)
        shard[key] = value
        self._size += len(shard) - before

    def remove(self, key: bytes) -> None:
        shard = self._own(crc32(key) & MASK)
        if shard.pop(key, None) is not None:
            self._size -= 1

    def finish(self) -> ShardedMap[V]:
        """The new version; the base itself if nothing changed."""
        if self._shards is None:
            return self._base
        result: ShardedMap[V] = ShardedMap.__new__(ShardedMap)
        result._shards = self._shards
        result._size = self._size
        return result

    def _own(self, index: int) -> dict[bytes, V]:
        shard = self._owned.get(index)
        if shard is None:
            if self._shards is None:
                self._shards = self._base._shards.copy()
            shard = self._owned[index] = self._shards[index] = self._shards[index].copy()
        return shard

"""The table in which requests look up partitions, by the bytes that name the topic in the request."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.replicas.partition import Partition


class PartitionTable:
    """Topics by name and by id. Both maps share the lists of partitions."""

    __slots__ = ("by_id", "by_name")

    def __init__(self) -> None:
        self.by_name: dict[bytes, list[Partition]] = {}
        self.by_id: dict[bytes, list[Partition]] = {}

    def find(self, topic: bytes, index: int, *, by_id: bool = False) -> Partition | None:
        partitions = (self.by_id if by_id else self.by_name).get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def all(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions

"""The offset bookkeeping that all stores share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.client.cluster import TopicPartition
from penstock.client.errors import OffsetConflict, SettingsError
from penstock.client.handed_out import Located

IDS_KEPT: Final = 1_000_000
"""How many ids of processed records a store remembers."""


class Advance(NamedTuple):
    """A partition's offset: the expected stored value and the new one."""

    partition: TopicPartition
    expected: int | None
    """None: nothing was saved for the partition."""
    next_offset: int


class Saving:
    """The stored offset of each partition as this consumer last saw it; saving requires that it is unchanged."""

    def __init__(self) -> None:
        self._expected: dict[TopicPartition, int | None] = {}

    def loaded(self, partitions: Iterable[TopicPartition], found: Mapping[TopicPartition, int]) -> None:
        for one in partitions:
            self._expected[one] = found.get(one)

    def advances(self, messages: Iterable[Located]) -> list[Advance]:
        """The offsets to save once these records are processed."""
        first: dict[TopicPartition, int] = {}
        last: dict[TopicPartition, int] = {}
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            where = TopicPartition(topic, partition)
            first.setdefault(where, offset)
            last[where] = max(offset, last.get(where, offset))
        found: list[Advance] = []
        for where, offset in last.items():
            if where not in self._expected:
                raise SettingsError(
                    "offset_store", f"{where.topic}[{where.partition}] was not loaded: pass this store to the Consumer"
                )
            expected = self._expected[where]
            if expected is not None and first[where] < expected:
                raise OffsetConflict(*where, first[where], expected)
            found.append(Advance(where, expected, offset + 1))
        return found

    def saved(self, advances: Iterable[Advance]) -> None:
        for advance in advances:
            self._expected[advance.partition] = advance.next_offset

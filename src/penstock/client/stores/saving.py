"""What every store has to know about its partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.client.cluster import TopicPartition
from penstock.client.errors import OffsetConflict, SettingsError
from penstock.client.handed_out import Located

IDS_KEPT: Final = 1_000_000
"""How many ids a store remembers, of records that were processed."""


class Advance(NamedTuple):
    """A partition's offset, as it must be and as it is to be."""

    partition: TopicPartition
    expected: int | None
    """None: nothing was saved for it."""
    next_offset: int


class Saving:
    """Where this consumer left each partition; only from there may it go on."""

    def __init__(self) -> None:
        self._expected: dict[TopicPartition, int | None] = {}

    def loaded(self, partitions: Iterable[TopicPartition], found: Mapping[TopicPartition, int]) -> None:
        for one in partitions:
            self._expected[one] = found.get(one)

    def advances(self, messages: Iterable[Located]) -> list[Advance]:
        """What to save once these records are processed."""
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
                    "offset_store", f"{where.topic}[{where.partition}] was not loaded: give the Consumer the store"
                )
            expected = self._expected[where]
            if expected is not None and first[where] < expected:
                raise OffsetConflict(*where, first[where], expected)
            found.append(Advance(where, expected, offset + 1))
        return found

    def saved(self, advances: Iterable[Advance]) -> None:
        for advance in advances:
            self._expected[advance.partition] = advance.next_offset

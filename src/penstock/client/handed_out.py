"""Which records of a batch are not finished, and which wait because their partition is paused. Pure.

A batch is handed out record by record. Requesting the next record marks the previous one as done. librdkafka knows the
position after all records it delivered; the offset to commit is that position, or the first unfinished record here if
there is one. So nothing is counted per record, which would cost more than handing it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

Where = tuple[str, int]
"""(topic, partition)."""


class Located(Protocol):
    def topic(self) -> str | None: ...

    def partition(self) -> int | None: ...

    def offset(self) -> int | None: ...


M = TypeVar("M", bound=Located)


class HandedOut(Generic[M]):
    def __init__(self) -> None:
        self.batch: list[M] = []
        self.current = 0
        """The index of the record being processed; the length of the batch when all are done."""
        self.whole = False
        """The whole batch was handed out at once; `current` is then the index of its first record."""
        self._next: list[M] = []
        """Records to hand out after the batch, before newly fetched ones."""
        self._held: list[M] = []

    @property
    def given(self) -> int:
        """The index of the first record that was not handed out yet."""
        return len(self.batch) if self.whole else min(len(self.batch), self.current + 1)

    def start(self, batch: list[M], *, whole: bool) -> None:
        """Starts a new batch; the previous one is done."""
        self.batch = batch
        self.current = 0
        self.whole = whole

    def take_rest(self) -> list[M]:
        """Hands out the rest of the batch; marks the records handed out before as done."""
        rest = [*self.batch[self.given :], *self._next]
        self._next = []
        self.start([], whole=False)
        return rest

    def keep(self, records: list[M]) -> None:
        """Queues these records to be handed out next."""
        self._next = [*records, *self._next]

    def finish_batch(self) -> None:
        self.current = len(self.batch)

    def unfinished(self, *, given_too: bool) -> dict[Where, int]:
        """The first offset per partition not handed out yet; with `given_too`, the first that is not done."""
        first: dict[Where, int] = {}
        for record in [*self.batch[self.current if given_too else self.given :], *self._next, *self._held]:
            where, offset = _where(record), _offset(record)
            first[where] = min(offset, first.get(where, offset))
        return first

    def waiting(self, where: Where) -> int:
        """The number of a partition's records that were not handed out yet."""
        ahead = [*self.batch[self.given :], *self._next, *self._held]
        return sum(_where(record) == where for record in ahead)

    def hold(self, partitions: Iterable[Where]) -> None:
        """Keeps back the records of these partitions until `release`."""
        self._held += self._take_out(set(partitions))

    def release(self, partitions: Iterable[Where]) -> None:
        """Hands out the records of these partitions next, before those fetched later."""
        wanted = set(partitions)
        self._next += [record for record in self._held if _where(record) in wanted]
        self._held = [record for record in self._held if _where(record) not in wanted]

    def drop(self, partitions: Iterable[Where]) -> None:
        """Drops the records of these partitions: they belong to another member now, or will be read again."""
        unwanted = set(partitions)
        self._take_out(unwanted)
        self._held = [record for record in self._held if _where(record) not in unwanted]

    def _take_out(self, partitions: set[Where]) -> list[M]:
        after = self.given
        ahead = [*self.batch[after:], *self._next]
        # In place: the caller may be iterating over the batch.
        self.batch[after:] = [record for record in self.batch[after:] if _where(record) not in partitions]
        self._next = [record for record in self._next if _where(record) not in partitions]
        return [record for record in ahead if _where(record) in partitions]


def _where(record: Located) -> Where:
    topic, partition = record.topic(), record.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def _offset(record: Located) -> int:
    offset = record.offset()
    assert offset is not None
    return offset

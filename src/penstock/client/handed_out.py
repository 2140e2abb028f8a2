"""Which records of a batch the user has not finished yet, and which wait because their partition is paused. Pure.

A batch is handed out one record after another. Those before the one that the user has are done; asking for the next one
says so. librdkafka knows the position after all that it gave out; the position to commit is that, or the first record
here that is not done yet. So nothing has to be counted for each record, which would cost more than handing it out.
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
        """The index of the record that the user has; the length of the batch when all are done."""
        self.whole = False
        """The user has all of the batch at once; `current` is its first record then."""
        self._next: list[M] = []
        """What comes after the batch, before anything that is fetched."""
        self._held: list[M] = []

    @property
    def given(self) -> int:
        """The index of the first record that the user has not got yet."""
        return len(self.batch) if self.whole else min(len(self.batch), self.current + 1)

    def start(self, batch: list[M], *, whole: bool) -> None:
        """A new batch; the one before is done."""
        self.batch = batch
        self.current = 0
        self.whole = whole

    def take_rest(self) -> list[M]:
        """What the user has not got yet of the batch; what it has is done."""
        rest = [*self.batch[self.given :], *self._next]
        self._next = []
        self.start([], whole=False)
        return rest

    def keep(self, records: list[M]) -> None:
        """They come next."""
        self._next = [*records, *self._next]

    def finish_batch(self) -> None:
        self.current = len(self.batch)

    def unfinished(self, *, given_too: bool) -> dict[Where, int]:
        """The first offset of each partition that the user has not got; `given_too`: or has, but is not done with."""
        first: dict[Where, int] = {}
        for record in [*self.batch[self.current if given_too else self.given :], *self._next, *self._held]:
            where, offset = _where(record), _offset(record)
            first[where] = min(offset, first.get(where, offset))
        return first

    def waiting(self, where: Where) -> int:
        """How many records of a partition the user has not got yet."""
        ahead = [*self.batch[self.given :], *self._next, *self._held]
        return sum(_where(record) == where for record in ahead)

    def hold(self, partitions: Iterable[Where]) -> None:
        """Their records are not handed out until they are released."""
        self._held += self._take_out(set(partitions))

    def release(self, partitions: Iterable[Where]) -> None:
        """Their records come next, before what was fetched later."""
        wanted = set(partitions)
        self._next += [record for record in self._held if _where(record) in wanted]
        self._held = [record for record in self._held if _where(record) not in wanted]

    def drop(self, partitions: Iterable[Where]) -> None:
        """Their records are not handed out: they are another's now, or will be read again."""
        unwanted = set(partitions)
        self._take_out(unwanted)
        self._held = [record for record in self._held if _where(record) not in unwanted]

    def _take_out(self, partitions: set[Where]) -> list[M]:
        after = self.given
        ahead = [*self.batch[after:], *self._next]
        # In place: somebody may be iterating over the batch.
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

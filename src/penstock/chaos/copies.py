"""Records that are stored twice: which batches hold them, and whether the broker or the client is to blame. Pure.

A broker must store a batch once per producer id, producer epoch and sequence number; idempotence requires no more. So
the headers of the two batches that hold a record decide:

    the second copy has                          blame     because
    the same id, epoch and sequence              broker    it should have recognised the duplicate
    the same id and an older epoch               broker    it should have fenced the old epoch
    the same id and a newer epoch, or another id client    it resent the record as a new one
    the same id and epoch, another sequence      unknown   no client does this on purpose
    no producer id, or no batch was found        unknown   there is no evidence
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from penstock.wire.records import HEADER, HEADER_SIZE, NO_PRODUCER_ID, SEQUENCE_MODULUS, BatchHeader


class Blame(StrEnum):
    BROKER = "broker"
    CLIENT = "client"
    UNKNOWN = "unknown"


class Stamp(NamedTuple):
    """The producer id, epoch and sequence of a record, by which a broker tells a retry from a new record."""

    producer_id: int
    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"producer id {self.producer_id}, epoch {self.epoch}, sequence {self.sequence}"


class Stamps:
    """The stamps of all records of one partition, stored per batch."""

    def __init__(self) -> None:
        self._first = array("q")
        self._last = array("q")
        self._producers = array("q")
        self._epochs = array("h")
        self._sequences = array("i")

    def add(self, header: BatchHeader) -> None:
        """Add a batch. Batches come in order of offsets; one that was already added is ignored."""
        if self._last and header.base_offset <= self._last[-1]:
            return
        self._first.append(header.base_offset)
        self._last.append(header.last_offset)
        self._producers.append(header.producer_id)
        self._epochs.append(header.producer_epoch)
        self._sequences.append(header.base_sequence)

    def at(self, offset: int) -> Stamp | None:
        """The stamp of the record at this offset; None if no batch holds it or it has no stamp."""
        number = bisect_right(self._first, offset) - 1
        if number < 0 or offset > self._last[number] or self._producers[number] == NO_PRODUCER_ID:
            return None
        sequence = (self._sequences[number] + offset - self._first[number]) % SEQUENCE_MODULUS
        return Stamp(self._producers[number], self._epochs[number], sequence)


def headers(records: memoryview) -> Iterator[BatchHeader]:
    """The headers of consecutive complete batches, as in a fetch response."""
    position = 0
    while len(records) - position >= HEADER_SIZE:
        header = BatchHeader(*HEADER.unpack_from(records, position))
        yield header
        position += header.size_bytes


class Copy(NamedTuple):
    """One record that is stored a second time."""

    producer: int
    number: int
    """The record is the `number`th that this producer sent to its partition."""
    partition: int
    offset: int
    """The offset of the first copy."""
    again: int
    """The offset of the second copy."""


@dataclass(frozen=True, slots=True)
class Copies:
    """A run of records that are consecutive in both places, with one verdict for all."""

    first: Copy
    count: int
    stamp: Stamp | None
    """The stamp of the first record's first copy."""
    stamp_again: Stamp | None
    blame: Blame

    def __str__(self) -> str:
        copy, more = self.first, self.count - 1
        return (
            f"records {copy.number}–{copy.number + more} of producer {copy.producer} "
            f"at offsets {copy.offset}–{copy.offset + more} ({self.stamp or 'no producer id'}) "
            f"and again at {copy.again}–{copy.again + more} ({self.stamp_again or 'no producer id'})"
        )


def blame(first: Stamp | None, again: Stamp | None) -> Blame:
    """The blame for a record with these stamps; `again` has the higher offset."""
    if first is None or again is None:
        return Blame.UNKNOWN
    if first.producer_id != again.producer_id or again.epoch > first.epoch:
        return Blame.CLIENT
    if again.epoch < first.epoch or again.sequence == first.sequence:
        return Blame.BROKER
    return Blame.UNKNOWN


def judged(copies: Iterable[Copy], stamps: Sequence[Stamps]) -> list[Copies]:
    """All copies with their stamps and the blame, joined into runs."""
    runs: list[Copies] = []
    for copy in sorted(copies, key=lambda one: (one.partition, one.producer, one.again)):
        stamp, stamp_again = stamps[copy.partition].at(copy.offset), stamps[copy.partition].at(copy.again)
        last = runs[-1] if runs else None
        if last is not None and _continues(last, copy, stamp, stamp_again):
            runs[-1] = Copies(last.first, last.count + 1, last.stamp, last.stamp_again, last.blame)
        else:
            runs.append(Copies(copy, 1, stamp, stamp_again, blame(stamp, stamp_again)))
    return runs


def _continues(run: Copies, copy: Copy, stamp: Stamp | None, stamp_again: Stamp | None) -> bool:
    first, count = run.first, run.count
    expected = Copy(first.producer, first.number + count, first.partition, first.offset + count, first.again + count)
    return copy == expected and (stamp, stamp_again) == (_after(run.stamp, count), _after(run.stamp_again, count))


def _after(stamp: Stamp | None, count: int) -> Stamp | None:
    return None if stamp is None else stamp._replace(sequence=(stamp.sequence + count) % SEQUENCE_MODULUS)

"""The account of every record. Pure: given what clients observed, it reports violations.

A record takes eight bytes in each of five columns (acknowledged at, read by the group, read by the lone reader, stored
at, found at), so five million records take about 200 MB.

Not thread-safe: callers on several threads must hold a lock.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.chaos.copies import Blame, Copies, Copy, Stamps, judged

EXAMPLES_MAX: Final = 10
"""How many violations of each kind are kept as text; the rest are only counted."""

UNSEEN: Final = -4
"""Not found anywhere in the topic."""
PENDING: Final = -1
FAILED: Final = -2
UNKNOWN_OFFSET: Final = -3
"""Acknowledged without an offset: a retry that the broker recognised as a duplicate."""


class Kind(StrEnum):
    LOST = "lost"
    MOVED = "moved"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    FOREIGN = "foreign"
    SKIPPED = "skipped"
    VANISHED = "vanished"
    WENT_BACK = "went-back"
    COMMIT_LOST = "commit-lost"


class Name(NamedTuple):
    """Identifies a record: the `number`th that `producer` sent to its partition, from 0."""

    producer: int
    number: int


def encode(name: Name) -> bytes:
    """The value of the record with this name."""
    return b"penstock chaos %d %d" % name


def decode(value: bytes | None) -> Name | None:
    """The name of the record with this value; None for a record of others."""
    words = (value or b"").split()
    if len(words) != 4 or words[:2] != [b"penstock", b"chaos"] or not (words[2].isdigit() and words[3].isdigit()):
        return None
    return Name(int(words[2]), int(words[3]))


class Violation(NamedTuple):
    kind: Kind
    partition: int
    text: str


@dataclass(slots=True)
class Counts:
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    pending: int = 0
    stored: int = 0
    resent: int = 0
    """Stored twice because the client resent them under a new producer epoch, which is not the cluster's fault."""
    read: int = 0
    read_again: int = 0
    """Read again by the group after a reassignment, which at-least-once allows."""
    commits: int = 0


@dataclass(slots=True)
class Verdict:
    counts: Counts
    violations: Counter[Kind] = field(default_factory=Counter)
    examples: list[Violation] = field(default_factory=list)
    copies: list[Copies] = field(default_factory=list)
    """All records that are stored twice, with the blame."""
    _told: Counter[Kind] = field(default_factory=Counter)

    @property
    def holds(self) -> bool:
        return not self.violations

    def add(self, kind: Kind, partition: int, text: str, count: int = 1) -> None:
        self.violations[kind] += count
        self._told[kind] += 1
        if self._told[kind] <= EXAMPLES_MAX:
            self.examples.append(Violation(kind, partition, text))


class Column:
    """The record at each offset of a partition, in eight bytes each."""

    def __init__(self) -> None:
        self._codes: array[int] = array("q")

    def __contains__(self, offset: int) -> bool:
        return 0 <= offset < len(self._codes) and self._codes[offset] != NOTHING

    def __getitem__(self, offset: int) -> Name | None:
        """The name of the record; None for a record of others."""
        code = self._codes[offset]
        return None if code == FOREIGN else Name(*divmod(code - 1, NUMBERS_MAX))

    def __setitem__(self, offset: int, name: Name | None) -> None:
        codes = self._codes
        if offset >= len(codes):
            codes.extend([NOTHING] * (offset + 1 - len(codes)))
        codes[offset] = _code(name)

    def is_at(self, name: Name | None, offset: int) -> bool:
        return 0 <= offset < len(self._codes) and self._codes[offset] == _code(name)

    def differences(self, other: Column) -> Iterator[int]:
        """Offsets at which this column has one of our records and the other column does not have the same."""
        theirs = other._codes
        for offset, code in enumerate(self._codes):
            if code > NOTHING and (offset >= len(theirs) or theirs[offset] != code):
                yield offset

    def missing_in(self, other: Column) -> Iterator[int]:
        """Offsets at which this column has one of our records and the other column has nothing."""
        theirs = other._codes
        for offset, code in enumerate(self._codes):
            if code > NOTHING and (offset >= len(theirs) or theirs[offset] == NOTHING):
                yield offset


NOTHING: Final = 0
FOREIGN: Final = -1
NUMBERS_MAX: Final = 1 << 40
NOBODY: Final = -1
"""Stands for the producer of a record of others."""


def _code(name: Name | None) -> int:
    return FOREIGN if name is None else name.producer * NUMBERS_MAX + name.number + 1


class Ledger:
    """The account of one topic, from the first record sent to the last one found."""

    def __init__(self, partitions: int, probes: Collection[int] = ()) -> None:
        """`probes`: producers that never retry. They are counted separately, and their order is not checked."""
        self.partitions = partitions
        self.counts = Counts()
        self.probe_counts = Counts()
        self._probes = frozenset(probes)
        self._lanes: dict[tuple[int, int], array[int]] = {}
        """By producer and partition: the offset of each record, or its outcome."""
        self._readers: dict[str, Reader] = {}

    # ---- writing

    def sent(self, producer: int, partition: int) -> Name:
        """The name of the next record of this lane."""
        lane = self._lanes.setdefault((producer, partition), array("q"))
        lane.append(PENDING)
        counts = self._counts_of(producer)
        counts.sent += 1
        counts.pending += 1
        return Name(producer, len(lane) - 1)

    def acknowledged(self, name: Name, partition: int, offset: int) -> None:
        self._settle(name, partition, offset if offset >= 0 else UNKNOWN_OFFSET)
        self._counts_of(name.producer).acknowledged += 1

    def failed(self, name: Name, partition: int) -> None:
        """The producer gave up: the record may be stored or not."""
        self._settle(name, partition, FAILED)
        self._counts_of(name.producer).failed += 1

    def _settle(self, name: Name, partition: int, outcome: int) -> None:
        lane = self._lanes[name.producer, partition]
        assert lane[name.number] == PENDING, f"the outcome of {name} was reported twice"
        lane[name.number] = outcome
        self._counts_of(name.producer).pending -= 1

    def _counts_of(self, producer: int) -> Counts:
        return self.probe_counts if producer in self._probes else self.counts

    @property
    def pending(self) -> int:
        """The number of records of all producers whose outcome is not known yet."""
        return self.counts.pending + self.probe_counts.pending

    # ---- reading

    def reader(self, name: str) -> Reader:
        return self._readers.setdefault(name, Reader(name, self.partitions, self._counts_of))

    # ---- the end

    def judge(
        self,
        stored: Iterable[tuple[int, int, Name | None]],
        stamps: Callable[[], Sequence[Stamps]] | None = None,
    ) -> Verdict:
        """The violations, given all stored records: (partition, offset, name), by offset in each partition.

        The name is None for a record of others. If records are stored twice, `stamps` is called to read the producer
        ids, epochs and sequences of each partition. Without it every duplicate is a violation.
        """
        verdict = Verdict(self.counts)
        copies: list[Copy] = []
        found = [Column() for _ in range(self.partitions)]
        places = {key: array("q", [UNSEEN]) * len(lane) for key, lane in self._lanes.items()}
        newest: dict[tuple[int, int], int] = {}
        self.counts.stored = self.probe_counts.stored = 0
        for partition, offset, name in stored:
            self._counts_of(NOBODY if name is None else name.producer).stored += 1
            place = None if name is None else places.get((name.producer, partition))
            if name is None or place is None or not 0 <= name.number < len(place):
                verdict.add(Kind.FOREIGN, partition, f"offset {offset}: {name or 'not a record of this run'}")
                continue
            found[partition][offset] = name
            if place[name.number] != UNSEEN:
                copies.append(Copy(name.producer, name.number, partition, place[name.number], offset))
                continue
            place[name.number] = offset
            before = newest.get((name.producer, partition), -1)
            if name.number < before and name.producer not in self._probes:
                verdict.add(Kind.REORDERED, partition, f"offset {offset}: {tell(name)} is stored after number {before}")
            newest[name.producer, partition] = max(before, name.number)
        if copies:
            known = [Stamps() for _ in range(self.partitions)] if stamps is None else stamps()
            verdict.copies = judged(copies, known)
            self._check_copies(verdict)
        self._check_acknowledged(verdict, places, copies)
        for reader in self._readers.values():
            reader.judge(verdict, found)
        return verdict

    def _check_copies(self, verdict: Verdict) -> None:
        self.counts.resent = sum(run.count for run in verdict.copies if run.blame is Blame.CLIENT)
        for run in verdict.copies:
            if run.blame is not Blame.CLIENT:
                verdict.add(Kind.DUPLICATED, run.first.partition, f"{run} (blame: {run.blame})", run.count)

    def _check_acknowledged(
        self, verdict: Verdict, places: dict[tuple[int, int], array[int]], copies: list[Copy]
    ) -> None:
        # The acknowledgement may be for either copy.
        copied = {(copy.producer, copy.partition, copy.number, copy.again) for copy in copies}
        for (producer, partition), lane in sorted(self._lanes.items()):
            for number, (offset, place) in enumerate(zip(lane, places[producer, partition], strict=True)):
                if offset in (PENDING, FAILED, place):
                    continue
                name = Name(producer, number)
                if place == UNSEEN:
                    told = "" if offset == UNKNOWN_OFFSET else f" at offset {offset}"
                    verdict.add(Kind.LOST, partition, f"{tell(name)} was acknowledged{told}, but is not stored")
                elif offset != UNKNOWN_OFFSET and (producer, partition, number, offset) not in copied:
                    verdict.add(
                        Kind.MOVED, partition, f"{tell(name)} was acknowledged at offset {offset}, but is at {place}"
                    )


class Reader:
    """A consumer group, or a single consumer: the records its members received, and the offsets they committed."""

    def __init__(self, name: str, partitions: int, counts_of: Callable[[int], Counts]) -> None:
        self.name = name
        self._counts_of = counts_of
        self._seen = [Column() for _ in range(partitions)]
        self._position = [0] * partitions
        """The offset after the last record read, over all members."""
        self._committed = [-1] * partitions
        self._open: dict[tuple[str, int], _Assignment] = {}
        self._gaps: list[tuple[int, int, int, str]] = []
        """Skipped ranges (partition, from, to, how); whether they held records is known at the end."""
        self._complaints: list[Violation] = []

    def assigned(self, member: str, partition: int) -> None:
        self._open[member, partition] = _Assignment(committed=self._committed[partition])

    def revoked(self, member: str, partition: int) -> None:
        self._open.pop((member, partition), None)

    def committed(self, partition: int, offset: int) -> None:
        """The cluster acknowledged this commit."""
        self._committed[partition] = offset
        self._counts_of(NOBODY).commits += 1

    def read(self, member: str, partition: int, offset: int, name: Name | None) -> None:
        assignment = self._open.get((member, partition))
        if assignment is None:
            # The client reported the revocation first and then delivered records it still had; positions do not change.
            assignment = _Assignment(committed=-1, next=offset)
        if assignment.next is None:
            self._begin(member, partition, offset, assignment)
        elif offset < assignment.next:
            self._complain(
                Kind.WENT_BACK, partition, f"{member} was at offset {assignment.next} and got {offset} again"
            )
        elif offset > assignment.next:
            self._gaps.append((partition, assignment.next, offset, f"{member} continued"))
        assignment.next = offset + 1
        self._position[partition] = max(self._position[partition], offset + 1)
        self._see(member, partition, offset, name)

    def position(self, partition: int) -> int:
        """The offset after the last record read."""
        return self._position[partition]

    def _begin(self, member: str, partition: int, offset: int, assignment: _Assignment) -> None:
        if offset > self._position[partition]:
            self._gaps.append((partition, self._position[partition], offset, f"{member} started"))
        if offset < assignment.committed:
            self._complain(
                Kind.COMMIT_LOST, partition, f"{assignment.committed} was committed, but {member} started at {offset}"
            )

    def _see(self, member: str, partition: int, offset: int, name: Name | None) -> None:
        seen = self._seen[partition]
        counts = self._counts_of(NOBODY if name is None else name.producer)
        if offset not in seen:
            seen[offset] = name
            counts.read += 1
            return
        counts.read_again += 1
        if not seen.is_at(name, offset):
            self._complain(
                Kind.VANISHED, partition, f"offset {offset} was {tell(seen[offset])}, but is {tell(name)} for {member}"
            )

    def _complain(self, kind: Kind, partition: int, text: str) -> None:
        self._complaints.append(Violation(kind, partition, f"{self.name}: {text}"))

    def judge(self, verdict: Verdict, stored: list[Column]) -> None:
        for complaint in self._complaints:
            verdict.add(*complaint)
        for partition, start, end, how in self._gaps:
            missed = [offset for offset in range(start, end) if offset in stored[partition]]
            # A member that starts has not skipped what other members read: then only the group as a whole can skip. A
            # member that continues without interruption must have read everything itself.
            if how.endswith("started"):
                missed = [offset for offset in missed if offset not in self._seen[partition]]
            if missed:
                verdict.add(
                    Kind.SKIPPED, partition,
                    f"{self.name}: {how} at {end} past {len(missed)} records, the first at {missed[0]}",
                )  # fmt: skip
        for partition, seen in enumerate(self._seen):
            there = stored[partition]
            for offset in seen.differences(there):
                now = tell(there[offset]) if offset in there else "nothing"
                verdict.add(
                    Kind.VANISHED, partition, f"{self.name}: offset {offset} was {tell(seen[offset])}, but is {now} now"
                )
            unread = list(there.missing_in(seen))
            if unread:
                verdict.add(
                    Kind.SKIPPED, partition,
                    f"{self.name}: {len(unread)} records were never read, the first at offset {unread[0]}",
                )  # fmt: skip


@dataclass(slots=True)
class _Assignment:
    committed: int
    """The committed offset when the partition was assigned."""
    next: int | None = None


def tell(name: Name | None) -> str:
    return "a foreign record" if name is None else f"record {name.number} of producer {name.producer}"

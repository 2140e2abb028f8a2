"""The account of every record. Pure: told what clients saw, it says what cannot be.

A record takes eight bytes in each of five columns (acknowledged at, read by the group, read by the lone reader, stored
at, found at), so that five million of them take some 200 MB.

Not for several threads at once: whoever tells it from several holds a lock.
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
"""How many violations of a kind are kept in words; the others are counted."""

UNSEEN: Final = -4
"""Not found anywhere in the topic."""
PENDING: Final = -1
FAILED: Final = -2
UNKNOWN_OFFSET: Final = -3
"""Acknowledged, but the client was not told where: a retry that the broker knew already."""


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
    """Which record it is: the `number`th that `producer` sent to its partition, from 0."""

    producer: int
    number: int


def encode(name: Name) -> bytes:
    """The value of the record that has this name."""
    return b"penstock chaos %d %d" % name


def decode(value: bytes | None) -> Name | None:
    """The name of the record that has this value; None if it is none of ours."""
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
    """Stored twice because the client sent them again under a new producer epoch: no fault of the cluster."""
    read: int = 0
    read_again: int = 0
    """By the group, after something was reassigned: at least once means just that."""
    commits: int = 0


@dataclass(slots=True)
class Verdict:
    counts: Counts
    violations: Counter[Kind] = field(default_factory=Counter)
    examples: list[Violation] = field(default_factory=list)
    copies: list[Copies] = field(default_factory=list)
    """All records that are stored twice, whoever is to blame for it."""
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
    """What is at each offset of a partition, in eight bytes each."""

    def __init__(self) -> None:
        self._codes: array[int] = array("q")

    def __contains__(self, offset: int) -> bool:
        return 0 <= offset < len(self._codes) and self._codes[offset] != NOTHING

    def __getitem__(self, offset: int) -> Name | None:
        """Its name; None for a record that is none of ours."""
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
        """Offsets at which this column has a record of ours, and the other one has not the same."""
        theirs = other._codes
        for offset, code in enumerate(self._codes):
            if code > NOTHING and (offset >= len(theirs) or theirs[offset] != code):
                yield offset

    def missing_in(self, other: Column) -> Iterator[int]:
        """Offsets at which this column has something of ours, and the other one nothing at all."""
        theirs = other._codes
        for offset, code in enumerate(self._codes):
            if code > NOTHING and (offset >= len(theirs) or theirs[offset] == NOTHING):
                yield offset


NOTHING: Final = 0
FOREIGN: Final = -1
NUMBERS_MAX: Final = 1 << 40
NOBODY: Final = -1
"""In place of a producer, for what is not of one."""


def _code(name: Name | None) -> int:
    return FOREIGN if name is None else name.producer * NUMBERS_MAX + name.number + 1


class Ledger:
    """One topic, from the first record sent to the last one found."""

    def __init__(self, partitions: int, probes: Collection[int] = ()) -> None:
        """`probes`: producers that never send a record again. They have counts and no order of their own."""
        self.partitions = partitions
        self.counts = Counts()
        self.probe_counts = Counts()
        self._probes = frozenset(probes)
        self._lanes: dict[tuple[int, int], array[int]] = {}
        """By producer and partition: the offset of each record, or what else became of it."""
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
        """The producer gave up: the record may be there or not."""
        self._settle(name, partition, FAILED)
        self._counts_of(name.producer).failed += 1

    def _settle(self, name: Name, partition: int, outcome: int) -> None:
        lane = self._lanes[name.producer, partition]
        assert lane[name.number] == PENDING, f"{name} was told about twice"
        lane[name.number] = outcome
        self._counts_of(name.producer).pending -= 1

    def _counts_of(self, producer: int) -> Counts:
        return self.probe_counts if producer in self._probes else self.counts

    @property
    def pending(self) -> int:
        """Records of all producers of which nobody knows yet."""
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
        """What does not fit, given all that is there: (partition, offset, name), by offset in each partition.

        The name is None for a record that is none of ours. `stamps` is called if records are stored twice: it reads
        what their producers wrote on them, for each partition. Without it every duplicate is a violation.
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
                verdict.add(Kind.REORDERED, partition, f"offset {offset}: {tell(name)} comes after number {before}")
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
                    verdict.add(Kind.LOST, partition, f"{tell(name)} was acknowledged{told}, and is not there")
                elif offset != UNKNOWN_OFFSET and (producer, partition, number, offset) not in copied:
                    verdict.add(
                        Kind.MOVED, partition, f"{tell(name)} was acknowledged at offset {offset}, and is at {place}"
                    )


class Reader:
    """A consumer group (or one consumer without): what its members were given, and what they committed."""

    def __init__(self, name: str, partitions: int, counts_of: Callable[[int], Counts]) -> None:
        self.name = name
        self._counts_of = counts_of
        self._seen = [Column() for _ in range(partitions)]
        self._position = [0] * partitions
        """Beyond the last record that was read, over all members."""
        self._committed = [-1] * partitions
        self._open: dict[tuple[str, int], _Assignment] = {}
        self._gaps: list[tuple[int, int, int, str]] = []
        """(partition, from, to, how it came): whether there was something is known at the end."""
        self._complaints: list[Violation] = []

    def assigned(self, member: str, partition: int) -> None:
        self._open[member, partition] = _Assignment(committed=self._committed[partition])

    def revoked(self, member: str, partition: int) -> None:
        self._open.pop((member, partition), None)

    def committed(self, partition: int, offset: int) -> None:
        """The cluster has acknowledged it."""
        self._committed[partition] = offset
        self._counts_of(NOBODY).commits += 1

    def read(self, member: str, partition: int, offset: int, name: Name | None) -> None:
        assignment = self._open.get((member, partition))
        if assignment is None:
            # The client told of the loss first and handed over what it still had: no new knowledge of positions.
            assignment = _Assignment(committed=-1, next=offset)
        if assignment.next is None:
            self._begin(member, partition, offset, assignment)
        elif offset < assignment.next:
            self._complain(
                Kind.WENT_BACK, partition, f"{member} was at offset {assignment.next} and was given {offset} again"
            )
        elif offset > assignment.next:
            self._gaps.append((partition, assignment.next, offset, f"{member} went on"))
        assignment.next = offset + 1
        self._position[partition] = max(self._position[partition], offset + 1)
        self._see(member, partition, offset, name)

    def position(self, partition: int) -> int:
        """Beyond what was read."""
        return self._position[partition]

    def _begin(self, member: str, partition: int, offset: int, assignment: _Assignment) -> None:
        if offset > self._position[partition]:
            self._gaps.append((partition, self._position[partition], offset, f"{member} began"))
        if offset < assignment.committed:
            self._complain(
                Kind.COMMIT_LOST, partition, f"{assignment.committed} was committed, and {member} began at {offset}"
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
                Kind.VANISHED, partition, f"offset {offset} was {tell(seen[offset])}, and is {tell(name)} for {member}"
            )

    def _complain(self, kind: Kind, partition: int, text: str) -> None:
        self._complaints.append(Violation(kind, partition, f"{self.name}: {text}"))

    def judge(self, verdict: Verdict, stored: list[Column]) -> None:
        for complaint in self._complaints:
            verdict.add(*complaint)
        for partition, start, end, how in self._gaps:
            missed = [offset for offset in range(start, end) if offset in stored[partition]]
            # What another member has read by the end, it has not missed: only the group as a whole can skip when one
            # begins; one that goes on without an interruption has to have read it itself.
            if how.endswith("began"):
                missed = [offset for offset in missed if offset not in self._seen[partition]]
            if missed:
                verdict.add(
                    Kind.SKIPPED, partition,
                    f"{self.name}: {how} at {end} past {len(missed)} records, the first of them at {missed[0]}",
                )  # fmt: skip
        for partition, seen in enumerate(self._seen):
            there = stored[partition]
            for offset in seen.differences(there):
                now = tell(there[offset]) if offset in there else "nothing"
                verdict.add(
                    Kind.VANISHED, partition, f"{self.name}: offset {offset} was {tell(seen[offset])}, and is {now} now"
                )
            unread = list(there.missing_in(seen))
            if unread:
                verdict.add(
                    Kind.SKIPPED, partition,
                    f"{self.name}: {len(unread)} records were never read, the first of them at offset {unread[0]}",
                )  # fmt: skip


@dataclass(slots=True)
class _Assignment:
    committed: int
    """As it was when the partition was assigned."""
    next: int | None = None


def tell(name: Name | None) -> str:
    return "a foreign record" if name is None else f"record {name.number} of producer {name.producer}"

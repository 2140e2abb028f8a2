"""The one file that all members of a group write down their doings in, and what can be concluded from it."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Place = tuple[int, int]
"""A record's partition and offset."""

WAIT_TIMEOUT_S = 60
WAIT_STEP_S = 0.02


class LedgerFailure(AssertionError):
    """What was waited for did not come, or a member reported that it failed."""


@dataclass
class Ledger:
    path: Path
    owned: dict[str, frozenset[int]] = field(default_factory=dict)
    """What each living member says it owns."""
    committed: dict[int, int] = field(default_factory=dict)
    """The newest acknowledged commit of each partition."""
    processed: dict[Place, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The members that processed a record, in order; more than one if it was delivered again."""
    values: dict[Place, str] = field(default_factory=dict)
    joins: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How often each member was given partitions."""
    broken: list[str] = field(default_factory=list)
    """Promises that were seen broken."""
    _position: int = 0
    _first_processed: dict[Place, int] = field(default_factory=dict)
    _commits: list[tuple[int, int, int, str]] = field(default_factory=list)
    _events: int = 0

    def write(self, member: str, event: str) -> None:
        """Writes down what happened to a member that cannot do it itself."""
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps({"member": member, "event": event}).encode() + b"\n")

    def read(self) -> None:
        """Takes in what was written since the last time."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                self._take(json.loads(line))

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float = WAIT_TIMEOUT_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            self.read()
            if condition():
                return
            if time.monotonic() > deadline_s:
                raise LedgerFailure(f"within {timeout_s} s it did not come to this: {what}; {self.summary()}")
            time.sleep(WAIT_STEP_S)

    def wait_shared(self, members: Iterable[str], partitions: int) -> None:
        """Until these members, and no others, own all partitions, each at least one and no two the same."""
        expected = set(members)

        def shared() -> bool:
            claims = {member: claim for member, claim in self.owned.items() if claim}
            everything = sorted(partition for claim in claims.values() for partition in claim)
            return set(claims) == expected and everything == list(range(partitions))

        self.wait(f"{sorted(expected)} share {partitions} partitions", shared)

    def wait_processed(self, acknowledged: Iterable[Place]) -> None:
        wanted = set(acknowledged)
        self.wait(f"all of {len(wanted)} records processed", lambda: wanted <= self.processed.keys())

    def wait_progress(self, records: int) -> None:
        self.wait(f"{records} records processed", lambda: len(self.processed) >= records)

    def verify(self, acknowledged: Mapping[Place, str]) -> None:
        """Fails if a promise of the group was broken."""
        self.read()
        broken = list(self.broken)
        lost = sorted(place for place in acknowledged if place not in self.processed)
        if lost:
            broken.append(f"{len(lost)} of {len(acknowledged)} records were never processed, the first at {lost[0]}")
        for place, value in self.values.items():
            if acknowledged.get(place, value) != value:
                broken.append(f"the record at {place} was {value!r}, not {acknowledged[place]!r}")
        offsets: dict[int, list[int]] = defaultdict(list)
        for partition, offset in sorted(acknowledged):
            offsets[partition].append(offset)
        for partition, end, when, member in self._commits:
            skipped = [
                offset
                for offset in offsets[partition]
                if offset < end and self._first_processed.get((partition, offset), when) >= when
            ]
            if skipped:
                broken.append(f"{member} committed {end} in {partition} when {skipped[:3]} were not processed yet")
        assert not broken, "\n".join(broken[:20])

    def summary(self) -> str:
        owned = {member: sorted(claim) for member, claim in self.owned.items()}
        committed = dict(sorted(self.committed.items()))
        return f"owned: {owned}, processed: {len(self.processed)}, committed: {committed}, broken: {self.broken[:3]}"

    def _take(self, event: dict[str, object]) -> None:
        self._events += 1
        member = str(event["member"])
        match event:
            case {"event": "assigned", "partitions": list(partitions)}:
                claim = frozenset(partitions)
                if claim - self.owned.get(member, frozenset()):
                    self.joins[member] += 1
                for other, others in self.owned.items():
                    if other != member and others & claim:
                        self.broken.append(f"{member} and {other} both own {sorted(others & claim)}")
                self.owned[member] = claim
            case {"event": "processed", "partition": int(partition), "offset": int(offset), "value": str(value)}:
                place = (partition, offset)
                if offset < self.committed.get(partition, 0):
                    again = "again " if place in self.processed else ""
                    self.broken.append(
                        f"{member} processed {place} {again}after {self.committed[partition]} was committed"
                    )
                self._first_processed.setdefault(place, self._events)
                self.processed[place].append(member)
                self.values[place] = value
            case {"event": "committed", "partition": int(partition), "offset": int(offset)}:
                self.committed[partition] = max(offset, self.committed.get(partition, 0))
                self._commits.append((partition, offset, self._events, member))
            case {"event": "left" | "killed"}:
                self.owned.pop(member, None)
            case {"event": "failed", "error": error}:
                raise LedgerFailure(f"{member} failed: {error}")
            case _:
                raise LedgerFailure(f"{member} wrote what is not understood: {event}")

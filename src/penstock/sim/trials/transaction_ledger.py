"""What transactional clients were told, and what readers of committed records may see. Pure.

Every transaction writes records to several partitions, and an offset of a group that equals its number. Its *fate* is
what its writer knows:

    OPEN ──commit requested──▶ ASKED ──acknowledged──▶ COMMITTED
      │                          └──no clear answer──▶ UNKNOWN
      └──aborted, fenced, refused, or given up before a commit was requested──▶ ABORTED

A record may be seen only if a commit was requested; then all records and the offset of the transaction are there at
the end, each once, or none. A transaction of fate COMMITTED is there, one of fate ABORTED is not. Records that were
sent outside any transaction (`rogue`) are never seen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from penstock.sim.trials.load import Violation

__all__ = ["Fate", "Transaction", "TransactionLedger"]


class Fate(Enum):
    OPEN = "open"
    ASKED = "commit requested"
    COMMITTED = "committed"
    UNKNOWN = "unknown"
    ABORTED = "aborted"


MAY_BE_SEEN = (Fate.ASKED, Fate.COMMITTED, Fate.UNKNOWN)


@dataclass
class Transaction:
    writer: str
    """The transactional id."""
    instance: int
    """The producer that runs it: there may be several with one id, of which all but the last are fenced."""
    number: int
    """Ascending for each transactional id."""
    fate: Fate = Fate.OPEN
    values: list[tuple[int, bytes]] = field(default_factory=list)
    """(partition, value) of every record that was sent in it."""
    offset_sent: bool = False

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.writer} (instance {self.instance}, {self.fate.value})"


@dataclass
class TransactionLedger:
    topic: str
    partitions: int
    over: bool = False
    transactions: dict[tuple[str, int], Transaction] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    _of_value: dict[bytes, Transaction | None] = field(default_factory=dict)
    _read: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _places: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    _stable: dict[tuple[int, int], int] = field(default_factory=dict)
    _numbers: Counter[str] = field(default_factory=Counter)

    # Writers

    def begin(self, writer: str, instance: int) -> Transaction:
        number = self._numbers[writer] = self._numbers[writer] + 1
        made = self.transactions[writer, number] = Transaction(writer, instance, number)
        return made

    def send(self, transaction: Transaction, partition: int) -> bytes:
        """The value of the transaction's next record."""
        value = f"{transaction.writer}/{transaction.number}/{partition}/{len(transaction.values)}".encode()
        transaction.values.append((partition, value))
        self._of_value[value] = transaction
        return value

    def rogue(self, writer: str, partition: int) -> bytes:
        """The value of a record that belongs to no transaction."""
        value = f"{writer}/rogue/{partition}/{len(self._of_value)}".encode()
        self._of_value[value] = None
        return value

    def end(self, transaction: Transaction, fate: Fate) -> None:
        assert transaction.fate in (Fate.OPEN, Fate.ASKED), transaction
        transaction.fate = fate
        self.seen[f"transaction {fate.value}"] += fate is not Fate.ASKED
        if fate is Fate.ABORTED:
            for _, value in transaction.values:
                if value in self._places:
                    raise Violation(f"{transaction}: {value!r} was read as committed before")

    # Readers of committed records

    def saw(self, partition: int, offset: int, value: bytes) -> None:
        if self._read.setdefault((partition, offset), value) != value:
            known = self._read[partition, offset]
            raise Violation(f"{self.topic}-{partition}: {known!r} was read at {offset}, and then {value!r}")
        if value not in self._of_value:
            raise Violation(f"{self.topic}-{partition}: {value!r} was read at {offset} and never sent")
        transaction = self._of_value[value]
        if transaction is None:
            raise Violation(f"{self.topic}-{partition}: {value!r} was sent outside a transaction and read as committed")
        if transaction.fate not in MAY_BE_SEEN:
            raise Violation(f"{self.topic}-{partition}: {value!r} at {offset} was read as committed, of {transaction}")
        if self._places.setdefault(value, (partition, offset)) != (partition, offset):
            raise Violation(f"{value!r} is at {self._places[value]} and at {(partition, offset)}")

    def stable(self, partition: int, leader_epoch: int, last_stable_offset: int, high_watermark: int) -> None:
        """A leader told its last stable offset, after all it told before in this epoch."""
        if last_stable_offset > high_watermark:
            raise Violation(
                f"{self.topic}-{partition}: last stable offset {last_stable_offset}, high watermark {high_watermark}"
            )
        known = self._stable.get((partition, leader_epoch), 0)
        if last_stable_offset < known:
            raise Violation(
                f"{self.topic}-{partition}: the last stable offset went from {known} to {last_stable_offset} in leader "
                f"epoch {leader_epoch}"
            )
        self._stable[partition, leader_epoch] = last_stable_offset

    # Offsets

    def asked_at_most(self, writer: str) -> int:
        """The largest number whose commit was requested: a larger offset cannot be committed."""
        return self._largest(writer, MAY_BE_SEEN)

    def committed_at_least(self, writer: str) -> int:
        """The largest number whose commit was acknowledged, with its offset."""
        return self._largest(writer, (Fate.COMMITTED,))

    def saw_offset(self, writer: str, offset: int, at_least: int) -> None:
        """The group's offset was read; `at_least` was acknowledged before the question."""
        if not at_least <= offset <= self.asked_at_most(writer):
            raise Violation(
                f"{writer}: offset {offset} was read, but {at_least} was acknowledged and no commit beyond "
                f"{self.asked_at_most(writer)} was requested"
            )

    # The end

    def check(self, found: dict[int, list[bytes]], offsets: dict[str, int]) -> None:
        """Compares everything with what is there at the end: values per partition, and the offset per writer."""
        where: dict[bytes, int] = {}
        for partition, values in found.items():
            last: dict[tuple[str, int], int] = {}
            for value in values:
                if value in where:
                    raise Violation(f"{self.topic}-{partition}: {value!r} is there twice")
                where[value] = partition
                transaction = self._of_value.get(value)
                if transaction is None:
                    raise Violation(f"{self.topic}-{partition}: {value!r} is there and belongs to no transaction")
                key = transaction.writer, transaction.instance
                if last.get(key, 0) > transaction.number:
                    raise Violation(f"{self.topic}-{partition}: {value!r} comes after transaction {last[key]}")
                last[key] = transaction.number
        newest: Counter[str] = Counter()
        for transaction in self.transactions.values():
            there = [value for _, value in transaction.values if value in where]
            if there and len(there) < len(transaction.values):
                raise Violation(f"{transaction} is torn: {there} are there of {transaction.values}")
            if there and transaction.fate not in MAY_BE_SEEN:
                raise Violation(f"{transaction} is there")
            if not there and transaction.values and transaction.fate is Fate.COMMITTED:
                raise Violation(f"{transaction} is not there")
            if there and transaction.offset_sent:
                newest[transaction.writer] = max(newest[transaction.writer], transaction.number)
            if transaction.fate is Fate.UNKNOWN:
                self.seen["unknown and there" if there else "unknown and not there"] += 1
        for writer, offset in offsets.items():
            if offset != newest[writer]:
                raise Violation(
                    f"{writer}: the newest transaction whose records are there is {newest[writer]}, but the group's "
                    f"offset is {offset}"
                )
        for (partition, offset), value in self._read.items():
            if where.get(value) != partition:
                raise Violation(f"{self.topic}-{partition}: {value!r} was read at {offset} and is not there any more")

    def _largest(self, writer: str, fates: tuple[Fate, ...]) -> int:
        numbers = (
            one.number
            for one in self.transactions.values()
            if one.writer == writer and one.offset_sent and one.fate in fates
        )
        return max(numbers, default=0)

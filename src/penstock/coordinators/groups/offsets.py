"""Committed offsets, by group.

Offsets are kept as the bytes of their records and decoded only when they are fetched. So loading takes two dictionary
look-ups per record, a commit needs no second representation, and a million offsets take little more than their bytes.

**Transactions.** Offsets of a transaction are pending under its producer id until the marker arrives
(`end_transaction`). A regular commit made after them must win, even if the marker follows it in the log; so pending
offsets keep their record's offset, and are marked `superseded` when a newer commit has taken effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.coordinators.groups.memory import GroupMemory
from penstock.coordinators.groups.records import (
    decode_offset_value,
    key_group,
    offset_key_partition,
    offset_key_prefix,
    pack_partition,
)
from penstock.wire.errors import WireError
from penstock.wire.messages.group_records import OFFSET_COMMIT_KEY


class Pending(NamedTuple):
    """An offset of an open transaction."""

    record_offset: int
    value: bytes
    superseded: bool


class Transaction:
    """The pending offsets of one producer. Open until its marker, even if tombstones removed all pending offsets."""

    __slots__ = ("groups", "pending")

    def __init__(self) -> None:
        self.groups: dict[str, None] = {}
        self.pending: dict[bytes, Pending] = {}


_KEY_VERSION: Final = OFFSET_COMMIT_KEY.to_bytes(2, "big")

NO_TRANSACTIONS: Final[dict[int, Transaction]] = {}

OFFSET_BYTES: Final = 180
"""Memory of an offset, not counting the bytes of its key and value."""


class Offsets:
    """All committed offsets of a shard."""

    def __init__(self, memory: GroupMemory) -> None:
        self._memory = memory
        self.bytes = 0
        """Memory of all offsets, without those of open transactions."""
        self.groups: dict[str, dict[bytes, bytes]] = {}
        """Group id → record key → record value. No group has an empty dictionary."""
        self._transactions: dict[int, Transaction] = {}
        self._open: dict[str, dict[int, Transaction]] = {}
        """Group id → producer id → transactions that wrote to it."""

    # -- changes -----------------------------------------------------------------------------------------------------

    def put_all(self, group_id: str, records: list[tuple[bytes, bytes]]) -> None:
        """A commit outside of transactions: keys and values, at least one."""
        assert records
        offsets = self.groups.get(group_id)
        if offsets is None:
            offsets = self.groups[group_id] = {}
        growth = 0
        for key, value in records:
            before = offsets.get(key)
            growth += _size(key, value) if before is None else len(value) - len(before)
            offsets[key] = value
        self._grow(growth)
        if group_id in self._open:
            for key, _ in records:
                self._supersede(group_id, key, None)

    def growth(self, group_id: str, records: list[tuple[bytes, bytes]]) -> int:
        """How much more memory this commit would take."""
        offsets = self.groups.get(group_id, {})
        growth = 0
        for key, value in records:
            before = offsets.get(key)
            growth += _size(key, value) if before is None else len(value) - len(before)
        return growth

    def put_pending(self, group_id: str, producer_id: int, record_offset: int, key: bytes, value: bytes) -> None:
        """A commit inside a transaction."""
        transaction = self._transactions.get(producer_id)
        if transaction is None:
            transaction = self._transactions[producer_id] = Transaction()
        transaction.groups[group_id] = None
        transaction.pending[key] = Pending(record_offset, value, False)
        self._open.setdefault(group_id, {})[producer_id] = transaction

    def remove(self, group_id: str, key: bytes) -> bool:
        """Apply a tombstone, to pending offsets too. Returns whether anything was removed."""
        removed = False
        offsets = self.groups.get(group_id)
        value = None if offsets is None else offsets.pop(key, None)
        if offsets is not None and value is not None:
            removed = True
            self._grow(-_size(key, value))
            if not offsets:
                del self.groups[group_id]
        for transaction in self._open.get(group_id, NO_TRANSACTIONS).values():
            removed |= transaction.pending.pop(key, None) is not None
        return removed

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a marker: pending offsets take effect or are discarded."""
        transaction = self._transactions.pop(producer_id, None)
        if transaction is None:
            return
        for group_id in transaction.groups:
            producers = self._open[group_id]
            del producers[producer_id]
            if not producers:
                del self._open[group_id]
        if not committed:
            return
        for key, pending in transaction.pending.items():
            if pending.superseded:
                continue
            group_id = key_group(key)
            if group_id in self._open:
                self._supersede(group_id, key, pending.record_offset)
            self._put(group_id, key, pending.value)

    def _put(self, group_id: str, key: bytes, value: bytes) -> None:
        offsets = self.groups.get(group_id)
        if offsets is None:
            offsets = self.groups[group_id] = {}
        before = offsets.get(key)
        self._grow(_size(key, value) if before is None else len(value) - len(before))
        offsets[key] = value

    def _grow(self, growth: int) -> None:
        self.bytes += growth
        self._memory.offsets += growth

    def discard(self) -> None:
        """The shard is discarded: its offsets no longer count as memory in use."""
        self._grow(-self.bytes)
        self.groups.clear()

    def _supersede(self, group_id: str, key: bytes, record_offset: int | None) -> None:
        """Mark pending offsets of this key (up to `record_offset`) as superseded by a later commit."""
        for transaction in self._open[group_id].values():
            pending = transaction.pending.get(key)
            if pending is not None and (record_offset is None or pending.record_offset < record_offset):
                transaction.pending[key] = pending._replace(superseded=True)

    def load(self, record_offset: int, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply a record of the log. One long function, because it runs a million times when a broker takes over."""
        group_end = 4 + (key[2] << 8 | key[3])
        size = len(key)
        if size < group_end + 6 or size != group_end + 6 + (key[group_end] << 8 | key[group_end + 1]):
            raise WireError("the length of an offset's key does not match its fields")
        if key[1] != OFFSET_COMMIT_KEY:
            key = _KEY_VERSION + key[2:]
        group_id = str(key[4:group_end], "utf-8")
        if value is None:
            self.remove(group_id, key)
        elif producer_id >= 0:
            self.put_pending(group_id, producer_id, record_offset, key, value)
        else:
            offsets = self.groups.get(group_id)
            if offsets is None:
                offsets = self.groups[group_id] = {}
            before = offsets.get(key)
            growth = len(value) + (OFFSET_BYTES + size if before is None else -len(before))
            self.bytes += growth
            self._memory.offsets += growth
            offsets[key] = value
            if group_id in self._open:
                self._supersede(group_id, key, None)

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return sum(map(len, self.groups.values()))

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, bytes, bytes]]:
        """(topic, partition, key, value) of all offsets of the group, in the order of their first commits."""
        for key, value in self.groups.get(group_id, {}).items():
            topic, partition = offset_key_partition(key)
            yield topic, partition, key, value

    def knows(self, group_id: str) -> bool:
        """Whether the group has any offset, committed or pending."""
        return group_id in self.groups or group_id in self._open

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def is_pending(self, group_id: str, key: bytes) -> bool:
        """Whether an open transaction has committed an offset for this partition."""
        return any(key in transaction.pending for transaction in self._open.get(group_id, NO_TRANSACTIONS).values())

    def entries(self, group_id: str) -> list[tuple[bytes, bytes | None]]:
        """(key, value) of all offsets to tombstone when the group is deleted; value None if only pending."""
        committed = self.groups.get(group_id, {})
        entries: dict[bytes, bytes | None] = dict(committed)
        for transaction in self._open.get(group_id, NO_TRANSACTIONS).values():
            for key in transaction.pending:
                if key not in entries and key_group(key) == group_id:
                    entries[key] = None
        return list(entries.items())

    def entries_of_topic(self, topic: str, partition_count: int) -> list[tuple[str, bytes, bytes | None]]:
        """(group id, key, value) of all offsets of a topic, including pending ones."""
        found: list[tuple[str, bytes, bytes | None]] = []
        numbers = [pack_partition(number) for number in range(partition_count)]
        for group_id, offsets in self.groups.items():
            prefix = offset_key_prefix(group_id, topic)
            if len(numbers) < len(offsets):
                keys = [key for number in numbers if (key := prefix + number) in offsets]
            else:
                size = len(prefix) + 4
                keys = [key for key in offsets if len(key) == size and key.startswith(prefix)]
            found += [(group_id, key, offsets[key]) for key in keys]
        for group_id, transactions in self._open.items():
            prefix = offset_key_prefix(group_id, topic)
            committed = self.groups.get(group_id, {})
            keys = [prefix + number for number in numbers if prefix + number not in committed]
            for transaction in transactions.values():
                found += [(group_id, key, None) for key in keys if key in transaction.pending]
        return found

    def durable_state(self) -> dict[str, object]:
        """All offsets as plain data, for comparison in tests."""
        return {
            "committed": {
                group_id: {
                    offset_key_partition(key): decode_offset_value(value) for key, value in sorted(offsets.items())
                }
                for group_id, offsets in sorted(self.groups.items())
            },
            "pending": {
                producer_id: {
                    (key_group(key), *offset_key_partition(key)): (decode_offset_value(value), superseded)
                    for key, (_, value, superseded) in sorted(transaction.pending.items())
                }
                for producer_id, transaction in sorted(self._transactions.items())
            },
        }


def _size(key: bytes, value: bytes) -> int:
    return OFFSET_BYTES + len(key) + len(value)

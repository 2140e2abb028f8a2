"""The producer state of a log, which makes producers idempotent (KIP-98, KIP-360).

A batch of an idempotent producer carries the producer's id, an epoch and the sequence number of its first record. The
log remembers the last five batches of each producer (a client has at most five requests in flight). So it answers a
retry with the offsets of the original, refuses a gap, and fences a producer that was replaced by one with a newer
epoch:

    epoch older than known                          INVALID_PRODUCER_EPOCH
    epoch newer, sequence 0                         accepted: the producer restarted
    epoch newer, sequence not 0                     OUT_OF_ORDER_SEQUENCE_NUMBER
    one of the last five, first and last sequence   duplicate: nothing is appended
    sequence follows the last one (0 after 2³¹ − 1) accepted
    producer unknown, any sequence                  accepted: its state expired or was deleted (KIP-360)
    any other                                       OUT_OF_ORDER_SEQUENCE_NUMBER

The state is part of the log: followers build it as they append, and a truncation truncates it too. It is written to
`<offset>.snapshot` (Kafka's format; the state before that offset) whenever a segment or the log is closed. Kafka stores
one batch per producer there. We write one entry per remembered batch, the newest last, which is the entry that Kafka
uses. (With one batch, a broker that was stopped cleanly would refuse the other batches that a client has in flight and
retries.) The file carries a checksum, so it need not be synced: a damaged snapshot is ignored.

**Transactions.** A transactional batch opens the producer's transaction, unless one is open. A marker ends it and fixes
the producer's epoch. (`transactions` keeps the order of all transactions of a log.) The entry in the snapshot carries
the first offset of an open transaction, and such a producer is never forgotten. A damaged snapshot must not make a
reader pass an open transaction, so it is rebuilt from the log (`snapshots`).

**Verification (KIP-890).** A leader accepts the first batch of a transaction only if the transaction coordinator knows
that the partition takes part; otherwise nobody would ever write the marker. While the coordinator is asked, a
`Verification` stands for the question. A marker, a newer epoch or a new leader discards it, so that a late answer
cannot let in a batch of a transaction that has ended. It also remembers the lowest sequence number that was asked for,
so that a later batch is not appended before an earlier one that must be retried.

A producer is forgotten when it has not written for `producer.id.expiration.ms` by this broker's clock. The timestamps
of its records do not count: a producer that replays old data would be forgotten while it writes. So a snapshot's
timestamp field holds the wall time of the last append; with LogAppendTime that is also the batch's timestamp.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from penstock.log.transactions import AbortedTransaction, Transactions
from penstock.wire.compression import Buffer
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import (
    SEQUENCE_MODULUS,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    ControlRecordType,
    iter_records,
    parse_control_key,
)

BATCHES_REMEMBERED = 5
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1

MARKER_BYTES_MAX = 64 << 10
"""The marker that ends a transaction is one small record."""
_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
_MARKER_VALUE = Struct(">hi")

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = Struct(">hIi")
_SNAPSHOT_CRC_START = 6
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_CRC = Struct(">I")

_FIELDS = 4
"""The fields of a remembered batch: last sequence, last offset, offset delta, wall time of the append."""


VERIFICATIONS_MAX = 10_000
"""Pending verifications of one log. The oldest is dropped for a new one; its batch is then refused and retried."""


class Marker(NamedTuple):
    """The content of a control batch that ends a transaction."""

    committed: bool
    coordinator_epoch: int


class Verification:
    """A question to the transaction coordinator: does this partition take part in the producer's transaction?"""

    __slots__ = ("epoch", "is_new_state_expected", "lowest_sequence", "started_ms")

    def __init__(self, epoch: int, sequence: int, started_ms: int, is_new_state_expected: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.started_ms = started_ms
        self.is_new_state_expected = is_new_state_expected
        """Version 2 of transactions: every transaction has a new epoch and begins with sequence 0."""


UNCHECKED = Verification(NO_PRODUCER_EPOCH, 0, 0, False)
"""Stands for an append that needs no verification."""


class SnapshotDamaged(Exception):
    """A snapshot is damaged: use an older one and replay more of the log."""


class ProducerEntry:
    """One producer. Its batches are stored flat in an array, oldest first: five take 240 bytes instead of a
    thousand."""

    __slots__ = (
        "_batches",
        "coordinator_epoch",
        "epoch",
        "last_append_ms",
        "next_sequence",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = NO_SEQUENCE
        self.last_append_ms = NO_OFFSET
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_first_offset = NO_OFFSET
        self._batches: array[int] = array("q")

    @property
    def last_offset(self) -> int:
        return self._batches[-3] if self._batches else NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self._batches[-4] if self._batches else NO_SEQUENCE

    @property
    def last_offset_delta(self) -> int:
        return self._batches[-2] if self._batches else 0

    def batches(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(first sequence, last sequence, first offset, last offset, append time), oldest first."""
        numbers = self._batches
        for at in range(0, len(numbers), _FIELDS):
            last_sequence, last_offset, delta, append_ms = numbers[at : at + _FIELDS]
            yield (last_sequence - delta) % SEQUENCE_MODULUS, last_sequence, last_offset - delta, last_offset, append_ms

    def add(self, last_sequence: int, last_offset: int, offset_delta: int, append_ms: int) -> None:
        """Remember a batch of the current epoch."""
        batches = self._batches
        if len(batches) == BATCHES_REMEMBERED * _FIELDS:
            del batches[:_FIELDS]
        batches.extend((last_sequence, last_offset, offset_delta, append_ms))
        self.next_sequence = last_sequence + 1 if last_sequence != SEQUENCE_MODULUS - 1 else 0
        self.last_append_ms = append_ms

    def copy(self) -> ProducerEntry:
        other = ProducerEntry(self.epoch)
        other.next_sequence = self.next_sequence
        other.last_append_ms = self.last_append_ms
        other.coordinator_epoch = self.coordinator_epoch
        other.transaction_first_offset = self.transaction_first_offset
        other._batches = self._batches[:]
        return other

    def take(self, header: BatchHeader, base_offset: int, marker: Marker | None, append_ms: int) -> None:
        """Record a batch that is in the log at `base_offset`, without checks. `marker` is that of a control batch."""
        if header.is_control:
            if marker is not None:
                self.begin_epoch(header.producer_epoch)
                self.transaction_first_offset = NO_OFFSET
                self.coordinator_epoch = marker.coordinator_epoch
                self.last_append_ms = append_ms
            return
        self.begin_epoch(header.producer_epoch)
        if header.attributes & TIMESTAMP_TYPE_FLAG:
            append_ms = header.max_timestamp
        delta = header.last_offset_delta
        self.add(header.last_sequence, base_offset + delta, delta, append_ms)
        if header.is_transactional and self.transaction_first_offset < 0:
            self.transaction_first_offset = base_offset

    def begin_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.next_sequence = NO_SEQUENCE
            self._batches = array("q")

    def find(self, epoch: int, first_sequence: int, last_sequence: int) -> tuple[int, int, int] | None:
        """The first offset, last offset and append time of the remembered batch with these sequence numbers; None if
        unknown."""
        if epoch == self.epoch:
            for first, last, first_offset, last_offset, append_ms in self.batches():
                if first == first_sequence and last == last_sequence:
                    return first_offset, last_offset, append_ms
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        if epoch < self.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} writes with epoch {epoch}, but epoch {self.epoch} has already written",
            )

    def check_sequence(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        if epoch != self.epoch:
            # A new entry has no epoch to compare with.
            if first_sequence != 0 and self.epoch != NO_PRODUCER_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} starts epoch {epoch} with sequence {first_sequence} instead of 0",
                )
        elif first_sequence != (self.next_sequence if self._batches else 0):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {first_sequence} after {self.last_sequence}",
            )

    def has_open_transaction(self, epoch: int) -> bool:
        return self.transaction_first_offset >= 0 and self.epoch == epoch

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Raises KafkaError if a marker with these epochs is outdated.

        Version 2 of transactions writes markers with an epoch above that of the transaction (KIP-1228). A marker with
        the same epoch could be a delayed one of an earlier transaction. If no transaction is open, it is a repetition
        of the last marker, whose answer was lost, and is accepted (KAFKA-19999).
        """
        self.check_epoch(producer_id, epoch)
        if transaction_version >= 2 and epoch == self.epoch and self.transaction_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the marker for producer {producer_id} has epoch {epoch}, which is that of the open transaction; "
                "transactions of version 2 are ended with a newer one",
            )
        if coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker for producer {producer_id} has coordinator epoch {coordinator_epoch}, "
                f"but a marker with the newer epoch {self.coordinator_epoch} was written already",
            )

    def check_transaction(self, producer_id: int, transactional: bool) -> None:
        if self.transaction_first_offset >= 0 and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction and sent a non-transactional batch",
            )


class ProducerState:
    """All producers of a log."""

    __slots__ = ("_entries", "_verifications", "transactions")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._verifications: dict[int, Verification] | None = None
        self.transactions: Transactions | None = None
        """None until a transaction begins."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    def replay(self, header: BatchHeader, batch: Buffer, append_ms: int) -> None:
        """Record a batch that is in the log. The leader checked it when it was appended."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(NO_PRODUCER_EPOCH)
        marker = marker_of(batch) if header.is_control else None
        before = entry.transaction_first_offset
        entry.take(header, header.base_offset, marker, append_ms)
        if entry.transaction_first_offset != before or marker is not None:
            self._follow(producer_id, before, entry.transaction_first_offset, marker, header.base_offset)

    def adopt(self, entries: dict[int, StagedEntry]) -> None:
        """Take over entries that were staged while an append was being checked."""
        for producer_id, (entry, marker, offset) in entries.items():
            known = self._entries.get(producer_id)
            self._entries[producer_id] = entry
            before = NO_OFFSET if known is None else known.transaction_first_offset
            if entry.transaction_first_offset != before or marker is not None:
                self._follow(producer_id, before, entry.transaction_first_offset, marker, offset)

    def _follow(self, producer_id: int, before: int, after: int, marker: Marker | None, offset: int) -> None:
        """The producer's transaction began or ended with the batch at `offset`."""
        if self._verifications is not None:
            self._verifications.pop(producer_id, None)
        if after >= 0:
            assert before < 0, "a transaction begins where none is open"
            self.begin_transaction(producer_id, after)
        elif before >= 0:
            assert marker is not None, "only a marker ends a transaction"
            assert self.transactions is not None
            self.transactions.end(producer_id, offset, marker.committed)

    def begin_transaction(self, producer_id: int, first_offset: int) -> None:
        if self.transactions is None:
            self.transactions = Transactions()
        self.transactions.begin(producer_id, first_offset)

    def carry_over(self, before: Transactions, from_offset: int) -> None:
        """This state was built from a snapshot at `from_offset`: `Transactions.carry_over`."""
        if self.transactions is None:
            self.transactions = Transactions()
        self.transactions.carry_over(before, from_offset)

    def take_aborted(self) -> list[AbortedTransaction]:
        """The transactions that were aborted since the last call, to be put into the index."""
        return [] if self.transactions is None else self.transactions.take_aborted()

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, wall_ms: int, *, is_new_state_expected: bool
    ) -> Verification | None:
        """Note that the coordinator is asked about a producer's batch. None if it need not be: the transaction is open
        in this log, or the producer's epoch is outdated."""
        entry = self._entries.get(producer_id)
        if entry is not None and (entry.has_open_transaction(epoch) or entry.epoch > epoch):
            return None
        if self._verifications is None:
            self._verifications = {}
        known = self._verifications.get(producer_id)
        if known is not None and known.epoch == epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
            return known
        if known is not None and known.epoch > epoch:
            return Verification(epoch, sequence, wall_ms, is_new_state_expected)  # an outdated epoch: never valid
        if known is None and len(self._verifications) >= VERIFICATIONS_MAX:
            del self._verifications[next(iter(self._verifications))]
        verification = Verification(epoch, sequence, wall_ms, is_new_state_expected)
        self._verifications[producer_id] = verification
        return verification

    def verification_of(self, producer_id: int) -> Verification | None:
        return None if self._verifications is None else self._verifications.get(producer_id)

    def void_verifications(self) -> None:
        """Another leader may have appended meanwhile: no answer of a coordinator counts any more."""
        self._verifications = None

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Forget producers that have not written for that long and have no open transaction. Returns how many."""
        for producer_id, verification in list((self._verifications or {}).items()):
            if wall_ms - verification.started_ms >= expiration_ms and self._verifications is not None:
                del self._verifications[producer_id]
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if wall_ms - entry.last_append_ms >= expiration_ms and entry.transaction_first_offset < 0
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def encode(self) -> bytes:
        """The snapshot file."""
        out = bytearray(_SNAPSHOT_HEADER.size)
        count = 0
        for producer_id, entry in self._entries.items():
            *older, last = list(entry.batches()) or [(0, NO_SEQUENCE, NO_OFFSET, NO_OFFSET, entry.last_append_ms)]
            for first_sequence, last_sequence, _, last_offset, append_ms in older:
                delta = (last_sequence - first_sequence) % SEQUENCE_MODULUS
                out += _SNAPSHOT_ENTRY.pack(
                    producer_id, entry.epoch, last_sequence, last_offset, delta, append_ms,
                    NO_COORDINATOR_EPOCH, NO_OFFSET,
                )  # fmt: skip
            out += _SNAPSHOT_ENTRY.pack(
                producer_id,
                entry.epoch,
                last[1],
                last[3],
                entry.last_offset_delta,
                entry.last_append_ms,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
            count += len(older) + 1
        _SNAPSHOT_HEADER.pack_into(out, 0, SNAPSHOT_VERSION, 0, count)
        _SNAPSHOT_CRC.pack_into(out, 2, crc32c(memoryview(out)[_SNAPSHOT_CRC_START:]))
        return bytes(out)


StagedEntry = tuple[ProducerEntry, Marker | None, int]
"""A producer after a batch is appended: its entry, the batch's marker if it is one, and the batch's offset."""


def marker_of(batch: Buffer) -> Marker | None:
    """The content of the control batch that ends a transaction; None for other control batches, and for a marker that
    compaction has emptied."""
    for record in iter_records(batch, max_decompressed_bytes=MARKER_BYTES_MAX, verify_crc=False):
        kind = parse_control_key(record.key)
        if kind in _MARKERS and record.value is not None:
            return Marker(kind == ControlRecordType.COMMIT, int(_MARKER_VALUE.unpack_from(record.value)[1]))
        break
    return None


def decode_snapshot(data: bytes) -> ProducerState:
    """Raises SnapshotDamaged."""
    try:
        version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    except StructError:
        raise SnapshotDamaged("the file is too short") from None
    if version != SNAPSHOT_VERSION:
        raise SnapshotDamaged(f"unknown version {version}")
    if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size or crc != crc32c(data[_SNAPSHOT_CRC_START:]):
        raise SnapshotDamaged("wrong size or checksum")
    state = ProducerState()
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, append_ms, coordinator_epoch, first_offset = fields
        entry = state._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = state._entries[producer_id] = ProducerEntry(epoch)
        if last_offset >= 0:
            entry.add(last_sequence, last_offset, delta, append_ms)
        entry.last_append_ms = append_ms
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_first_offset = first_offset
    opened = [(one.transaction_first_offset, known) for known, one in state._entries.items()]
    for first_offset, producer_id in sorted(pair for pair in opened if pair[0] >= 0):
        state.begin_transaction(producer_id, first_offset)
    return state

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

A producer is forgotten when it has not written for `producer.id.expiration.ms` by this broker's clock. The timestamps
of its records do not count: a producer that replays old data would be forgotten while it writes. So a snapshot's
timestamp field holds the wall time of the last append; with LogAppendTime that is also the batch's timestamp.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from struct import error as StructError

from crc32c import crc32c

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

    def take(self, header: BatchHeader, base_offset: int, batch: Buffer, append_ms: int) -> None:
        """Record a batch that is in the log at `base_offset`, without checks."""
        if header.is_control:
            coordinator_epoch = coordinator_epoch_of_marker(batch)
            if coordinator_epoch is not None:
                self.begin_epoch(header.producer_epoch)
                self.transaction_first_offset = NO_OFFSET
                self.coordinator_epoch = coordinator_epoch
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

    def check_transaction(self, producer_id: int, transactional: bool) -> None:
        if self.transaction_first_offset >= 0 and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction and sent a non-transactional batch",
            )


class ProducerState:
    """All producers of a log."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    def replay(self, header: BatchHeader, batch: Buffer, append_ms: int) -> None:
        """Record a batch that is in the log. The leader checked it when it was appended."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(NO_PRODUCER_EPOCH)
        entry.take(header, header.base_offset, batch, append_ms)

    def adopt(self, entries: dict[int, ProducerEntry]) -> None:
        """Take over entries that were staged while an append was being checked."""
        self._entries.update(entries)

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Forget producers that have not written for that long and have no open transaction. Returns how many."""
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


def coordinator_epoch_of_marker(batch: Buffer) -> int | None:
    """The coordinator epoch in the control batch that ends a transaction; None for other control batches."""
    for record in iter_records(batch, max_decompressed_bytes=MARKER_BYTES_MAX, verify_crc=False):
        if parse_control_key(record.key) in _MARKERS and record.value is not None:
            return int(_MARKER_VALUE.unpack_from(record.value)[1])
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
    return state

"""Appending to a log: a leader validates and stamps batches; a follower writes them as the leader sent them."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.log.aborted import AbortedTransactions
from penstock.log.config import NEVER, LogConfig
from penstock.log.core import LogCore
from penstock.log.index_entries import OFFSET_ENTRY_BYTES, TIME_ENTRY, TIME_ENTRY_BYTES
from penstock.log.producers import NO_PRODUCER_EPOCH, UNCHECKED, ProducerEntry, StagedEntry, Verification, marker_of
from penstock.log.segment import NO_TIMESTAMP, RELATIVE_OFFSET_MAX, UNKNOWN, Segment
from penstock.log.snapshots import ProducerSnapshots
from penstock.log.validation import AppendOrigin, Batch, set_log_append_time, split, validate
from penstock.runtime import File
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.record_check import NO_DETAILS, TIMESTAMP_MAX, TIMESTAMP_MIN, walk
from penstock.wire.records import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    RECORD_SIZE_MIN,
    SEQUENCE_MODULUS,
    TRANSACTIONAL_FLAG,
    batch_crc,
    read_header,
)

CLIENT = AppendOrigin.CLIENT
ROLL_NOW = -1
"""A roll time in the past: the index of the active segment is full, so it must be rolled now."""

_unpack_header = HEADER.unpack_from
_stamp = Struct(">qii").pack_into
"""Base offset, batch length, leader epoch: the first 16 bytes of a batch, the only ones that a leader changes."""
_SEQUENCE_MASK = SEQUENCE_MODULUS - 1
_OTHER_FLAGS = ~TRANSACTIONAL_FLAG


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """The broker's timestamp with `message.timestamp.type=LogAppendTime`; otherwise -1."""
    duplicate: bool
    """The batch was already in the log, at these offsets. It may not be committed yet."""


class Writer:
    __slots__ = (
        "_aborted",
        "_after_max_ms",
        "_file",
        "_flush_bounded",
        "_index_entries_max",
        "_index_interval_bytes",
        "_is_plain",
        "_log",
        "_message_bytes_max",
        "_plain_codec_max",
        "_producers",
        "_roll_after",
        "_segment_bytes",
    )

    def __init__(self, log: LogCore, producers: ProducerSnapshots, aborted: AbortedTransactions) -> None:
        self._log = log
        self._producers = producers
        self._aborted = aborted
        self._file: File | None = None
        """The file of the active segment; opened by the first append."""
        self._roll_after = NEVER
        self._take_config(log.config)
        if self._flush_bounded and log.end_offset > log.durable_end:
            # A killed process wrote these records and may have acknowledged them, but did not sync them.
            log.stable_end = log.durable_end
            log.flush()

    def configure(self, config: LogConfig) -> None:
        self._take_config(config)
        if self._file is not None:
            self._set_roll_time()
        if self._flush_bounded:
            self._log.flusher.appended()

    def _take_config(self, config: LogConfig) -> None:
        """Copy the values that the hot path compares into attributes."""
        self._is_plain = not config.log_append_time and config.timestamp_before_max_ms >= NEVER and not config.compacts
        # Compressed batches that must be decompressed go through `_append_checked`.
        self._plain_codec_max = Codec.NONE if config.opens_batches else Codec.ZSTD
        # A read-only log refuses in `_append_checked`: no batch is small enough for the fast path.
        self._message_bytes_max = -1 if config.read_only else min(config.max_message_bytes, config.segment_bytes)
        self._after_max_ms = config.timestamp_after_max_ms
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._index_entries_max = config.segment_index_bytes // OFFSET_ENTRY_BYTES
        self._flush_bounded = config.flush_messages < NEVER or config.flush_ms < NEVER

    def active_replaced(self) -> None:
        """The active segment was replaced or truncated: drop what was cached about it."""
        self._file = None

    def append_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        wall_ms: int,
        *,
        origin: AppendOrigin = CLIENT,
        checked: bool = False,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Validate, stamp and write the batches of one request, all or none. Raises KafkaError, and TooLargeForLoop for
        batches that must first be prepared off the loop (`penstock.log.preparing`) and then appended with
        `checked=True`. `verification`: the question that the transaction coordinator has affirmed, for the first batch
        of a transaction; None if it was not asked. `transaction_version`: that of a marker.

        The bytes are changed in place; the buffer may be reused when this returns. The single batch of a typical
        request passes the comparisons below; anything else goes to `_append_checked`.
        """
        log = self._log
        size = len(records)
        if size < HEADER_SIZE or checked:
            return self._append_checked(
                records, leader_epoch, wall_ms, origin, checked, verification, transaction_version
            )
        # fmt: off
        (base_offset, length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
         producer_id, producer_epoch, base_sequence, count) = _unpack_header(records)
        # fmt: on
        if (
            length + LENGTH_OVERHEAD != size
            or magic != 2
            or not 0 <= attributes & _OTHER_FLAGS <= self._plain_codec_max
            or last_offset_delta != count - 1
            or count < 1
            or count * RECORD_SIZE_MIN > size - HEADER_SIZE
            or base_offset
            or size > self._message_bytes_max
            or max_timestamp - wall_ms > self._after_max_ms
            or max_timestamp < NO_TIMESTAMP
            or not self._is_plain
            or origin
        ):
            return self._append_checked(
                records, leader_epoch, wall_ms, origin, False, verification, transaction_version
            )
        if crc32c(records[21:]) != crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
        if log.opens_batches:
            found = walk(
                records, HEADER_SIZE, count, base_timestamp, TIMESTAMP_MIN, TIMESTAMP_MAX, False, NO_DETAILS, 0
            )
            if found != max_timestamp:
                return self._append_checked(records, leader_epoch, wall_ms, origin, False, verification)
        producer = None
        if producer_id >= 0:
            producers = self._producers.loaded
            producer = (self._producers.state if producers is None else producers).get(producer_id)
            if (
                producer is None
                or base_sequence < 0
                or producer.epoch != producer_epoch
                or producer.next_sequence != base_sequence
                or (producer.transaction_first_offset >= 0) != (attributes & TRANSACTIONAL_FLAG != 0)
            ):
                return self._append_checked(records, leader_epoch, wall_ms, origin, False, verification)
        elif attributes & TRANSACTIONAL_FLAG:
            return self._append_checked(records, leader_epoch, wall_ms, origin)
        file = self._file
        active = log.active
        position = active.size_bytes
        offset = log.end_offset
        last_offset = offset + last_offset_delta
        if (
            file is None
            or position + size > self._segment_bytes
            or max_timestamp > self._roll_after
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
            or max_timestamp < 0
            or log.is_frozen
        ):
            file = self._make_room(size, last_offset, max_timestamp, wall_ms)
            active = log.active
            position = active.size_bytes
        if leader_epoch != log.epoch:
            log.assign_epoch(leader_epoch)
        _stamp(records, 0, offset, length, leader_epoch)
        try:
            file.pwrite(records, position)
            # Inlined copy of `Segment.note`: function calls are most of the cost of an append.
            if max_timestamp > active.max_timestamp:
                active.max_timestamp = max_timestamp
                active.max_timestamp_offset = last_offset
            active.size_bytes = position + size
            if not position:
                active.first_timestamp = max_timestamp
                self._set_roll_time()
            if active.unindexed_bytes > self._index_interval_bytes:
                entries = active.index.add(last_offset, position, active.max_timestamp, active.max_timestamp_offset)
                active.unindexed_bytes = size
                if entries >= self._index_entries_max:
                    self._roll_after = ROLL_NOW
            else:
                active.unindexed_bytes += size
        except OSError as error:
            log.fail("writing", error)
        log.end_offset = end = last_offset + 1
        if producer is not None:
            producer.add((base_sequence + last_offset_delta) & _SEQUENCE_MASK, last_offset, last_offset_delta, wall_ms)
        if self._flush_bounded:
            log.flusher.appended()
        else:
            log.stable_end = end
        return Appended(offset, last_offset, -1, False)

    def append_follower(self, records: memoryview) -> Appended:
        """Write a leader's batches with their offsets and epochs unchanged. An incomplete last batch is ignored."""
        log = self._log
        batches = split(records, partial_tail=True)
        if not batches:
            return Appended(log.end_offset, log.end_offset - 1, -1, False)
        self._check_follows(batches)
        size = sum(len(batch.view) for batch in batches)
        for batch in batches:
            header = batch.header
            if header.partition_leader_epoch > log.epoch:
                log.epochs.assign(header.partition_leader_epoch, header.base_offset)
                log.epoch = header.partition_leader_epoch
        wall_ms = log.runtime.wall_ms()
        self._write(records[:size], batches, wall_ms)
        has_producers = False
        for batch in batches:
            if batch.header.producer_id >= 0:
                has_producers = True
                self._producers.state.replay(batch.header, batch.view, wall_ms)
        if has_producers:
            self._follow_transactions()
        return Appended(batches[0].header.base_offset, log.end_offset - 1, -1, False)

    def _append_checked(
        self,
        records: memoryview,
        leader_epoch: int,
        wall_ms: int,
        origin: AppendOrigin,
        checked: bool = False,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> Appended:
        """`append_leader` with full validation, for batches that did not pass its fast checks."""
        log = self._log
        config = log.config
        if config.read_only and origin is CLIENT:
            return self._found_again(records)
        batches = validate(records, config, origin, wall_ms, checked=checked)
        if len(records) > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(records)} bytes in one request exceed the topic's segment.bytes ({config.segment_bytes})",
            )
        staged: dict[int, StagedEntry] = {}
        offset = log.end_offset
        for batch in batches:
            header = batch.header
            if header.producer_id >= 0:
                earlier = staged.get(header.producer_id)
                known = self._producers.state.get(header.producer_id) if earlier is None else earlier[0]
                if known is not None and origin is CLIENT:
                    found = known.find(header.producer_epoch, header.base_sequence, header.last_sequence)
                    if found is not None:
                        first, last, append_ms = found
                        return Appended(first, last, append_ms if config.log_append_time else -1, True)
                staged[header.producer_id] = self._staged(
                    known, batch, offset, origin, wall_ms, verification, transaction_version
                )
            offset += header.last_offset_delta + 1
        if leader_epoch != log.epoch:
            log.assign_epoch(leader_epoch)
        first_offset = offset = log.end_offset
        append_time_ms = -1
        for batch in batches:
            if config.log_append_time and origin is not AppendOrigin.RAFT_LEADER:
                append_time_ms = wall_ms
                set_log_append_time(batch, wall_ms)
            header = batch.header = batch.header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)
            _stamp(batch.view, 0, offset, header.batch_length, leader_epoch)
            offset = header.next_offset
        self._write(records, batches, wall_ms)
        if staged:
            self._producers.state.adopt(staged)
            self._follow_transactions()
        return Appended(first_offset, offset - 1, append_time_ms, False)

    def _found_again(self, records: memoryview) -> Appended:
        """The offsets of a batch that was appended before the log became read-only; raises KafkaError for a new one.

        Its producer did not hear of the first append. Refused now, it would send the records elsewhere a second time.
        """
        header = read_header(records, 0) if len(records) >= HEADER_SIZE else None
        if header is not None and header.producer_id >= 0 and header.crc == batch_crc(records):
            known = self._producers.state.get(header.producer_id)
            if known is not None and (
                found := known.find(header.producer_epoch, header.base_sequence, header.last_sequence)
            ):
                first, last, append_ms = found
                return Appended(first, last, append_ms if self._log.config.log_append_time else -1, True)
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            "the topic is read-only (penstock.read.only=true): write to the topic that replaces it",
        )

    def _staged(
        self,
        known: ProducerEntry | None,
        batch: Batch,
        offset: int,
        origin: AppendOrigin,
        wall_ms: int,
        verification: Verification | None,
        transaction_version: int,
    ) -> StagedEntry:
        """The producer's state after its batch is written at `offset`. Raises KafkaError if the batch is not
        allowed."""
        header = batch.header
        producer_id = header.producer_id
        entry = ProducerEntry(NO_PRODUCER_EPOCH) if known is None else known.copy()
        marker = marker_of(batch.view) if header.is_control else None
        if marker is not None:
            entry.check_marker(producer_id, header.producer_epoch, marker.coordinator_epoch, transaction_version)
        else:
            # Before the verification: a producer that was fenced must learn that and can recover (KAFKA-19690).
            entry.check_epoch(producer_id, header.producer_epoch)
        if not header.is_control:
            if origin is CLIENT:
                if header.is_transactional:
                    self._check_verified(entry, batch, verification)
                entry.check_sequence(producer_id, header.producer_epoch, header.base_sequence)
            entry.check_transaction(producer_id, header.is_transactional)
        entry.take(header, offset, marker, wall_ms)
        return entry, marker, offset

    def _check_verified(self, entry: ProducerEntry, batch: Batch, verification: Verification | None) -> None:
        """Raises KafkaError unless the transaction is open in this log, or the coordinator has said that the partition
        takes part in it and nothing has happened since that makes the answer outdated."""
        header = batch.header
        if verification is UNCHECKED or entry.has_open_transaction(header.producer_epoch):
            return
        pending = self._producers.state.verification_of(header.producer_id)
        if verification is None or pending is not verification or verification.epoch != header.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the batch of producer {header.producer_id} is not part of an ongoing transaction",
            )
        is_first = entry.epoch == NO_PRODUCER_EPOCH
        if (is_first and verification.is_new_state_expected and header.base_sequence != 0) or (
            header.base_sequence > verification.lowest_sequence
        ):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}; an earlier batch of its "
                "transaction must be appended first",
            )

    def _follow_transactions(self) -> None:
        """After batches of producers were written: put aborted transactions into the index."""
        state = self._producers.state
        log = self._log
        if log.transactions is not state.transactions:
            log.transactions = state.transactions
        if state.transactions is not None and state.transactions.aborted:
            try:
                self._aborted.note(log.active, state.take_aborted())
            except OSError as error:
                log.fail("writing", error)

    def _check_follows(self, batches: list[Batch]) -> None:
        log = self._log
        expected = log.end_offset
        epoch = log.epoch
        for batch in batches:
            header = batch.header
            gap = header.base_offset - expected
            # A gap is normal: compaction may have removed offsets from the leader's log at any time.
            if gap < 0 or header.last_offset_delta < 0:
                problem = f"a batch that begins at offset {header.base_offset}, but the log ends at {expected}"
            elif header.last_offset - log.end_offset > RELATIVE_OFFSET_MAX:
                # No segment can hold it: indexes store offsets as 32-bit distances from the segment's first offset.
                problem = f"a batch that ends at offset {header.last_offset}, too far beyond {log.end_offset}"
            elif header.partition_leader_epoch < epoch:
                problem = f"a batch of epoch {header.partition_leader_epoch} after one of epoch {epoch}"
            else:
                epoch = header.partition_leader_epoch
                expected = header.next_offset
                continue
            raise KafkaError(ErrorCode.INVALID_RECORD, f"the leader sent {problem}")

    def _write(self, records: memoryview, batches: list[Batch], wall_ms: int) -> None:
        log = self._log
        last = batches[-1].header
        max_timestamp = max(batch.header.max_timestamp for batch in batches)
        file = self._make_room(len(records), last.last_offset, max_timestamp, wall_ms)
        active = log.active
        position = active.size_bytes
        begins = not position
        try:
            file.pwrite(records, position)
            for batch in batches:
                header = batch.header
                size = header.size_bytes
                # Compaction removed all records of this batch, so its timestamp belongs to no record.
                timestamp = header.max_timestamp if header.records_count else NO_TIMESTAMP
                active.note(header.last_offset, position, size, timestamp, self._index_interval_bytes)
                position += size
        except OSError as error:
            log.fail("writing", error)
        if begins:
            self._set_roll_time()
        if active.index.entries_known >= self._index_entries_max:
            self._roll_after = ROLL_NOW
        log.end_offset = last.next_offset
        if self._flush_bounded:
            log.flusher.appended()
        else:
            log.stable_end = log.end_offset

    def _make_room(self, size: int, last_offset: int, max_timestamp: int, wall_ms: int) -> File:
        """Roll the segment if needed and return the file to append to."""
        log = self._log
        assert not log.is_closed, f"{log.directory} is closed"
        assert not log.is_frozen, f"{log.directory}: append during a truncation"
        file = self._file if self._file is not None else self.open_active()
        active = log.active
        timestamp = max_timestamp if active.first_timestamp >= 0 else wall_ms
        if active.size_bytes and (
            active.size_bytes + size > self._segment_bytes
            or timestamp > self._roll_after
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
        ):
            self.roll()
            assert self._file is not None
            return self._file
        return file

    # ---- the active segment

    def roll(self) -> None:
        """Close the active segment, unless it is empty, and begin a new one. The old one is synced in the
        background."""
        log = self._log
        assert not log.is_frozen, f"{log.directory}: roll during a truncation"
        closed = log.active
        if not closed.size_bytes:
            return
        try:
            closed.store_index()
            self._producers.write()
            closed.end_offset = log.end_offset
            self._begin_segment()
        except OSError as error:
            log.fail("rolling a segment", error)
        log.flusher.segment_closed(closed)

    def _begin_segment(self) -> None:
        log = self._log
        active = Segment.create(log.runtime.disk, log.directory, log.end_offset, log.cache)
        active.create_file()
        log.flusher.names_changed()
        log.segments.append(active)
        log.active = active
        self._file = active.file
        self._roll_after = NEVER

    def open_active(self) -> File:
        log = self._log
        active = log.active
        try:
            if not active.has_file:
                log.runtime.disk.mkdir(log.directory)
                active.create_file()
                log.flusher.names_changed()
            if UNKNOWN in (active.max_timestamp, active.first_timestamp):
                self._read_active_timestamps()
        except OSError as error:
            log.fail("opening a segment", error)
        self._file = active.file
        self._set_roll_time()
        return self._file

    async def load_max_timestamp(self, segment: Segment) -> None:
        """Read it from the last entry of the time index: closing a segment writes that entry."""
        log = self._log
        if not segment.size_bytes:
            segment.max_timestamp = NO_TIMESTAMP
            return
        if segment is log.active:
            self.open_active()
            return
        await log.load_index(segment)
        timestamp, offset = segment.index.last_time()
        if segment.max_timestamp == UNKNOWN:
            segment.max_timestamp, segment.max_timestamp_offset = timestamp, offset

    def _read_active_timestamps(self) -> None:
        """Needed only if no clean-shutdown checkpoint recorded them: two small reads, once."""
        log = self._log
        active = log.active
        active.first_timestamp = NO_TIMESTAMP
        if active.size_bytes:
            active.first_timestamp = read_header(active.file.read(HEADER_SIZE, 0)).max_timestamp
        if active.max_timestamp != UNKNOWN:
            return
        active.max_timestamp = NO_TIMESTAMP
        times = active.index_files()[1]
        entries = log.runtime.disk.size(times.path) // TIME_ENTRY_BYTES if log.runtime.disk.exists(times.path) else 0
        if entries:
            newest = times.read(TIME_ENTRY_BYTES, (entries - 1) * TIME_ENTRY_BYTES)
            active.max_timestamp, relative = TIME_ENTRY.unpack(newest)
            active.max_timestamp_offset = active.base_offset + relative
            active.index.last_timestamp = active.max_timestamp

    def _set_roll_time(self) -> None:
        """Compute when the active segment becomes too old for more appends. As in Kafka this uses the timestamps of its
        batches if they have any, so a replay of old data rolls segments as the original did."""
        log = self._log
        active = log.active
        if not active.size_bytes:
            self._roll_after = NEVER
            return
        config = log.config
        jitter_ms = 0
        if config.segment_jitter_ms:
            jitter_ms = log.runtime.rng.randrange(min(config.segment_jitter_ms, config.roll_ms) + 1)
        since = active.first_timestamp if active.first_timestamp >= 0 else log.runtime.wall_ms()
        self._roll_after = since + config.roll_ms - jitter_ms

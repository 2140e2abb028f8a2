"""Recovery: determine which part of a log is intact after an unclean stop, and truncate the rest.

Everything from the recovery point on is read and checked: lengths and checksums must be right, offsets and epochs
ascending. The log is truncated at the first incomplete or corrupt batch, which is where the crash interrupted a write.
Later segments are removed. Removed data that may be valuable is set aside and reported (`cutting`). The scan rebuilds
the indexes, the epochs and the producer state. (Offsets may be missing within a segment, where this log or that of a
leader was compacted, but never between two segments.)

Bit rot is not a torn tail. Everything below the recovery point was synced, so nothing there is ever truncated: a batch
with a wrong checksum is reported (`Log.damage`) and kept. If damage makes it impossible to tell where the log ends, the
log is refused (`CorruptLog`).

Recovery itself may be interrupted at any point; the next one starts from the same recovery point.
"""

from __future__ import annotations

from bisect import bisect_right

from penstock.log import cutting, names
from penstock.log.aborted import first_from
from penstock.log.checkpoints import LogState
from penstock.log.config import LogConfig
from penstock.log.core import INDEX_GAP_BYTES_MIN
from penstock.log.epochs import EpochCache
from penstock.log.index_entries import IndexDamaged
from penstock.log.indexes import IndexCache, Seal, SegmentIndex
from penstock.log.listing import Listing, LogParts, from_state, split_obsolete
from penstock.log.producers import ProducerState
from penstock.log.recovery_check import Check
from penstock.log.scan import IndexBuilder, rebuild_index, scan
from penstock.log.segment import NO_TIMESTAMP, OPEN_END, Segment
from penstock.log.snapshots import NO_SNAPSHOT
from penstock.runtime import Runtime
from penstock.wire.records import HEADER, HEADER_SIZE, BatchHeader

_unpack_header = HEADER.unpack_from


class CorruptLog(Exception):
    """A log is damaged below its recovery point such that its end cannot be determined."""


class Recovery:
    """The recovery of one log after an unclean stop."""

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        config: LogConfig,
        listing: Listing,
        recovery_point: int,
        start_offset: int,
        cache: IndexCache,
        *,
        hint: LogState | None,
        slice_ms: float,
    ) -> None:
        """`hint` is the state of the log as the last clean stop saved it."""
        self._runtime = runtime
        self._disk = runtime.disk
        self._directory = directory
        self._config = config
        self._listing = listing
        self._recovery_point = recovery_point
        self._start_offset = start_offset
        self._cache = cache
        self._hint = hint if hint is not None and hint.segments and hint.end_offset <= recovery_point else None
        self._slice_ms = slice_ms
        self._damage: list[str] = []
        self._must_sync = False
        self._aborted_kept: int | None = 0
        """Entries of the first scanned segment's index of aborted transactions that need not be rebuilt."""
        self._snapshots_written: list[int] = []
        self._scanned_bytes = 0
        self._cut_bytes = 0
        self._cut_whole = False
        self._cuts: list[cutting.Cut] = []

    async def run(self) -> LogParts:
        parts = self._as_it_was_left()
        if parts is not None:
            return parts
        segments = self._listing.segments(self._disk, self._directory, self._cache)
        obsolete = split_obsolete(segments, self._start_offset)
        if not segments:
            return await self._empty(obsolete)
        check, rebuilt = await self._scan(segments)
        end_offset = check.expected
        start_offset = max(self._start_offset, segments[0].base_offset)
        if end_offset < start_offset:
            # The records in between were never synced, or the log was being emptied.
            for segment in reversed(segments):
                self._unlink_segment(segment)
            return await self._empty(obsolete)
        snapshots = self._remove_snapshots(segments, check)
        if self._must_sync:
            # Sync before anything is appended; `penstock.log.trimming` explains what could reappear otherwise.
            await segments[-1].file.sync()
            await self._disk.sync_dir(self._directory)
        check.epochs.truncate_end(end_offset)
        check.epochs.truncate_start(segments[0].base_offset)
        check.producers.expire(self._runtime.wall_ms(), self._config.producer_id_expiration_ms)
        for segment in segments:
            segment.rest()
        return LogParts(
            segments=segments,
            start_offset=start_offset,
            end_offset=end_offset,
            durable_end=min(self._recovery_point, end_offset),
            epochs=check.epochs,
            producers=check.producers,
            snapshot_offset=snapshots[-1] if snapshots else NO_SNAPSHOT,
            damage=self._damage,
            deleted=self._listing.deleted,
            obsolete=obsolete,
            rebuilt=rebuilt,
            scanned_bytes=self._scanned_bytes,
            cut_bytes=self._cut_bytes,
            cut_whole=self._cut_whole,
            cuts=self._cuts,
        )

    async def _scan(self, segments: list[Segment]) -> tuple[Check, list[Segment]]:
        """Check the segments from the recovery point, or from the snapshot before it. Leaves the intact ones in
        `segments`."""
        self._apply_hint(segments)
        check = self._begin(segments)
        number = bisect_right([segment.base_offset for segment in segments], check.from_offset) - 1
        rebuilt: list[Segment] = []
        if number and segments[number - 1].end_offset == self._recovery_point:
            # The segment may have been synced before it was closed, and its index not synced before the process died.
            await self._prove_index(segments[number - 1])
            rebuilt.append(segments[number - 1])
        while True:
            segment = segments[number]
            check.begin(segment, self._listing.mtimes_ms[segment.base_offset])
            position = await self._known_position(segment, check)
            whole = await self._scan_segment(segment, position, check)
            self._store_aborted(segment, check)
            later = segments[number + 1 :]
            if whole and later and self._follows(check, later[0]):
                segment.store_index()
                rebuilt.append(segment)
                self._write_snapshot(check)
                number += 1
                continue
            if whole and check.expected < self._recovery_point:
                self._damage.append(
                    f"{self._directory} ends at offset {check.expected}, but was synced up to {self._recovery_point}"
                )
            if later:
                await self._set_segments_aside(later, check.expected)
            del segments[number + 1 :]
            segments[-1].end_offset = OPEN_END
            return check, rebuilt

    async def _prove_index(self, segment: Segment) -> None:
        """Load an index and compare its end with the segment's; rebuild it if it is incomplete."""
        interval_bytes = self._config.index_interval_bytes
        try:
            await segment.index.load(segment.size_bytes, max(interval_bytes, INDEX_GAP_BYTES_MIN))
            timestamp, offset = segment.index.last_time()
            tail = IndexBuilder(segment.base_offset, interval_bytes)
            position = min(segment.index.floor(segment.end_offset), segment.index.floor(offset))
            await scan(self._runtime, segment, position, segment.size_bytes, tail, slice_ms=self._slice_ms)
            is_whole = tail.max_timestamp <= timestamp
        except IndexDamaged:
            is_whole = False
        if not is_whole:
            await rebuild_index(self._runtime, segment, interval_bytes)
        segment.set_timestamps(*segment.index.last_time())

    def _begin(self, segments: list[Segment]) -> Check:
        """Where to start: at the newest snapshot at or below the recovery point, or at the start of the log."""
        listing = self._listing
        base_offset = segments[0].base_offset
        producers, from_offset = listing.producers, listing.producers_offset
        if self._hint is not None and not self._hint.producers and from_offset < self._hint.end_offset:
            producers, from_offset = ProducerState(), self._hint.end_offset
        if from_offset < base_offset or listing.epochs is None:
            producers, from_offset = ProducerState(), base_offset
        scanned = segments[max(0, bisect_right([segment.base_offset for segment in segments], from_offset) - 1)]
        self._aborted_kept = self._aborted_before(scanned, from_offset)
        if self._aborted_kept is None:
            # Its aborted transactions can only be found with the state before the segment.
            producers, from_offset = listing.read_snapshot(self._disk, self._directory, scanned.base_offset)
            if from_offset < base_offset:
                producers, from_offset = ProducerState(), base_offset
        # Entries beyond the recovery point may belong to a lost tail; the scan finds the valid ones again.
        trusted = max(self._recovery_point, base_offset)
        known = EpochCache([entry for entry in listing.epochs or () if entry[1] < trusted])
        return Check(self._config, known, producers, from_offset)

    def _aborted_before(self, segment: Segment, offset: int) -> int | None:
        """The number of entries in the index of aborted transactions whose markers are below `offset`, where a clean
        stop left a snapshot. None if the index is damaged."""
        if not segment.aborted_count or offset <= segment.base_offset:
            return 0
        try:
            numbers = segment.aborted.read(segment.end_offset)
        except IndexDamaged:
            return None
        return first_from(numbers, offset)

    def _store_aborted(self, segment: Segment, check: Check) -> None:
        """Rebuild the index of aborted transactions of a scanned segment."""
        kept, self._aborted_kept = self._aborted_kept or 0, 0
        aborted = check.producers.take_aborted()
        if kept or aborted or segment.aborted_count:
            segment.aborted.replace(kept, aborted)
            self._must_sync = self._must_sync or not segment.aborted_count

    async def _known_position(self, segment: Segment, check: Check) -> int:
        """Where to start in a segment: at the end that the last clean stop recorded, if it is usable."""
        index = segment.index = SegmentIndex(self._disk, self._directory, segment.base_offset, self._cache, fresh=True)
        segment.max_timestamp = segment.first_timestamp = NO_TIMESTAMP
        check.expected = max(check.expected, segment.base_offset)
        hint = self._hint
        if hint is None or hint.seal is None or hint.end_offset != check.from_offset:
            return 0
        left = hint.segments[-1]
        if left.base_offset != segment.base_offset or left.size_bytes > segment.size_bytes:
            return 0
        if not await index.adopt(Seal(*hint.seal)):
            return 0
        segment.max_timestamp, segment.max_timestamp_offset = left.max_timestamp, left.max_timestamp_offset
        segment.first_timestamp = hint.first_timestamp
        check.expected = hint.end_offset
        return left.size_bytes

    def _apply_hint(self, segments: list[Segment]) -> None:
        """Apply the last clean stop's facts to segments that were closed then or have been closed since."""
        known = {segment.base_offset: segment for segment in self._hint.segments} if self._hint is not None else {}
        for segment in segments:
            left = known.get(segment.base_offset)
            if left is not None and left.size_bytes == segment.size_bytes:
                segment.set_timestamps(left.max_timestamp, left.max_timestamp_offset)
                if self._hint is not None and left is self._hint.segments[-1]:
                    segment.set_seal(self._hint.seal)

    def _as_it_was_left(self) -> LogParts | None:
        """The parts of the log as the last clean stop left it; None if something was written since."""
        hint, listing = self._hint, self._listing
        if hint is None or listing.bases != [segment.base_offset for segment in hint.segments]:
            return None
        if listing.sizes != [segment.size_bytes for segment in hint.segments] or not listing.bases:
            return None
        if hint.producers and listing.producers_offset != hint.end_offset:
            return None
        if listing.snapshots and listing.snapshots[-1] > hint.end_offset:
            return None  # something was written and lost
        parts = from_state(self._disk, self._directory, hint, self._cache)
        parts.start_offset = min(max(self._start_offset, listing.bases[0]), hint.end_offset)
        parts.producers = listing.producers if hint.producers else ProducerState()
        parts.snapshot_offset = hint.end_offset if hint.end_offset in listing.snapshots else NO_SNAPSHOT
        parts.deleted = listing.deleted
        return parts

    async def _scan_segment(self, segment: Segment, position: int, check: Check) -> bool:
        """True if the segment is intact or damaged only where it must not be truncated; False after truncating it."""
        size = segment.size_bytes
        segment.size_bytes = position
        while True:
            started = position
            position = await scan(self._runtime, segment, position, size, check, slice_ms=self._slice_ms)
            self._scanned_bytes += position - started
            if position == size:
                return True
            if check.expected >= self._recovery_point:
                await self._look_at_end(segment, position, size, check.expected)
                segment.file.truncate(position)
                segment.index.remove_files()
                self._must_sync = True
                return False
            position = await self._step_over(segment, position, size, check)

    async def _look_at_end(self, segment: Segment, position: int, size: int, expected: int) -> None:
        """Before a segment is truncated: set its end aside if that may be valuable."""
        self._cut_bytes += size - position
        whole = await cutting.whole_behind(segment, position, size, expected)
        if whole != cutting.NOWHERE:
            self._cut_whole = True
        elif not await cutting.is_complete(segment, position, size, expected):
            return
        self._expect_room(size - position)
        last = await cutting.last_offset(self._runtime, segment, max(whole, position), size)
        aside = await cutting.begin_stray(self._runtime, self._directory, expected)
        await cutting.keep_end(self._runtime, segment, position, size, expected, aside)
        self._cuts.append(cutting.Cut(expected, max(last, expected - 1), size - position, aside))

    async def _set_segments_aside(self, segments: list[Segment], expected: int) -> None:
        """Set aside segments that do not continue the log before them."""
        self._cut_whole = True
        size = sum(segment.size_bytes for segment in segments)
        self._cut_bytes += size
        last = await cutting.last_offset(self._runtime, segments[-1], 0, segments[-1].size_bytes)
        aside = await cutting.begin_stray(self._runtime, self._directory, expected)
        for segment in reversed(segments):
            path = segment.path(names.LOG_SUFFIX)
            self._disk.rename(path, f"{aside}/{path.rpartition('/')[2]}")
            self._unlink_segment(segment)
        await self._disk.sync_dir(aside)
        self._cuts.append(cutting.Cut(expected, max(last, segments[-1].base_offset - 1), size, aside))

    def _expect_room(self, size: int) -> None:
        if self._disk.free_bytes() < size:
            raise CorruptLog(
                f"{self._disk.root}/{self._directory} must be truncated after a crash, but the disk has no room to set "
                f"aside the {size} bytes that are cut off. Free some disk space, then start again."
            )

    async def _step_over(self, segment: Segment, position: int, size: int, check: Check) -> int:
        """Skip a damaged batch below the recovery point."""
        path = segment.path(names.LOG_SUFFIX)
        data = await segment.file.pread(HEADER_SIZE, position)
        header = BatchHeader._make(_unpack_header(data)) if len(data) == HEADER_SIZE else None
        if header is not None and check.fits(header) and position + header.size_bytes <= size:
            self._damage.append(f"{path}: the batch of offsets {header.base_offset}..{header.last_offset} is damaged")
            check.pass_over(header, position)
            return position + header.size_bytes
        if segment.end_offset <= self._recovery_point:
            self._damage.append(f"{path}: offsets {check.expected}..{segment.end_offset - 1} are damaged")
            check.expected = segment.end_offset
            segment.size_bytes = size
            return size
        raise CorruptLog(
            f"{self._disk.root}/{path} is damaged at position {position} (offset {check.expected}), although it was "
            f"synced up to offset {self._recovery_point}. If another replica has an intact copy, remove the directory "
            "and it is copied again. To keep only the records before the damage, stop the broker and run: "
            f"penstock log accept-loss {self._disk.root} {self._directory}"
        )

    def _follows(self, check: Check, later: Segment) -> bool:
        """Whether a segment continues where the one before it ends."""
        gap = later.base_offset - check.expected
        if gap < 0 and later.base_offset < self._recovery_point:
            raise CorruptLog(
                f"{self._disk.root}/{self._directory}: two segments hold offset {later.base_offset}, and both were "
                "synced. One of them does not belong here: `penstock log verify` shows both."
            )
        if gap and check.expected < self._recovery_point:
            self._damage.append(
                f"{self._directory}: the file with offsets {check.expected}..{later.base_offset - 1} is missing"
            )
            gap = 0
        if gap:
            # The segment between them is missing or truncated: an unfinished truncation. (Compaction leaves gaps within
            # segments, never between them.)
            return False
        check.expected = later.base_offset
        return True

    async def _empty(self, obsolete: list[Segment]) -> LogParts:
        offset = max(self._start_offset, self._recovery_point)
        if self._recovery_point > self._start_offset:
            self._damage.append(f"{self._directory}: there is no segment, but it was synced to {self._recovery_point}")
        for snapshot in self._listing.snapshots:
            self._disk.unlink(names.path_of(self._directory, snapshot, names.SNAPSHOT_SUFFIX))
        epochs = EpochCache(self._listing.epochs)
        epochs.clear()
        segment = Segment.create(self._disk, self._directory, offset, self._cache)
        if offset:
            # The name of the empty file records where the log continues: offsets are never reused.
            segment.create_file()
            await self._disk.sync_dir(self._directory)
        return LogParts(
            segments=[segment],
            start_offset=offset,
            end_offset=offset,
            durable_end=offset,
            epochs=epochs,
            producers=ProducerState(),
            snapshot_offset=NO_SNAPSHOT,
            damage=self._damage,
            deleted=self._listing.deleted,
            obsolete=obsolete,
            cut_bytes=self._cut_bytes,
            cut_whole=self._cut_whole,
            cuts=self._cuts,
        )

    def _unlink_segment(self, segment: Segment) -> None:
        for suffix in (
            names.LOG_SUFFIX,
            names.OFFSET_INDEX_SUFFIX,
            names.TIME_INDEX_SUFFIX,
            names.ABORTED_INDEX_SUFFIX,
        ):
            self._disk.unlink(segment.path(suffix))
        segment.discard_indexes()
        self._must_sync = True

    def _write_snapshot(self, check: Check) -> None:
        """Write a snapshot at the end of a scanned segment; an existing one may be torn."""
        offset = check.expected
        file = self._disk.open(names.path_of(self._directory, offset, names.SNAPSHOT_SUFFIX), create=True)
        file.truncate(0)
        file.pwrite(check.producers.encode(), 0)
        self._snapshots_written.append(offset)

    def _remove_snapshots(self, segments: list[Segment], check: Check) -> list[int]:
        """Keep the snapshot that the scan started with, those at the base of earlier segments, and those just
        written."""
        bases = [segment.base_offset for segment in segments]
        written = [offset for offset in self._snapshots_written if offset <= check.expected]
        kept = [
            offset
            for offset in self._listing.snapshots
            if offset == self._listing.producers_offset or (offset in bases and offset < check.from_offset)
        ]
        for offset in self._listing.snapshots:
            if offset not in kept and offset not in written:
                self._disk.unlink(names.path_of(self._directory, offset, names.SNAPSHOT_SUFFIX))
                self._must_sync = self._must_sync or offset > check.expected
        return kept + written

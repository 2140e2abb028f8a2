"""Removing records from a log: retention and DeleteRecords at its start, truncation at its end.

A power loss may follow any step, so the order of syncs matters:

- Old segments are removed one at a time, oldest first, and each removal is durable before the next. So retention never
  leaves a gap between segments: a gap that a start finds is either damage or an unfinished truncation.
- A truncation first lowers the recovery point *on disk*. Otherwise new, unsynced records could lie below it after a
  power loss, and a start would trust them unchecked.
- After a truncation nothing is appended until the truncation and the removal of later segments, indexes and snapshots
  are durable. Otherwise a power loss could bring back parts of the old tail after new records, with valid checksums and
  offsets. (Truncate, append, power loss: found once in 160 simulated runs of a prototype.)
"""

from __future__ import annotations

from array import array

from penstock.log import names
from penstock.log.aborted import AbortedTransactions
from penstock.log.appending import Writer
from penstock.log.core import LogCore
from penstock.log.producers import ProducerState
from penstock.log.reading import Reader
from penstock.log.scan import IndexBuilder, rebuild_index, scan
from penstock.log.segment import NO_TIMESTAMP, OPEN_END, UNKNOWN, Found, Segment, walk_bytes
from penstock.log.snapshots import NO_SNAPSHOT, ProducerSnapshots
from penstock.runtime import Future, Timer
from penstock.wire.errors import ErrorCode, KafkaError


class Trimmer:
    __slots__ = ("_aborted", "_log", "_producers", "_reader", "_removing", "_unlinks", "_writer")

    def __init__(
        self,
        log: LogCore,
        reader: Reader,
        writer: Writer,
        producers: ProducerSnapshots,
        aborted: AbortedTransactions,
    ) -> None:
        self._log = log
        self._reader = reader
        self._writer = writer
        self._producers = producers
        self._aborted = aborted
        self._removing: Future[None] | None = None
        """Resolves when the running removal of segments, by retention or compaction, is finished."""
        self._unlinks: dict[str, Timer] | None = None

    # ---- the start

    def advance_start_offset(self, offset: int) -> None:
        """Make records below `offset` unreadable (DeleteRecords). `retain` removes their segments."""
        log = self._log
        if offset > log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {log.end_offset}, so it cannot start at {offset}"
            )
        log.start_offset = max(log.start_offset, offset)

    async def retain(self, wall_ms: int, upto: int) -> int:
        """Remove the oldest segments that exceed `retention.ms` or `retention.bytes`, or lie below the start offset.

        Removes only segments below `upto`, the high watermark. Returns how many.
        """
        log = self._log
        if self._removing is not None or log.is_compacting or self.is_untouchable():
            return 0
        self.begin_removal()
        try:
            return await self._retain(wall_ms, upto)
        except FileNotFoundError as error:
            # Someone removed a file: this log is damaged, but the disk works.
            log.damage += (str(error),)
            return 0
        except OSError as error:
            log.fail("removing old segments", error)
        finally:
            self.end_removal()

    async def _retain(self, wall_ms: int, upto: int) -> int:
        log = self._log
        await self._load_timestamps()
        if self.is_untouchable():
            return 0
        expired = log.segments[: self._count_expired(wall_ms, upto)]
        if not expired:
            return 0
        if expired[-1] is log.active:
            # The name of the new segment records the end of the log once the others are removed.
            self._writer.roll()
        del log.segments[: len(expired)]
        log.start_offset = max(log.start_offset, log.segments[0].base_offset)
        self.changed()
        await log.runtime.disk.sync_dir(log.directory)
        for segment in expired:
            if log.is_closed:
                return 0  # the whole log was deleted meanwhile
            self.remove(segment)
            await log.runtime.disk.sync_dir(log.directory)
        # Only now: otherwise a segment that reappears after a power loss would have no epoch.
        log.epochs.truncate_start(log.segments[0].base_offset)
        return len(expired)

    async def settled(self) -> None:
        """Wait until no removal of segments is running."""
        while self._removing is not None:
            await self._removing

    def begin_removal(self) -> None:
        """Announce a removal of segments; others wait until `end_removal`."""
        assert self._removing is None, f"{self._log.directory}: two concurrent removals of segments"
        self._removing = self._log.runtime.future()

    def end_removal(self) -> None:
        assert self._removing is not None
        self._removing.set_result(None)
        self._removing = None

    def is_untouchable(self) -> bool:
        log = self._log
        return log.is_frozen or log.is_closed

    def _count_expired(self, wall_ms: int, upto: int) -> int:
        log = self._log
        config = log.config
        excess_bytes = log.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else -1
        expired = 0
        for segment in log.segments:
            end_offset = min(segment.end_offset, log.end_offset)
            if end_offset > upto or (segment is log.active and not segment.size_bytes):
                break
            excess_bytes -= segment.size_bytes
            below_start = end_offset <= log.start_offset and segment is not log.active
            by_size = config.deletes and config.retention_bytes >= 0 and excess_bytes >= 0
            by_time = config.deletes and 0 <= config.retention_ms < wall_ms - self._largest_timestamp(segment)
            if not (below_start or by_size or by_time):
                break
            expired += 1
        return expired

    def _largest_timestamp(self, segment: Segment) -> int:
        log = self._log
        if segment.max_timestamp >= 0:
            return segment.max_timestamp
        return log.runtime.disk.mtime_ms(segment.path(names.LOG_SUFFIX))

    async def _load_timestamps(self) -> None:
        """Load the largest timestamps of the oldest segments, up to the first that is too young to be removed."""
        log = self._log
        if log.config.retention_ms < 0 or not log.config.deletes:
            return
        for segment in list(log.segments):
            if segment.is_removed:
                continue
            if segment.max_timestamp == UNKNOWN:
                await self._writer.load_max_timestamp(segment)
            if log.runtime.wall_ms() - segment.max_timestamp <= log.config.retention_ms:
                return

    # ---- the end

    async def truncate_to(self, offset: int) -> None:
        """Truncate the log at the start of the batch that contains `offset`.

        Durable when this returns. Nothing may be appended before that.
        """
        log = self._log
        await self.settled()
        if offset >= log.end_offset:
            return
        if offset < log.segments[0].base_offset:
            await self.truncate_fully_and_start_at(offset)
            return
        assert not log.is_frozen, f"{log.directory} is already being truncated"
        log.is_frozen = True
        try:
            found = await self._reader.locate(offset)
            aborted = await self._aborted.load(found.segment)
            await log.load_index(found.segment)
            if found.base_offset > offset:
                # The offset and those before it are in a gap: after a restart the log would end where its last batch
                # ends.
                found = found._replace(base_offset=await self._end_before(found))
            await self._cut(found, aborted)
        except OSError as error:
            log.fail("truncating", error)
        finally:
            log.is_frozen = False

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and continue at `offset`. Durable when this returns. Nothing may be appended before
        that."""
        log = self._log
        await self.settled()
        assert not log.is_frozen, f"{log.directory} is already being truncated"
        log.is_frozen = True
        try:
            removed, log.segments = log.segments, []
            self._set_end(offset)
            log.start_offset = offset
            log.active = Segment.create(log.runtime.disk, log.directory, offset, log.cache)
            log.segments.append(log.active)
            log.epochs.clear()
            log.epoch = log.epochs.latest_epoch
            self._producers.use(ProducerState())
            self._writer.active_replaced()
            await self.lower_checkpoint()
            log.runtime.disk.mkdir(log.directory)
            # Oldest first, like retention. The new start offset is already on disk and covers what a crash leaves.
            for segment in removed:
                self.remove(segment)
                await log.runtime.disk.sync_dir(log.directory)
            self._producers.remove_above(-1)
            log.active.create_file()
            await log.runtime.disk.sync_dir(log.directory)
            await log.runtime.disk.sync_dir(names.parent_of(log.directory))
            log.durable_end = log.stable_end = offset
        except OSError as error:
            log.fail("truncating", error)
        finally:
            log.is_frozen = False

    async def _cut(self, found: Found, aborted: array[int]) -> None:
        log = self._log
        disk = log.runtime.disk
        segment, position, end_offset = found
        index = log.segments.index(segment)
        removed = log.segments[index + 1 :]
        goes_back = log.durable_end > end_offset or log.start_offset > end_offset
        self._set_end(end_offset)
        log.start_offset = min(log.start_offset, end_offset)
        del log.segments[index + 1 :]
        log.active = segment
        self._writer.active_replaced()
        segment.end_offset = OPEN_END
        segment.size_bytes = position
        segment.unindexed_bytes = 0
        log.epochs.truncate_end(end_offset)
        log.epoch = log.epochs.latest_epoch
        if goes_back:
            await self.lower_checkpoint()
            if not segment.index.is_resident:
                await rebuild_index(log.runtime, segment, log.config.index_interval_bytes)
        for later in reversed(removed):
            self.remove(later)
        segment.file.truncate(position)
        segment.index.truncate(position, end_offset)
        segment.aborted.truncate(aborted, end_offset)
        self._producers.remove_above(end_offset)
        await segment.file.sync()
        await disk.sync_dir(log.directory)
        await self._reload_timestamps(segment)
        await self._producers.reload(self._reader)

    async def _end_before(self, found: Found) -> int:
        """The end offset of the batch before this position of a segment."""
        segment, position, _ = found
        if not position:
            return segment.base_offset
        start = segment.index.boundary(position - 1)
        return (await self._reader.drive(walk_bytes(segment, start, position, position - start, True)))[1]

    async def lower_checkpoint(self) -> None:
        log = self._log
        if log.checkpoint is not None:
            await log.checkpoint()

    async def _reload_timestamps(self, segment: Segment) -> None:
        """Set the largest timestamp. The time index may lack the last interval, so its batches are scanned."""
        log = self._log
        timestamp, offset = segment.index.last_time()
        tail = IndexBuilder(segment.base_offset, log.config.index_interval_bytes)
        await scan(log.runtime, segment, segment.index.floor(offset), segment.size_bytes, tail)
        newer = tail.max_timestamp > timestamp
        segment.max_timestamp = tail.max_timestamp if newer else timestamp
        segment.max_timestamp_offset = tail.max_timestamp_offset if newer else offset
        if not segment.size_bytes:
            segment.first_timestamp = NO_TIMESTAMP

    def _set_end(self, offset: int) -> None:
        log = self._log
        log.end_offset = offset
        log.durable_end = min(log.durable_end, offset)
        log.stable_end = min(log.stable_end, offset)
        log.clean_end = min(log.clean_end, offset)
        self.changed()

    def changed(self) -> None:
        log = self._log
        log.version += 1
        self._reader.forget_marks()

    # ---- files

    def remove(self, segment: Segment) -> None:
        """Remove the files of a segment from the log. Reads in progress can still use them for a while."""
        log = self._log
        disk = log.runtime.disk
        segment.is_removed = True
        segment.discard_indexes()
        if not segment.has_file:
            return
        path = segment.path(names.LOG_SUFFIX)
        disk.rename(path, path + names.DELETED_SUFFIX)
        for suffix in (
            names.OFFSET_INDEX_SUFFIX,
            names.TIME_INDEX_SUFFIX,
            names.ABORTED_INDEX_SUFFIX,
            names.SNAPSHOT_SUFFIX,
        ):
            disk.unlink(segment.path(suffix))
        if self._producers.offset == segment.base_offset:
            self._producers.offset = NO_SNAPSHOT
        self.unlink_later(path + names.DELETED_SUFFIX)

    def unlink_later(self, path: str) -> None:
        log = self._log
        if self._unlinks is None:
            self._unlinks = {}
        earlier = self._unlinks.pop(path, None)
        if earlier is not None:
            earlier.cancel()
        self._unlinks[path] = log.runtime.call_later(log.config.file_delete_delay_ms, self._unlink_now, path)

    def _unlink_now(self, path: str) -> None:
        log = self._log
        timer = (self._unlinks or {}).pop(path, None)
        if timer is not None:
            timer.cancel()
            # Freeing the blocks of a large file takes milliseconds, so this runs off the loop.
            log.runtime.spawn(self._unlink(path), f"unlink {path}")

    async def _unlink(self, path: str) -> None:
        log = self._log
        try:
            await log.runtime.offload(log.runtime.disk.unlink, path)
        except OSError as error:
            log.fail("unlinking", error)

    def unlink_at_once(self) -> None:
        """Remove now the files scheduled for later removal: the log is being closed."""
        for path, timer in (self._unlinks or {}).items():
            timer.cancel()
            self._log.runtime.disk.unlink(path)
        self._unlinks = None

    def cancel_unlinks(self) -> None:
        """Drop scheduled removals: the whole directory is being deleted."""
        for timer in (self._unlinks or {}).values():
            timer.cancel()

"""Taking from a log: retention and DeleteRecords at its start, truncation at its end.

Every step here may be the last one before the power goes, so the order of syncs matters:

- Old segments go one at a time, the oldest first, and each removal is durable before the next. A start never finds a
  hole between segments that retention made, so a hole is either damage or an unfinished truncation.
- A truncation first lowers the recovery point *on disk*. Otherwise new records, not synced, would lie below it after
  a power loss, and a start would believe them unchecked.
- After a truncation nothing is appended before the cut, and the removal of later segments, indexes and snapshots, are
  durable. Otherwise a power loss could bring parts of the old tail back behind new records: with a right checksum and
  the right offset. (Truncate, append, power loss: found once in 160 simulated runs of a prototype.)
"""

from __future__ import annotations

from penstock.log import names
from penstock.log.core import NO_SNAPSHOT
from penstock.log.producers import ProducerState, SnapshotDamaged, decode_snapshot
from penstock.log.reading import Reading
from penstock.log.scan import IndexBuilder, ProducerReplay, rebuild_index, scan
from penstock.log.segment import NO_TIMESTAMP, OPEN_END, UNKNOWN, Found, Segment, walk_bytes
from penstock.wire.errors import ErrorCode, KafkaError


class Trimming(Reading):
    __slots__ = ()

    # ---- the start

    def advance_start_offset(self, offset: int) -> None:
        """Records below `offset` are no longer readable (DeleteRecords). `retain` removes their segments."""
        if offset > self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {self.end_offset}, it cannot start at {offset}"
            )
        self.start_offset = max(self.start_offset, offset)

    async def retain(self, wall_ms: int, upto: int) -> int:
        """Remove the oldest segments that `retention.ms`, `retention.bytes` or the start offset do not keep.

        Only segments that lie below `upto`, the high watermark. Returns how many.
        """
        if self._retaining is not None or self.is_compacting or self._is_untouchable():
            return 0
        self._retaining = self.runtime.future()
        try:
            return await self._retain(wall_ms, upto)
        except FileNotFoundError as error:
            # Someone has taken a file away: that log is damaged, the disk is not.
            self.damage += (str(error),)
            return 0
        except OSError as error:
            self.fail("removing old segments", error)
        finally:
            self._retaining.set_result(None)
            self._retaining = None

    async def _retain(self, wall_ms: int, upto: int) -> int:
        await self._load_timestamps()
        if self._is_untouchable():
            return 0
        expired = self.segments[: self._count_expired(wall_ms, upto)]
        if not expired:
            return 0
        if expired[-1] is self.active:
            # The name of the new segment tells where the log ends, once the others are gone.
            self.roll()
        del self.segments[: len(expired)]
        self.start_offset = max(self.start_offset, self.segments[0].base_offset)
        self._changed()
        await self.runtime.disk.sync_dir(self.directory)
        for segment in expired:
            if self.is_closed:
                return 0  # the whole log was deleted meanwhile
            self._remove(segment)
            await self.runtime.disk.sync_dir(self.directory)
        # Only now: a segment that came back after a power loss would have no epoch.
        self.epochs.truncate_start(self.segments[0].base_offset)
        return len(expired)

    async def settled(self) -> None:
        """Until nobody is about to take segments out."""
        while self._retaining is not None:
            await self._retaining

    def _is_untouchable(self) -> bool:
        return self._is_frozen or self.is_closed

    def _count_expired(self, wall_ms: int, upto: int) -> int:
        config = self._config
        excess_bytes = self.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else -1
        expired = 0
        for segment in self.segments:
            end_offset = min(segment.end_offset, self.end_offset)
            if end_offset > upto or (segment is self.active and not segment.size_bytes):
                break
            excess_bytes -= segment.size_bytes
            below_start = end_offset <= self.start_offset and segment is not self.active
            by_size = config.deletes and config.retention_bytes >= 0 and excess_bytes >= 0
            by_time = config.deletes and 0 <= config.retention_ms < wall_ms - self._largest_timestamp(segment)
            if not (below_start or by_size or by_time):
                break
            expired += 1
        return expired

    def _largest_timestamp(self, segment: Segment) -> int:
        if segment.max_timestamp >= 0:
            return segment.max_timestamp
        return self.runtime.disk.mtime_ms(segment.path(names.LOG_SUFFIX))

    async def _load_timestamps(self) -> None:
        """Of the oldest segments, as far as they are old enough to go: no more are looked at."""
        if self._config.retention_ms < 0 or not self._config.deletes:
            return
        for segment in list(self.segments):
            if segment.is_removed:
                continue
            if segment.max_timestamp == UNKNOWN:
                await self.load_max_timestamp(segment)
            if self.runtime.wall_ms() - segment.max_timestamp <= self._config.retention_ms:
                return

    async def load_max_timestamp(self, segment: Segment) -> None:
        """The last entry of the time index says it, because a segment gets one when it is closed."""
        if not segment.size_bytes:
            segment.max_timestamp = NO_TIMESTAMP
            return
        if segment is self.active:
            self._open_active()
            return
        await self.load_index(segment)
        timestamp, offset = segment.index.last_time()
        if segment.max_timestamp == UNKNOWN:
            segment.max_timestamp, segment.max_timestamp_offset = timestamp, offset

    # ---- the end

    async def truncate_to(self, offset: int) -> None:
        """Cut the log at the start of the batch that contains `offset`.

        Durable when this returns, and nobody may append before.
        """
        await self.settled()
        if offset >= self.end_offset:
            return
        if offset < self.segments[0].base_offset:
            await self.truncate_fully_and_start_at(offset)
            return
        assert not self._is_frozen, f"{self.directory} is being truncated already"
        self._is_frozen = True
        try:
            found = await self.locate(offset)
            await self.load_index(found.segment)
            if found.base_offset > offset:
                # It is in a gap, and so are the offsets before it: a start would not know that there were any.
                found = found._replace(base_offset=await self._end_before(found))
            await self._cut(found)
        except OSError as error:
            self.fail("truncating", error)
        finally:
            self._is_frozen = False

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget all records and go on at `offset`. Durable when this returns, and nobody may append before."""
        await self.settled()
        assert not self._is_frozen, f"{self.directory} is being truncated already"
        self._is_frozen = True
        try:
            removed, self.segments = self.segments, []
            self._set_end(offset)
            self.start_offset = offset
            self.active = Segment.create(self.runtime.disk, self.directory, offset, self.cache)
            self.segments.append(self.active)
            self.epochs.clear()
            self.epoch = self.epochs.latest_epoch
            self._producers = ProducerState()
            self._file = None
            await self._lower_checkpoint()
            self.runtime.disk.mkdir(self.directory)
            # Oldest first, like retention: the new start offset, on disk already, covers what is left after a crash.
            for segment in removed:
                self._remove(segment)
                await self.runtime.disk.sync_dir(self.directory)
            self._remove_snapshots(above=-1)
            self.active.create_file()
            await self.runtime.disk.sync_dir(self.directory)
            await self.runtime.disk.sync_dir(names.parent_of(self.directory))
            self.durable_end = self.stable_end = offset
        except OSError as error:
            self.fail("truncating", error)
        finally:
            self._is_frozen = False

    async def _cut(self, found: Found) -> None:
        disk = self.runtime.disk
        segment, position, end_offset = found
        index = self.segments.index(segment)
        removed = self.segments[index + 1 :]
        goes_back = self.durable_end > end_offset or self.start_offset > end_offset
        self._set_end(end_offset)
        self.start_offset = min(self.start_offset, end_offset)
        del self.segments[index + 1 :]
        self.active = segment
        self._file = None
        segment.end_offset = OPEN_END
        segment.size_bytes = position
        segment.unindexed_bytes = 0
        self.epochs.truncate_end(end_offset)
        self.epoch = self.epochs.latest_epoch
        if goes_back:
            await self._lower_checkpoint()
            if not segment.index.is_resident:
                await rebuild_index(self.runtime, segment, self._index_interval_bytes)
        for later in reversed(removed):
            self._remove(later)
        segment.file.truncate(position)
        segment.index.truncate(position, end_offset)
        self._remove_snapshots(above=end_offset)
        await segment.file.sync()
        await disk.sync_dir(self.directory)
        await self._reload_timestamps(segment)
        await self.reload_producers()

    async def _end_before(self, found: Found) -> int:
        """Where the batch ends that stands before this place of a segment."""
        segment, position, _ = found
        if not position:
            return segment.base_offset
        start = segment.index.boundary(position - 1)
        return (await self.drive(walk_bytes(segment, start, position, position - start, True)))[1]

    async def _lower_checkpoint(self) -> None:
        if self.checkpoint is not None:
            await self.checkpoint()

    async def _reload_timestamps(self, segment: Segment) -> None:
        """The time index may lack the last interval, so that is looked through."""
        timestamp, offset = segment.index.last_time()
        tail = IndexBuilder(segment.base_offset, self._index_interval_bytes)
        await scan(self.runtime, segment, segment.index.floor(offset), segment.size_bytes, tail)
        newer = tail.max_timestamp > timestamp
        segment.max_timestamp = tail.max_timestamp if newer else timestamp
        segment.max_timestamp_offset = tail.max_timestamp_offset if newer else offset
        if not segment.size_bytes:
            segment.first_timestamp = NO_TIMESTAMP

    async def reload_producers(self) -> None:
        """Build the state of the producers from the newest snapshot that is of use, and the batches after it."""
        disk = self.runtime.disk
        listed = (names.offset_in(name, names.SNAPSHOT_SUFFIX) for name in disk.list(self.directory))
        offsets = sorted(offset for offset in listed if offset is not None and offset <= self.end_offset)
        producers, from_offset = ProducerState(), self.segments[0].base_offset
        self._snapshot_offset = NO_SNAPSHOT
        while offsets and offsets[-1] >= from_offset:
            offset = offsets.pop()
            try:
                path = names.path_of(self.directory, offset, names.SNAPSHOT_SUFFIX)
                producers = decode_snapshot(await self.runtime.offload(disk.read_bytes, path))
            except SnapshotDamaged:
                continue
            self._snapshot_offset = from_offset = offset
            break
        replay = ProducerReplay(producers, from_offset)
        for segment in list(self.segments):
            if min(segment.end_offset, self.end_offset) > from_offset:
                replay.append_ms = disk.mtime_ms(segment.path(names.LOG_SUFFIX))
                start = 0
                if from_offset > segment.base_offset:
                    start = (await self.locate(from_offset)).position
                await scan(self.runtime, segment, start, segment.size_bytes, replay)
        producers.expire(self.runtime.wall_ms(), self._config.producer_id_expiration_ms)
        self._producers = producers

    def _set_end(self, offset: int) -> None:
        self.end_offset = offset
        self.durable_end = min(self.durable_end, offset)
        self.stable_end = min(self.stable_end, offset)
        self.clean_end = min(self.clean_end, offset)
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._marks = None

    # ---- files

    def _remove_snapshots(self, above: int) -> None:
        for name in self.runtime.disk.list(self.directory):
            offset = names.offset_in(name, names.SNAPSHOT_SUFFIX)
            if offset is not None and offset > above:
                self.runtime.disk.unlink(f"{self.directory}/{name}")
        if self._snapshot_offset > above:
            self._snapshot_offset = NO_SNAPSHOT

    def _remove(self, segment: Segment) -> None:
        """Take the files of a segment out of the log. Its records stay readable to those who are at it for a while."""
        disk = self.runtime.disk
        segment.is_removed = True
        index = segment.loaded_index
        if index is not None:
            index.discard()
        if not segment.has_file:
            return
        path = segment.path(names.LOG_SUFFIX)
        disk.rename(path, path + names.DELETED_SUFFIX)
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.SNAPSHOT_SUFFIX):
            disk.unlink(segment.path(suffix))
        if self._snapshot_offset == segment.base_offset:
            self._snapshot_offset = NO_SNAPSHOT
        self._unlink_later(path + names.DELETED_SUFFIX)

    def _unlink_later(self, path: str) -> None:
        if self._unlinks is None:
            self._unlinks = {}
        earlier = self._unlinks.pop(path, None)
        if earlier is not None:
            earlier.cancel()
        self._unlinks[path] = self.runtime.call_later(self._config.file_delete_delay_ms, self._unlink_now, path)

    def _unlink_now(self, path: str) -> None:
        assert self._unlinks is not None
        timer = self._unlinks.pop(path, None)
        if timer is not None:
            timer.cancel()
            # Freeing the blocks of a large file takes milliseconds.
            self.runtime.spawn(self._unlink(path), f"unlink {path}")

    async def _unlink(self, path: str) -> None:
        try:
            await self.runtime.offload(self.runtime.disk.unlink, path)
        except OSError as error:
            self.fail("unlinking", error)

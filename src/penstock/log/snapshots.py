"""The producer state of a log, and its snapshots on disk.

The state is derived from the batches. A snapshot (`<offset>.snapshot`, in Kafka's format) is written when a segment or
the log is closed, so that a start replays few batches or none. After a clean start it is read when the first idempotent
producer appends.
"""

from __future__ import annotations

from penstock.log import names
from penstock.log.core import LogCore
from penstock.log.producers import ProducerState, SnapshotDamaged, decode_snapshot
from penstock.log.reading import Reader
from penstock.log.scan import ProducerReplay, scan

NO_SNAPSHOT = -1


class ProducerSnapshots:
    __slots__ = ("_log", "loaded", "offset")

    def __init__(self, log: LogCore, producers: ProducerState | None, offset: int) -> None:
        self._log = log
        self.loaded = producers
        """None until the snapshot is read."""
        self.offset = offset
        """The offset of the newest snapshot on disk; NO_SNAPSHOT if there is none."""

    @property
    def state(self) -> ProducerState:
        if self.loaded is None:
            # Happens once after a clean start, and only in logs with idempotent producers: one small file.
            log = self._log
            try:
                self.loaded = decode_snapshot(log.runtime.disk.read_bytes(self.path))
                self.expire(log.runtime.wall_ms())
            except (OSError, SnapshotDamaged) as error:
                log.damage += (f"{self.path}: {error}; the producers it listed are forgotten",)
                self.loaded = ProducerState()
        return self.loaded

    @property
    def path(self) -> str:
        return names.path_of(self._log.directory, self.offset, names.SNAPSHOT_SUFFIX)

    def expire(self, wall_ms: int) -> int:
        """Forget producers that have not written for `producer.id.expiration.ms`. Returns how many."""
        return 0 if self.loaded is None else self.loaded.expire(wall_ms, self._log.config.producer_id_expiration_ms)

    def write(self) -> None:
        """Write a snapshot at the end of the log, unless it already exists."""
        log, previous = self._log, self.offset
        if previous == log.end_offset or log.end_offset == log.segments[0].base_offset:
            return
        disk = log.runtime.disk
        data = self.state.encode()
        self.offset = log.end_offset
        file = disk.open(self.path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        # As in Kafka, each segment keeps the snapshot at its base offset; of the others only the newest is useful.
        if previous >= 0 and all(segment.base_offset != previous for segment in log.segments):
            disk.unlink(names.path_of(log.directory, previous, names.SNAPSHOT_SUFFIX))

    def remove_above(self, offset: int) -> None:
        log = self._log
        for name in log.runtime.disk.list(log.directory):
            at = names.offset_in(name, names.SNAPSHOT_SUFFIX)
            if at is not None and at > offset:
                log.runtime.disk.unlink(f"{log.directory}/{name}")
        if self.offset > offset:
            self.offset = NO_SNAPSHOT

    async def reload(self, reader: Reader) -> None:
        """Rebuild the producer state from the newest usable snapshot and the batches after it."""
        log = self._log
        disk = log.runtime.disk
        listed = (names.offset_in(name, names.SNAPSHOT_SUFFIX) for name in disk.list(log.directory))
        offsets = sorted(offset for offset in listed if offset is not None and offset <= log.end_offset)
        producers, from_offset = ProducerState(), log.segments[0].base_offset
        self.offset = NO_SNAPSHOT
        while offsets and offsets[-1] >= from_offset:
            offset = offsets.pop()
            try:
                path = names.path_of(log.directory, offset, names.SNAPSHOT_SUFFIX)
                producers = decode_snapshot(await log.runtime.offload(disk.read_bytes, path))
            except SnapshotDamaged:
                continue
            self.offset = from_offset = offset
            break
        replay = ProducerReplay(producers, from_offset)
        for segment in list(log.segments):
            if min(segment.end_offset, log.end_offset) > from_offset:
                replay.append_ms = disk.mtime_ms(segment.path(names.LOG_SUFFIX))
                start = 0
                if from_offset > segment.base_offset:
                    start = (await reader.locate(from_offset)).position
                await scan(log.runtime, segment, start, segment.size_bytes, replay)
        self.loaded = producers
        self.expire(log.runtime.wall_ms())

    def first_unstable_offset(self) -> int:
        """The first offset of the oldest open transaction; the end of the log if there is none."""
        open_ones = (entry.transaction_first_offset for _, entry in self.state.entries())
        return min((offset for offset in open_ones if offset >= 0), default=self._log.end_offset)

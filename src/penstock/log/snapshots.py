"""The producer state of a log, and its snapshots on disk.

The state is derived from the batches. A snapshot (`<offset>.snapshot`, in Kafka's format) is written when a segment or
the log is closed, so that a start replays few batches or none. After a clean start it is read when the first idempotent
producer appends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.log import names
from penstock.log.core import LogCore
from penstock.log.producers import ProducerState, SnapshotDamaged, decode_snapshot
from penstock.log.reading import Reader
from penstock.log.scan import ProducerReplay, scan
from penstock.log.segment import Found, Segment
from penstock.log.transactions import AbortedTransaction

NO_SNAPSHOT = -1


class ProducerSnapshots:
    __slots__ = ("_log", "loaded", "offset")

    def __init__(self, log: LogCore, producers: ProducerState | None, offset: int) -> None:
        self._log = log
        self.loaded = producers
        """None until the snapshot is read. Until then it is known that no transaction is open."""
        if producers is not None:
            log.transactions = producers.transactions
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

    def use(self, producers: ProducerState) -> None:
        self.loaded = producers
        self._log.transactions = producers.transactions

    @property
    def path(self) -> str:
        return names.path_of(self._log.directory, self.offset, names.SNAPSHOT_SUFFIX)

    def void_verifications(self) -> None:
        """This broker no longer leads, or leads again: no pending verification counts."""
        if self.loaded is not None:
            self.loaded.void_verifications()

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
        before = log.transactions
        producers, from_offset, self.offset = await self._newest(log.end_offset)
        await self._replay(reader.locate, producers, from_offset, log.end_offset)
        producers.take_aborted()  # the index has them
        if before is not None:
            producers.carry_over(before, from_offset)
        self.use(producers)
        self.expire(log.runtime.wall_ms())

    async def aborted_in(self, segment: Segment) -> list[AbortedTransaction]:
        """The aborted transactions whose markers are in this segment, found by replaying its batches."""
        producers, from_offset, _ = await self._newest(segment.base_offset)
        await self._replay(None, producers, from_offset, min(segment.end_offset, self._log.end_offset))
        return [one for one in producers.take_aborted() if one.last_offset >= segment.base_offset]

    async def _newest(self, upto: int) -> tuple[ProducerState, int, int]:
        """The newest usable snapshot at or below `upto`: the state, the offset to replay from, and the offset of the
        snapshot."""
        log = self._log
        disk = log.runtime.disk
        listed = (names.offset_in(name, names.SNAPSHOT_SUFFIX) for name in disk.list(log.directory))
        offsets = sorted(offset for offset in listed if offset is not None and offset <= upto)
        first = log.segments[0].base_offset
        while offsets and offsets[-1] >= first:
            offset = offsets.pop()
            try:
                path = names.path_of(log.directory, offset, names.SNAPSHOT_SUFFIX)
                return decode_snapshot(await log.runtime.offload(disk.read_bytes, path)), offset, offset
            except SnapshotDamaged as error:
                log.damage += (f"{path}: {error}; its producers are found again in the log",)
        return ProducerState(), first, NO_SNAPSHOT

    async def _replay(
        self,
        locate: Callable[[int], Awaitable[Found]] | None,
        producers: ProducerState,
        from_offset: int,
        upto: int,
    ) -> None:
        """Replay the batches between two offsets. `upto` must be the end of a segment, or of the log."""
        log = self._log
        replay = ProducerReplay(producers, from_offset)
        for segment in list(log.segments):
            if min(segment.end_offset, log.end_offset) > from_offset and segment.base_offset < upto:
                replay.append_ms = log.runtime.disk.mtime_ms(segment.path(names.LOG_SUFFIX))
                start = 0
                if from_offset > segment.base_offset and locate is not None:
                    start = (await locate(from_offset)).position
                await scan(log.runtime, segment, start, segment.size_bytes, replay)

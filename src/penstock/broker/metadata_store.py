"""What a node keeps of the cluster's metadata on its disk: the log, its snapshots, its vote, and how far it was synced.

All of it lies in `__cluster_metadata-0`. The parts belong together, and the order in which they change is what makes a
crash harmless:

- A snapshot is whole and durable before the log begins after it. So a log that ends before the newest snapshot was cut
  off between the two, and goes on after the snapshot.
- The note of how far the log was synced (`synced_end`) is lowered before the log is cut, never after.
- What is found at a start is synced once more: it may be in the page cache only, and counts as synced from then on.

A log or a snapshot that is damaged, or shorter than it once was, is not repaired here: others hold what this node
lost. It forgets what it cannot trust, and its vote is *suspect* from then on: until it has everything again it must not
help to elect anyone. Without others there is nobody to ask, and a damaged log keeps the node from starting. So does a
snapshot that a newer release wrote, in a way that this one does not know: nothing is wrong with it.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.layout import METADATA_DIRECTORY, QUORUM_STATE_PATH
from penstock.broker.synced_end import SyncedEnd
from penstock.log import CorruptLog, Log, LogConfig, LogDirectory, names
from penstock.metadata import MetadataError, MetadataLoader
from penstock.raft import (
    BOOTSTRAP_SNAPSHOT,
    HardState,
    LogBatch,
    LogView,
    OffsetAndEpoch,
    Snapshot,
    SnapshotError,
    VoterSet,
    decode_batches,
    encode_batch,
    format_quorum_state,
    parse_quorum_state,
    parse_snapshot_name,
    read_snapshot,
    snapshot_batches,
    snapshot_name,
)
from penstock.raft import messages as m
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.records import check_batch

READ_BYTES = 1 << 20
METADATA_LOG = LogConfig(retention_ms=-1, max_message_bytes=1 << 30)
LOG_FILE_SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")


class UnreadableMetadata(Exception):
    """A snapshot is whole, and has records that this release cannot make sense of."""


class Found(NamedTuple):
    """What the disk held."""

    state: HardState
    snapshot_id: OffsetAndEpoch
    voter_set: VoterSet
    """As of the snapshot."""
    log_start: int
    batches: list[LogBatch]

    def log_view(self) -> LogView:
        return LogView.recover(self.log_start, self.batches, self.snapshot_id, self.voter_set)

    def after_snapshot(self) -> list[LogBatch]:
        return [batch for batch in self.batches if batch.end_offset > self.snapshot_id.offset]


class MetadataStore:
    log: Log

    def __init__(self, runtime: Runtime, events: EventLog, *, has_others: bool) -> None:
        """`has_others`: there are nodes to fetch from what this one may have lost."""
        self._runtime = runtime
        self._events = events
        self._has_others = has_others
        self._synced_end = SyncedEnd(runtime)

    # ---- start

    async def open(self, directory: LogDirectory, loader: MetadataLoader) -> Found:
        """Read what is there; the newest snapshot goes into `loader`."""
        disk = self._runtime.disk
        state = HardState()
        if disk.exists(QUORUM_STATE_PATH):
            state = parse_quorum_state(disk.read_bytes(QUORUM_STATE_PATH))
        try:
            snapshot_id, snapshot = self._load_newest(loader)
            batches = await self._open_log(directory, snapshot_id)
        except (CorruptLog, WireError, SnapshotError) as error:
            if not self._has_others:
                raise
            # Others hold what this node lost. Until it has all of that again it must not help to elect anyone.
            self._events.error("metadata log damaged", what=str(error), then="it is fetched again from the leader")
            state = await self._suspect(state)
            await self._discard_log(directory)
            if isinstance(error, SnapshotError):
                snapshot_id, snapshot = await self._discard_snapshots()
                loader.load_snapshot(snapshot_id, snapshot.values)
            batches = await self._open_log(directory, snapshot_id)
        end, once = max(self.log.end_offset, snapshot_id.offset), self._synced_end.read()
        if once > end and not state.suspect:
            self._events.error(
                "metadata log damaged",
                what=f"it ends at {end}, and was synced up to {once}",
                then="what is missing is fetched again from the leader",
            )
            state = await self._suspect(state)
        await self._synced_end.lower(end)
        return Found(state, snapshot_id, snapshot.voter_set, self.log.start_offset, batches)

    def _load_newest(self, loader: MetadataLoader) -> tuple[OffsetAndEpoch, Snapshot]:
        snapshot_id = max(self._snapshots())
        path = snapshot_path(snapshot_id)
        snapshot = read_snapshot(self._runtime.disk.read_bytes(path))
        try:
            loader.load_snapshot(snapshot_id, snapshot.values)
        except (WireError, MetadataError) as error:
            # Its checksums are right, so it is no damage, and the leader would send the same.
            raise UnreadableMetadata(f"{path}: {error}") from None
        return snapshot_id, snapshot

    async def _suspect(self, state: HardState) -> HardState:
        # Without others there is nobody who could have what is missing.
        state = HardState(state.epoch, state.leader_id, state.voted, suspect=self._has_others)
        await self.write_state(state)
        return state

    async def _open_log(self, directory: LogDirectory, snapshot_id: OffsetAndEpoch) -> list[LogBatch]:
        log = self.log = await directory.open(METADATA_DIRECTORY, METADATA_LOG)
        if log.damage and self._has_others:
            raise CorruptLog("; ".join(log.damage))
        if log.cut_whole and self._has_others:
            # A torn write has nothing whole behind it, but for another write that was not synced either. The first
            # batches may name this node as the only voter: it must not go on from there as if that were all.
            raise CorruptLog(f"whole batches follow one that is damaged, behind offset {log.end_offset}")
        if log.end_offset < snapshot_id.offset:
            # A crash came between the snapshot and what it replaced: the log goes on after the snapshot.
            await log.truncate_fully_and_start_at(snapshot_id.offset)
        # What we found may be in the page cache only, and the core counts it as synced from here on.
        await log.flush()
        return await read_batches(log)

    def _snapshots(self) -> list[OffsetAndEpoch]:
        listed = self._runtime.disk.list(METADATA_DIRECTORY)
        return [found for name in listed if (found := parse_snapshot_name(name)) is not None]

    async def _discard_snapshots(self) -> tuple[OffsetAndEpoch, Snapshot]:
        """Begin with nothing, as a node does that has just joined."""
        disk = self._runtime.disk
        wall_ms = self._runtime.wall_ms()
        data = b"".join(snapshot_batches(BOOTSTRAP_SNAPSHOT, VoterSet(), [], timestamp_ms=wall_ms))
        await self.write_snapshot(BOOTSTRAP_SNAPSHOT, data)
        for snapshot_id in self._snapshots():
            if snapshot_id != BOOTSTRAP_SNAPSHOT:
                disk.unlink(snapshot_path(snapshot_id))
        await disk.sync_dir(METADATA_DIRECTORY)
        return BOOTSTRAP_SNAPSHOT, read_snapshot(data)

    async def _discard_log(self, directory: LogDirectory) -> None:
        """Remove the log, but neither snapshots nor what this node voted for."""
        disk = self._runtime.disk
        log = directory.logs.pop(METADATA_DIRECTORY, None)
        if log is not None:
            await log.close(clean=False)
        for name in disk.list(METADATA_DIRECTORY):
            if name.endswith(LOG_FILE_SUFFIXES) or name.startswith(names.EPOCHS_NAME):
                disk.unlink(f"{METADATA_DIRECTORY}/{name}")
        await disk.sync_dir(METADATA_DIRECTORY)
        directory.forget_checkpoints(METADATA_DIRECTORY)

    # ---- the vote

    async def write_state(self, state: HardState) -> None:
        await self._runtime.disk.replace_bytes(QUORUM_STATE_PATH, format_quorum_state(state))

    # ---- the log

    def append(self, batch: LogBatch) -> int:
        """Returns how many bytes that were."""
        data = encode_batch(batch, self._runtime.wall_ms())
        self.log.append_follower(memoryview(bytearray(data)))
        return len(data)

    async def sync(self) -> int:
        """Returns up to which offset the log is durable."""
        end = self.log.end_offset
        await self.log.flush()
        self._synced_end.moved(end)
        return end

    async def truncate_to(self, offset: int) -> None:
        await self._synced_end.lower(offset)
        await self.log.truncate_to(offset)

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Batches from this one on."""
        log = self.log
        found = log.try_read(offset, max_bytes, log.end_offset)
        if found is None:
            found = await log.read(offset, max_bytes, log.end_offset)
        data = bytearray(found.size)
        if found.file.try_pread_into(memoryview(data), found.position) < found.size:
            data = bytearray(await found.file.pread(found.size, found.position))
        return bytes(data)

    # ---- snapshots

    async def write_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        await self._runtime.disk.replace_bytes(snapshot_path(snapshot_id), data)

    async def start_log_after(self, snapshot_id: OffsetAndEpoch) -> None:
        """What the snapshot holds may go from the log: whole segments do."""
        self.log.advance_start_offset(snapshot_id.offset)
        await self.log.retain(self._runtime.wall_ms(), snapshot_id.offset)

    async def install_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Let a snapshot take the place of the whole log."""
        await self.write_snapshot(snapshot_id, data)
        await self._synced_end.lower(snapshot_id.offset)
        await self.log.truncate_fully_and_start_at(snapshot_id.offset)
        await self.log.flush()

    def remove_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        for older in self._snapshots():
            if older < snapshot_id:
                self._runtime.disk.unlink(snapshot_path(older))

    async def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[bytes, int]:
        """A piece of a snapshot, and the size of the whole. Raises KafkaError."""
        disk = self._runtime.disk
        path = snapshot_path(snapshot_id)
        if not disk.exists(path):
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND)
        file = disk.open(path)
        size = disk.size(path)
        if not 0 <= position < size:
            raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE)
        return bytes(await file.pread(min(max_bytes, size - position), position)), size

    def close(self) -> None:
        """The log is closed by its directory."""
        self._synced_end.close()


def snapshot_path(snapshot_id: OffsetAndEpoch) -> str:
    return f"{METADATA_DIRECTORY}/{snapshot_name(snapshot_id)}"


async def read_batches(log: Log) -> list[LogBatch]:
    """All there are. Raises CorruptLog or WireError."""
    offset = log.start_offset
    batches: list[LogBatch] = []
    while offset < log.end_offset:
        found = await log.read(offset, READ_BYTES, log.end_offset)
        data = await found.file.pread(found.size, found.position)
        for batch in decode_batches(data):
            if batch.end_offset > offset:
                check_batch(batch.data)
                if batches:
                    check_follows(batches[-1], batch)
                batches.append(batch)
                offset = batch.end_offset
    return batches


def check_follows(before: LogBatch, batch: LogBatch) -> None:
    """A batch's checksum covers neither its offset nor its epoch. But this log has no gaps, and epochs begin with their
    leader's own record: a bit that flipped in either shows."""
    begins = any(isinstance(record, m.LeaderChange) for record in batch.control)
    if batch.base_offset != before.end_offset:
        raise CorruptLog(f"a batch at {batch.base_offset} follows one that ends at {before.end_offset}")
    if batch.epoch < before.epoch or (batch.epoch > before.epoch and not begins):
        raise CorruptLog(f"the batch at {batch.base_offset} is of epoch {batch.epoch}, after epoch {before.epoch}")

"""A node's copy of the cluster metadata on disk: the log, its snapshots, the vote, and the last synced offset.

All files are in `__cluster_metadata-0`. The order in which they change makes a crash harmless:

- A snapshot is complete and durable before the log begins after it. So if a log ends before the newest snapshot, a
  crash came between the two, and the log continues after the snapshot.
- The note of the last synced offset (`synced_end`) is lowered before the log is truncated, never after.
- A start syncs the files that it finds once more: they may be only in the page cache, and count as synced from then on.

A start examines the files before it changes anything (`metadata_evidence`). If a log or a snapshot is damaged, or
shorter than it once was, there are two cases:

- Other nodes have the metadata. The damaged files are set aside, never removed, and everything is fetched again. Until
  then the node's vote is *suspect*: it must not help to elect a leader, and its image must not be used.
- No other node has it. The node does not start and changes nothing; `penstock metadata recover` shows what can be
  rebuilt.

A snapshot in a format that only a newer release knows also prevents a start, but it is not damaged.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.layout import METADATA_DIRECTORY, QUORUM_STATE_PATH
from penstock.broker.quorum.metadata_evidence import (
    Evidence,
    UnreadableMetadata,
    collect,
    read_state,
    snapshot_path,
    snapshots_in,
)
from penstock.broker.quorum.synced_end import SyncedEnd
from penstock.broker.replicas.remains import remains_in
from penstock.log import CorruptLog, Log, LogConfig, LogDirectory, Strays, names
from penstock.metadata import MetadataError, MetadataLoader
from penstock.raft import (
    BOOTSTRAP_SNAPSHOT,
    HardState,
    LogBatch,
    LogView,
    OffsetAndEpoch,
    VoterSet,
    batch_values,
    decode_batches,
    encode_batch,
    format_quorum_state,
    parse_snapshot_name,
    read_snapshot,
    snapshot_batches,
)
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages.metadata_records import RemoveTopicRecord, TopicRecord, decode_metadata_record
from penstock.wire.uuids import format_uuid

READ_BYTES = 1 << 20
METADATA_LOG = LogConfig(retention_ms=-1, max_message_bytes=1 << 30)
LOG_FILE_SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")


class DamagedMetadata(Exception):
    """The metadata is damaged, and no other node has it."""


class Found(NamedTuple):
    """The metadata found on disk."""

    state: HardState
    snapshot_id: OffsetAndEpoch
    voter_set: VoterSet
    """The voter set of the snapshot."""
    log_start: int
    batches: list[LogBatch]

    def log_view(self) -> LogView:
        return LogView.recover(self.log_start, self.batches, self.snapshot_id, self.voter_set)

    def after_snapshot(self) -> list[LogBatch]:
        return [batch for batch in self.batches if batch.end_offset > self.snapshot_id.offset]


class MetadataStore:
    log: Log

    def __init__(self, runtime: Runtime, events: EventLog, *, has_others: bool) -> None:
        """`has_others`: there are nodes from which lost metadata can be fetched.

        The configuration decides this and not the log: a damaged log may end at a time when this node was the only
        voter.
        """
        self._runtime = runtime
        self._events = events
        self._has_others = has_others
        self._synced_end = SyncedEnd(runtime)
        self._cuts = 0
        """Odd while the log is being truncated, and higher afterwards: a sync that ran meanwhile is not recorded."""

    # ---- start

    async def open(self, directory: LogDirectory, loader: MetadataLoader) -> Found:
        """Read the files; load the newest snapshot into `loader`. Raises DamagedMetadata, UnreadableMetadata."""
        recovery_point = directory.recovery_point(METADATA_DIRECTORY)
        disk = self._runtime.disk
        evidence = await self._runtime.offload(collect, disk, recovery_point, read_state(disk))
        damage = evidence.snapshot_damage + evidence.damage
        if self._has_others and not damage:
            damage = _doubts(evidence)
        if damage and not self._has_others:
            raise DamagedMetadata(
                f"the metadata is damaged: {'; '.join(damage)}. Nothing was changed: {remains_in(disk)}. "
                "No other voter has this metadata. If the cluster has other brokers, each has a copy of "
                f"{METADATA_DIRECTORY}: restore it from there. Otherwise see what can be rebuilt with: "
                f"penstock metadata recover --data {disk.root}"
            )
        if damage:
            evidence = await self._set_aside(directory, evidence, damage)
        self._synced_end.found(evidence.noted)
        if evidence.noted.is_damaged:
            self._events.warning(
                "synced-end damaged", what="the record of the metadata log's last sync", then="it is rewritten"
            )
        return await self._open(directory, evidence, loader)

    async def _open(self, directory: LogDirectory, evidence: Evidence, loader: MetadataLoader) -> Found:
        snapshot_id, snapshot = evidence.snapshot_id, evidence.snapshot
        assert snapshot_id is not None
        assert snapshot is not None
        try:
            loader.load_snapshot(snapshot_id, snapshot.values)
        except (WireError, MetadataError) as error:
            # Its checksums are valid, so it is not damaged, and the leader would send the same bytes.
            raise UnreadableMetadata(f"{snapshot_path(snapshot_id)}: {error}") from None
        try:
            log = self.log = await directory.open(METADATA_DIRECTORY, METADATA_LOG)
        except CorruptLog as error:
            raise DamagedMetadata(str(error)) from None
        for cut in log.cuts:
            self._events.error("log cut", partition=METADATA_DIRECTORY, **cut.fields())
        if log.end_offset < snapshot_id.offset:
            # A crash came between writing the snapshot and replacing the log: continue after the snapshot.
            await log.trimmer.truncate_fully_and_start_at(snapshot_id.offset)
        if log.end_offset != max(evidence.log.end, snapshot_id.offset):
            raise DamagedMetadata(
                f"the metadata log ends at {log.end_offset} after it was opened, but at {evidence.log.end} when it "
                "was read"
            )
        # These bytes may be only in the page cache, and the core counts them as synced from here on.
        await log.flush()
        self._synced_end.moved(log.end_offset)
        batches = [batch for batch in evidence.log.batches if batch.end_offset > log.start_offset]
        state = evidence.state or HardState()
        return Found(state, snapshot_id, snapshot.voter_set, log.start_offset, batches)

    async def _set_aside(self, directory: LogDirectory, evidence: Evidence, damage: list[str]) -> Evidence:
        """Set aside the files that cannot be trusted, without removing any. Other nodes have what this node lost."""
        disk = self._runtime.disk
        state = evidence.state or HardState()
        # This comes first: until the node has everything again, it must not help to elect a leader.
        state = HardState(state.epoch, state.leader_id, state.voted, suspect=True)
        await self.write_state(state)
        doomed = [
            name
            for name in disk.list(METADATA_DIRECTORY)
            if name.endswith(LOG_FILE_SUFFIXES)
            or name.startswith(names.EPOCHS_NAME)
            or (evidence.snapshot is None and parse_snapshot_name(name) is not None)
        ]
        kept = await Strays(self._runtime).set_files_aside(METADATA_DIRECTORY, doomed, "; ".join(damage))
        directory.forget_checkpoints(METADATA_DIRECTORY)
        await directory.checkpoint()
        self._synced_end.found(evidence.noted)
        if evidence.snapshot is None:
            # Start empty, like a node that has just joined.
            wall_ms = self._runtime.wall_ms()
            data = b"".join(snapshot_batches(BOOTSTRAP_SNAPSHOT, VoterSet(), [], timestamp_ms=wall_ms))
            await self.write_snapshot(BOOTSTRAP_SNAPSHOT, data)
        snapshot_id = max(snapshots_in(disk))
        await self._synced_end.lower(snapshot_id.offset)
        self._events.error(
            "metadata log damaged",
            what="; ".join(damage),
            kept=kept,
            then="everything is fetched again from the leader; until then this node does not vote or lead",
        )
        return await self._runtime.offload(collect, disk, 0, state)

    # ---- the vote

    async def write_state(self, state: HardState) -> None:
        await self._runtime.disk.replace_bytes(QUORUM_STATE_PATH, format_quorum_state(state))

    # ---- the log

    def append(self, batch: LogBatch) -> int:
        """Append a batch; returns its size in bytes."""
        data = encode_batch(batch, self._runtime.wall_ms())
        self.log.writer.append_follower(memoryview(bytearray(data)))
        return len(data)

    async def sync(self) -> int:
        """Sync the log; returns the offset up to which it is durable."""
        end, cuts = self.log.end_offset, self._cuts
        await self.log.flush()
        if cuts == self._cuts and not cuts % 2:
            self._synced_end.moved(end)
        return end

    async def truncate_to(self, offset: int) -> None:
        self._cuts += 1
        await self._synced_end.lower(offset)
        await self.log.trimmer.truncate_to(offset)
        self._cuts += 1

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Batches from the one that contains this offset."""
        log = self.log
        found = log.reader.try_read(offset, max_bytes, log.end_offset)
        if found is None:
            found = await log.reader.read(offset, max_bytes, log.end_offset)
        data = bytearray(found.size)
        if found.file.try_pread_into(memoryview(data), found.position) < found.size:
            data = bytearray(await found.file.pread(found.size, found.position))
        return bytes(data)

    async def removed_topics(self, snapshot_id: OffsetAndEpoch) -> dict[str, str]:
        """Names by id of the topics that were deleted since this snapshot."""
        named: dict[bytes, str] = {}
        removed: dict[str, str] = {}
        values = list(read_snapshot(self._runtime.disk.read_bytes(snapshot_path(snapshot_id))).values)
        for batch in await read_batches(self.log):
            values += batch_values(batch)
        for value in values:
            record = decode_metadata_record(value)
            if isinstance(record, TopicRecord):
                named[record.topic_id] = record.name
            elif isinstance(record, RemoveTopicRecord):
                removed[format_uuid(record.topic_id)] = named.get(record.topic_id, "")
        return removed

    # ---- snapshots

    async def write_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        await self._runtime.disk.replace_bytes(snapshot_path(snapshot_id), data)

    async def start_log_after(self, snapshot_id: OffsetAndEpoch) -> None:
        """Remove the part of the log that the snapshot covers, in whole segments."""
        self.log.trimmer.advance_start_offset(snapshot_id.offset)
        await self.log.trimmer.retain(self._runtime.wall_ms(), snapshot_id.offset)

    async def install_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Replace the whole log by a snapshot."""
        await self.write_snapshot(snapshot_id, data)
        self._cuts += 1
        await self._synced_end.lower(snapshot_id.offset)
        await self.log.trimmer.truncate_fully_and_start_at(snapshot_id.offset)
        await self.log.flush()
        self._cuts += 1

    def remove_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        for older in snapshots_in(self._runtime.disk):
            if older < snapshot_id:
                self._runtime.disk.unlink(snapshot_path(older))

    async def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[bytes, int]:
        """A part of a snapshot, and the size of the whole. Raises KafkaError."""
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


def _doubts(evidence: Evidence) -> list[str]:
    """Signs that may be harmless. They are treated as damage if other nodes have the metadata, because fetching it
    again is cheap."""
    doubts = []
    if evidence.log.behind:
        # Valid batches after a torn write can only be other unsynced writes. But the batches before it may name this
        # node as the only voter, and it must not continue from there as if they were all.
        assert evidence.log.broken is not None
        doubts.append(f"valid batches follow a damaged one after offset {evidence.log.broken.offset}")
    if evidence.state is None and evidence.log.batches:
        doubts.append("quorum-state is missing, so this node's vote is unknown")
    return doubts


async def read_batches(log: Log) -> list[LogBatch]:
    """All batches in the log."""
    offset = log.start_offset
    batches: list[LogBatch] = []
    while offset < log.end_offset:
        found = await log.reader.read(offset, READ_BYTES, log.end_offset)
        data = await found.file.pread(found.size, found.position)
        for batch in decode_batches(data):
            if batch.end_offset > offset:
                batches.append(batch)
                offset = batch.end_offset
    return batches

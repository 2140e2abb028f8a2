"""Examines the files of the metadata log at a start, before anything is changed.

A start must distinguish two cases. A *torn tail* was written but never synced: nothing in it was acknowledged, and it
is truncated. Everything else is *damage*, and nothing may be truncated, lowered or removed because of a damaged log: a
topic that it lost looks like a deleted one. So a start first collects evidence, read-only. Damage is:

- An incomplete or corrupt batch below a synced offset: the note of the last sync (`synced_end`) or the recovery point.
- A log that is shorter than that.
- Valid batches in the wrong order: offsets have no gaps, and an epoch begins with its leader's own record. (A batch's
  checksum covers neither.) Or an epoch later than any that this node entered, according to its `quorum-state`.
- A snapshot that is missing, damaged, or ends before the log begins.

Every start finds the same evidence until an operator has acted on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.broker.layout import METADATA_DIRECTORY, QUORUM_STATE_PATH
from penstock.broker.quorum.synced_end import Noted, read_noted
from penstock.log import names
from penstock.raft import (
    HardState,
    LogBatch,
    OffsetAndEpoch,
    SnapshotError,
    VoterSet,
    decode_batch,
    parse_quorum_state,
    parse_snapshot_name,
    read_snapshot,
    snapshot_name,
)
from penstock.raft import messages as m
from penstock.runtime import Disk
from penstock.wire.errors import WireError
from penstock.wire.records import HEADER_SIZE, MAGIC, batch_crc, read_header

MAGIC_POSITION = 16
MAGIC_BYTE = bytes([MAGIC])


class UnreadableMetadata(Exception):
    """A batch or a snapshot has a valid checksum but records that this release does not understand."""


class Broken(NamedTuple):
    """The place where a log becomes invalid."""

    path: str
    position: int
    offset: int
    """The offset expected at this place."""
    reason: str
    is_rot: bool
    """No torn write can cause this: valid batches that do not follow one another."""


@dataclass(slots=True)
class LogEvidence:
    """The batches of the log up to the first invalid place, and the valid ones after it."""

    start: int
    end: int
    batches: list[LogBatch] = field(default_factory=list)
    broken: Broken | None = None
    behind: list[LogBatch] = field(default_factory=list)
    """Valid batches after the invalid place."""


class SnapshotEvidence(NamedTuple):
    voter_set: VoterSet
    values: list[bytes]


@dataclass(slots=True)
class Evidence:
    state: HardState | None
    """The vote and epoch of this node; None if the file does not exist."""
    snapshot_id: OffsetAndEpoch | None
    """The newest snapshot, readable or not; None if there is none."""
    snapshot: SnapshotEvidence | None
    """The content of the snapshot; None if it is damaged."""
    log: LogEvidence
    noted: Noted
    damage: list[str] = field(default_factory=list)
    snapshot_damage: list[str] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        return bool(self.damage or self.snapshot_damage)

    @property
    def voter_set(self) -> VoterSet | None:
        """The newest voter set in any intact record; None if there is none."""
        found = [
            record.voter_set
            for batch in (*self.log.batches, *self.log.behind)
            for record in batch.control
            if isinstance(record, m.Voters)
        ]
        if found:
            return found[-1]
        if self.snapshot is not None and len(self.snapshot.voter_set):
            return self.snapshot.voter_set
        return None


def read_state(disk: Disk) -> HardState | None:
    """The content of `quorum-state`; None if the file does not exist. Raises QuorumStateError."""
    return parse_quorum_state(disk.read_bytes(QUORUM_STATE_PATH)) if disk.exists(QUORUM_STATE_PATH) else None


def collect(disk: Disk, recovery_point: int, state: HardState | None) -> Evidence:
    """Read everything, change nothing. Raises UnreadableMetadata.

    Makes system calls that may wait, so run it with `offload`.
    """
    snapshot_id = max(snapshots_in(disk), default=None)
    snapshot, snapshot_damage = _read_snapshot(disk, snapshot_id)
    covered = snapshot_id.offset if snapshot_id is not None else 0
    log = walk(segments_in(disk), covered)
    evidence = Evidence(state, snapshot_id, snapshot, log, read_noted(disk), snapshot_damage=snapshot_damage)
    evidence.damage += _judge(evidence, covered, recovery_point)
    return evidence


def _judge(evidence: Evidence, covered: int, recovery_point: int) -> Iterator[str]:
    log, noted, broken = evidence.log, evidence.noted, evidence.log.broken
    synced = max(noted.end, recovery_point)
    if log.start > covered:
        yield f"the log begins at offset {log.start}, but the newest snapshot ends at {covered}"
    where = "" if broken is None else f"{broken.path} is damaged at byte {broken.position} (offset {broken.offset})"
    if broken is not None and (broken.is_rot or broken.offset < synced):
        known = "" if broken.is_rot else f", although the log was synced up to {synced}"
        behind = f"; {len(log.behind)} valid batches follow" if log.behind else ""
        yield f"{where}: {broken.reason}{known}{behind}"
    elif broken is not None and noted.is_damaged:
        yield f"{where}: {broken.reason}; and synced-end, which records the last sync, is also damaged"
    elif max(log.end, covered) < synced:
        yield f"the log ends at offset {max(log.end, covered)}, but was synced up to {synced}"
    if evidence.state is not None and log.batches and log.batches[-1].epoch > evidence.state.epoch:
        yield (
            f"the log has epoch {log.batches[-1].epoch}, but the last epoch of this node was "
            f"{evidence.state.epoch} (quorum-state)"
        )


def segments_in(disk: Disk) -> list[tuple[int, str, bytes]]:
    """The base offset, path and content of every segment, in order."""
    found = []
    for name in disk.list(METADATA_DIRECTORY):
        base = names.offset_in(name, names.LOG_SUFFIX)
        if base is not None:
            path = f"{METADATA_DIRECTORY}/{name}"
            found.append((base, path, disk.read_bytes(path)))
    return found


def snapshots_in(disk: Disk) -> list[OffsetAndEpoch]:
    return [found for name in disk.list(METADATA_DIRECTORY) if (found := parse_snapshot_name(name)) is not None]


def snapshot_path(snapshot_id: OffsetAndEpoch) -> str:
    return f"{METADATA_DIRECTORY}/{snapshot_name(snapshot_id)}"


def _read_snapshot(disk: Disk, snapshot_id: OffsetAndEpoch | None) -> tuple[SnapshotEvidence | None, list[str]]:
    if snapshot_id is None:
        return None, [f"{METADATA_DIRECTORY} has no snapshot"]
    path = snapshot_path(snapshot_id)
    try:
        snapshot = read_snapshot(disk.read_bytes(path))
        return SnapshotEvidence(snapshot.voter_set, list(snapshot.values)), []
    except SnapshotError as error:
        return None, [f"{path} is {error}"]


def walk(segments: Sequence[tuple[int, str, bytes]], covered: int) -> LogEvidence:
    """Follow the batches, starting with the segment that holds offset `covered`: the snapshot holds everything
    before."""
    first = max((number for number, (base, _, _) in enumerate(segments) if base <= covered), default=0)
    segments = segments[first:]
    start = segments[0][0] if segments else covered
    log = LogEvidence(start, start)
    for number, (base, path, data) in enumerate(segments):
        if base != log.end:
            reason = f"the segment begins at offset {base}, but the one before it ends at {log.end}"
            # A gap may be the unsynced end of the previous segment, lost in a power failure.
            log.broken = Broken(path, 0, log.end, reason, is_rot=base < log.end)
            position = 0
        else:
            position = _walk_segment(log, path, data)
        if log.broken is not None:
            log.behind += whole_batches(data, position)
            for _, _, later in segments[number + 1 :]:
                log.behind += whole_batches(later, 0)
            return log
    return log


def _walk_segment(log: LogEvidence, path: str, data: bytes) -> int:
    """Check the batches of one segment. Returns the position reached; `log.broken` tells why it stopped, if it did."""
    view = memoryview(data)
    position = 0
    while position < len(data):
        batch, reason = _batch_at(view, position)
        before = log.batches[-1] if log.batches else None
        misplaced = "" if batch is None else _misplaced(before, batch, log.end)
        if batch is None or misplaced:
            log.broken = Broken(path, position, log.end, reason or misplaced, is_rot=bool(misplaced))
            return position
        log.batches.append(batch)
        log.end = batch.end_offset
        position += len(batch.data)
    return position


def _batch_at(view: memoryview, position: int) -> tuple[LogBatch | None, str]:
    """The valid batch at this position, or the reason why there is none."""
    if len(view) - position < HEADER_SIZE:
        return None, "the file ends inside a batch"
    header = read_header(view, position)
    if header.magic != MAGIC or header.size_bytes < HEADER_SIZE or header.last_offset_delta < 0:
        return None, "no batch begins here"
    if header.size_bytes > len(view) - position:
        return None, "the file ends inside a batch"
    data = view[position : position + header.size_bytes]
    if batch_crc(data) != header.crc:
        return None, "a batch has a wrong checksum"
    try:
        return decode_batch(header, data), ""
    except WireError as error:
        # Its checksum is valid, so it is not damaged, and the leader would send the same bytes.
        raise UnreadableMetadata(f"the metadata log at offset {header.base_offset}: {error}") from None


def _misplaced(before: LogBatch | None, batch: LogBatch, expected: int) -> str:
    """Why a batch cannot be at this place; empty if it can."""
    if batch.base_offset != expected:
        return f"a batch has offset {batch.base_offset} instead of {expected}"
    if before is None:
        return "" if batch.epoch >= 0 else f"a batch of epoch {batch.epoch}"
    begins = any(isinstance(record, m.LeaderChange) for record in batch.control)
    if batch.epoch < before.epoch or (batch.epoch > before.epoch and not begins):
        return f"a batch of epoch {batch.epoch} follows one of epoch {before.epoch}"
    return ""


def whole_batches(data: bytes, position: int) -> Iterator[LogBatch]:
    """Every valid batch from this position on, ignoring the bytes between them."""
    view = memoryview(data)
    magic_at = position + MAGIC_POSITION
    while (magic_at := data.find(MAGIC_BYTE, magic_at)) >= 0:
        start = magic_at - MAGIC_POSITION
        try:
            batch, _ = _batch_at(view, start)
        except UnreadableMetadata:
            batch = None
        if batch is None:
            magic_at += 1
        else:
            yield batch
            magic_at = start + len(batch.data) + MAGIC_POSITION

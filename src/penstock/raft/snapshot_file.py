"""Snapshot files, in KRaft's layout: `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`.

    control batch   SnapshotHeader, KRaftVersion, Voters
    batches         the state machine's values
    control batch   SnapshotFooter

Offsets count from 0 within the file. A file without its footer was not written completely.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from penstock.raft.control import build_control_batch, control_records
from penstock.raft.messages import KRaftVersion, SnapshotFooter, SnapshotHeader, Voters
from penstock.raft.types import KRAFT_VERSION, OffsetAndEpoch, VoterSet
from penstock.wire.compression import Buffer
from penstock.wire.errors import WireError
from penstock.wire.records import Record, build_batch, is_control, iter_batches, iter_records

SUFFIX = ".checkpoint"
BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)

BATCH_RECORDS_MAX = 1000
BATCH_BYTES_MAX = 1 << 18

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


class SnapshotError(Exception):
    """A snapshot file that is truncated, damaged, or not a snapshot."""


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot's contents. `values` are decoded, and their checksums verified, during iteration."""

    last_contained_log_timestamp_ms: int
    voter_set: VoterSet
    values: Iterator[bytes]


def snapshot_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    match = _NAME.fullmatch(name)
    return OffsetAndEpoch(int(match[1]), int(match[2])) if match else None


def snapshot_batches(
    snapshot: OffsetAndEpoch,
    voter_set: VoterSet,
    values: Iterable[bytes],
    *,
    timestamp_ms: int,
    last_contained_log_timestamp_ms: int = 0,
) -> Iterator[bytes]:
    """The file's batches, one at a time, so that writing a large snapshot can be spread out."""
    header = (SnapshotHeader(last_contained_log_timestamp_ms), KRaftVersion(KRAFT_VERSION), Voters(voter_set))
    yield build_control_batch(header, 0, snapshot.epoch, timestamp_ms)
    offset = len(header)
    for chunk in _chunks(values):
        records = [Record(timestamp=timestamp_ms, value=value) for value in chunk]
        yield build_batch(records, base_offset=offset, leader_epoch=snapshot.epoch)
        offset += len(chunk)
    yield build_control_batch((SnapshotFooter(),), offset, snapshot.epoch, timestamp_ms)


def read_snapshot(data: Buffer) -> Snapshot:
    """Opens a complete snapshot. Raises SnapshotError unless it has its header and footer."""
    try:
        batches = list(iter_batches(data))
        if len(batches) < 2 or not is_control(batches[0][0].attributes) or not is_control(batches[-1][0].attributes):
            raise SnapshotError("the snapshot is incomplete: it must begin and end with a control batch")
        first = list(control_records(batches[0][1]))
        last = list(control_records(batches[-1][1]))
    except WireError as error:
        raise SnapshotError(f"the snapshot is damaged: {error}") from None
    header = next((record for record in first if isinstance(record, SnapshotHeader)), None)
    version = next((record for record in first if isinstance(record, KRaftVersion)), None)
    voters = next((record for record in first if isinstance(record, Voters)), None)
    if header is None or last != [SnapshotFooter()]:
        raise SnapshotError("the snapshot lacks its header or footer")
    if version is not None and version.level != KRAFT_VERSION:
        raise SnapshotError(f"the snapshot has kraft.version {version.level}: this release knows {KRAFT_VERSION}")
    return Snapshot(
        header.last_contained_log_timestamp_ms,
        voters.voter_set if voters else VoterSet(),
        _values(batch for _, batch in batches[1:-1]),
    )


def _values(batches: Iterable[memoryview]) -> Iterator[bytes]:
    try:
        for batch in batches:
            for record in iter_records(batch):
                if record.value is None:
                    raise SnapshotError("a record in the snapshot has no value")
                yield record.value
    except WireError as error:
        raise SnapshotError(f"the snapshot is damaged: {error}") from None


def _chunks(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for value in values:
        if len(chunk) == BATCH_RECORDS_MAX or (chunk and size + len(value) > BATCH_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(value)
        size += len(value)
    if chunk:
        yield chunk

"""The content of a log's files, one batch, index entry or producer at a time: `penstock log dump`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum

from penstock.log import names
from penstock.log.aborted_entries import ABORTED_ENTRY, ABORTED_ENTRY_BYTES
from penstock.log.producers import ProducerState, decode_snapshot
from penstock.log.tools.walking import Found, Problem, offset_entries, segment_files, time_entries, walk
from penstock.runtime import Disk
from penstock.wire.errors import WireError
from penstock.wire.records import ControlRecordType, batch_crc, iter_records, parse_control_key

DECOMPRESSED_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class RecordDump:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control_type: str | None = None


@dataclass(frozen=True, slots=True)
class BatchDump:
    """A batch of a log: its header fields, and its records if requested."""

    file: str
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    count: int
    leader_epoch: int
    codec: str
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    crc: int
    is_valid: bool
    records: tuple[RecordDump, ...] | None = None
    delete_horizon_ms: int | None = None
    """When its tombstones may be removed; None if compaction has not processed it or found none."""


@dataclass(frozen=True, slots=True)
class IndexEntryDump:
    file: str
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexEntryDump:
    file: str
    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedDump:
    """An entry of `.txnindex`: an aborted transaction."""

    file: str
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int
    version: int


@dataclass(frozen=True, slots=True)
class ProducerDump:
    file: str
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_append_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def dump(
    disk: Disk, directory: str, *, records: bool = False, from_offset: int = 0, upto_offset: int | None = None
) -> Iterator[BatchDump | Problem]:
    """The batches of a log, in order. Unreadable data yields a `Problem`; the dump continues with the next segment."""
    segments = segment_files(disk, directory)
    for (base, path), following in zip(segments, [*(base for base, _ in segments[1:]), None], strict=True):
        if (following is not None and following <= from_offset) or (upto_offset is not None and base >= upto_offset):
            continue
        for found in walk(disk, path):
            if isinstance(found, Problem):
                yield found
            elif found.header.last_offset >= from_offset:
                if upto_offset is not None and found.header.base_offset >= upto_offset:
                    return
                yield _dump_batch(path, found, with_records=records)


def dump_index(disk: Disk, directory: str, base_offset: int) -> Iterator[IndexEntryDump]:
    path = names.path_of(directory, base_offset, names.OFFSET_INDEX_SUFFIX)
    for offset, position in offset_entries(disk, path, base_offset):
        yield IndexEntryDump(path, offset, position)


def dump_time_index(disk: Disk, directory: str, base_offset: int) -> Iterator[TimeIndexEntryDump]:
    path = names.path_of(directory, base_offset, names.TIME_INDEX_SUFFIX)
    for timestamp, offset in time_entries(disk, path, base_offset):
        yield TimeIndexEntryDump(path, timestamp, offset)


def dump_aborted(disk: Disk, directory: str, base_offset: int) -> Iterator[AbortedDump]:
    """The entries as they are in the file, plausible or not."""
    path = names.path_of(directory, base_offset, names.ABORTED_INDEX_SUFFIX)
    data = disk.read_bytes(path)
    whole = data[: len(data) - len(data) % ABORTED_ENTRY_BYTES]
    for version, producer_id, first_offset, last_offset, stable_offset in ABORTED_ENTRY.iter_unpack(whole):
        yield AbortedDump(path, producer_id, first_offset, last_offset, stable_offset, version)


def dump_snapshot(disk: Disk, directory: str, offset: int) -> Iterator[ProducerDump]:
    """Raises SnapshotDamaged."""
    path = names.path_of(directory, offset, names.SNAPSHOT_SUFFIX)
    state: ProducerState = decode_snapshot(disk.read_bytes(path))
    for producer_id, entry in state.entries():
        yield ProducerDump(
            path,
            producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.last_offset_delta,
            entry.last_append_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )


def as_json(value: object) -> object:
    """Convert a dump to values that `json` accepts. Bytes become text if they are UTF-8, otherwise `{"base64": …}`."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode("ascii")}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return value


def _dump_batch(path: str, found: Found, *, with_records: bool) -> BatchDump:
    header = found.header
    is_valid = batch_crc(found.view) == header.crc
    return BatchDump(
        file=path,
        position=found.position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        count=header.records_count,
        leader_epoch=header.partition_leader_epoch,
        codec=header.codec.name.lower() if header.attributes & 7 <= 4 else f"unknown ({header.attributes & 7})",
        timestamp_type="LogAppendTime" if header.timestamp_type else "CreateTime",
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
        crc=header.crc,
        is_valid=is_valid,
        records=tuple(_dump_records(found)) if with_records and is_valid else None,
    )


def _dump_records(found: Found) -> Iterator[RecordDump]:
    try:
        for record in iter_records(found.view, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX, verify_crc=False):
            control = _control_type(record.key) if found.header.is_control else None
            yield RecordDump(record.offset, record.timestamp, record.key, record.value, tuple(record.headers), control)
    except WireError as error:
        yield RecordDump(-1, -1, None, str(error).encode(), (), "undecodable")


def _control_type(key: bytes | None) -> str:
    try:
        number = parse_control_key(key)
        return ControlRecordType(number).name
    except WireError:
        return "unknown"
    except ValueError:
        return f"unknown ({number})"

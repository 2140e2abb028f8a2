"""Looking into a log's files while no broker uses them: `penstock log dump` and `penstock log verify`.

Everything is a generator and reads a megabyte at a time, so that the size of a log does not matter. Only those methods
of the disk are used that wait for the device: this is not for the loop.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum

from penstock.log import names
from penstock.log.compaction_swap import end_of_swap, swapped_bases
from penstock.log.epochs import EpochsDamaged, decode_epochs
from penstock.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY, TIME_ENTRY_BYTES, decode_offset_entries
from penstock.log.producers import ProducerState, SnapshotDamaged, decode_snapshot
from penstock.runtime import Disk, File
from penstock.wire.errors import WireError
from penstock.wire.records import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    ControlRecordType,
    batch_crc,
    iter_records,
    parse_control_key,
    read_header,
)

CHUNK_BYTES = 1 << 20
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
    """A batch of a log: the fields of its header, and its records if they were asked for."""

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
    """When tombstones in it may go; None if compaction has not been there, or found none."""


class Severity(Enum):
    NOTE = "note"
    """No record is lost: the broker repairs it when it finds it."""
    ERROR = "error"
    """Records are damaged or missing."""


@dataclass(frozen=True, slots=True)
class Problem:
    severity: Severity
    file: str
    position: int
    offset: int
    """The nearest that is known; -1 if none is."""
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The last thing that `verify` yields."""

    directory: str
    segments: int
    batches: int
    records: int
    size_bytes: int
    start_offset: int
    end_offset: int
    notes: int
    errors: int
    gaps: int = 0
    """Places where offsets are missing because compaction took them."""

    @property
    def is_sound(self) -> bool:
        return not self.errors


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
    """The batches of a log, in order. Where a file makes no sense comes a `Problem`, then the next segment."""
    segments = _segments(disk, directory)
    for (base, path), following in zip(segments, [*(base for base, _ in segments[1:]), None], strict=True):
        if (following is not None and following <= from_offset) or (upto_offset is not None and base >= upto_offset):
            continue
        for found in _walk(disk, path):
            if isinstance(found, Problem):
                yield found
            elif found.header.last_offset >= from_offset:
                if upto_offset is not None and found.header.base_offset >= upto_offset:
                    return
                yield _dump_batch(path, found, with_records=records)


def dump_index(disk: Disk, directory: str, base_offset: int) -> Iterator[IndexEntryDump]:
    path = names.path_of(directory, base_offset, names.OFFSET_INDEX_SUFFIX)
    for offset, position in _offset_entries(disk, path, base_offset):
        yield IndexEntryDump(path, offset, position)


def dump_time_index(disk: Disk, directory: str, base_offset: int) -> Iterator[TimeIndexEntryDump]:
    path = names.path_of(directory, base_offset, names.TIME_INDEX_SUFFIX)
    for timestamp, offset in _time_entries(disk, path, base_offset):
        yield TimeIndexEntryDump(path, timestamp, offset)


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


def segment_bases(disk: Disk, directory: str) -> list[int]:
    listed = (names.offset_in(name, names.LOG_SUFFIX) for name in disk.list(directory))
    return sorted(base for base in listed if base is not None)


def _segments(disk: Disk, directory: str) -> list[tuple[int, str]]:
    """Base offset and file of each segment, as a start would find them: a compaction may have been cut short."""
    segments = {base: names.path_of(directory, base, names.LOG_SUFFIX) for base in segment_bases(disk, directory)}
    for base in swapped_bases(disk.list(directory)):
        end = end_of_swap(disk, directory, base)
        segments = {known: path for known, path in segments.items() if not base <= known < end}
        segments[base] = names.path_of(directory, base, names.LOG_SUFFIX) + names.SWAP_SUFFIX
    return sorted(segments.items())


def verify(disk: Disk, directory: str, *, records: bool = False) -> Iterator[Problem | Verdict]:
    """Check a log: checksums, that offsets and epochs follow one another, that indexes, epochs and snapshots agree.

    With `records` every batch is opened too. The last thing is a `Verdict`.
    """
    yield from _Verifier(disk, directory, records).run()


def as_json(value: object) -> object:
    """A dump as what `json` takes. Bytes become text where they are, and `{"base64": …}` where not."""
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


@dataclass(frozen=True, slots=True)
class _Found:
    position: int
    header: BatchHeader
    view: memoryview


def _walk(disk: Disk, path: str) -> Iterator[_Found | Problem]:
    """The batches of a file; a `Problem` where it goes on and there is none, which ends it."""
    file = disk.open(path)
    size = disk.size(path)
    position = 0
    offset = -1
    while position < size:
        view = memoryview(file.read(min(CHUNK_BYTES, size - position), position))
        at = 0
        while len(view) - at >= HEADER_SIZE:
            header = read_header(view, at)
            if header.magic != MAGIC or header.size_bytes < HEADER_SIZE or header.last_offset_delta < 0:
                yield _nothing_there(path, position + at, offset, size)
                return
            if header.size_bytes > len(view) - at:
                break
            yield _Found(position + at, header, view[at : at + header.size_bytes])
            offset = header.last_offset
            at += header.size_bytes
        if not at:
            whole = _read_large(file, position, size)
            if whole is None:
                yield _nothing_there(path, position, offset, size)
                return
            yield whole
            offset = whole.header.last_offset
            at = whole.header.size_bytes
        position += at


def _read_large(file: File, position: int, size: int) -> _Found | None:
    """A batch that is larger than a chunk, if it is all there."""
    if size - position < HEADER_SIZE:
        return None
    header = read_header(file.read(HEADER_SIZE, position))
    if position + header.size_bytes > size:
        return None
    return _Found(position, header, memoryview(file.read(header.size_bytes, position)))


def _nothing_there(path: str, position: int, offset: int, size: int) -> Problem:
    return Problem(
        Severity.ERROR, path, position, offset, f"no batch begins here; {size - position} bytes cannot be understood"
    )


def _dump_batch(path: str, found: _Found, *, with_records: bool) -> BatchDump:
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


def _dump_records(found: _Found) -> Iterator[RecordDump]:
    try:
        for record in iter_records(found.view, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX, verify_crc=False):
            control = _control_type(record.key) if found.header.is_control else None
            yield RecordDump(
                record.offset, record.timestamp, record.key, record.value, tuple(record.headers), control
            )
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


def _offset_entries(disk: Disk, path: str, base_offset: int) -> Iterator[tuple[int, int]]:
    offsets, positions = decode_offset_entries(disk.read_bytes(path))
    for offset, position in zip(offsets, positions, strict=True):
        yield base_offset + offset, position


def _time_entries(disk: Disk, path: str, base_offset: int) -> Iterator[tuple[int, int]]:
    data = disk.read_bytes(path)
    for timestamp, relative in TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % TIME_ENTRY_BYTES]):
        yield timestamp, base_offset + relative


class _Verifier:
    def __init__(self, disk: Disk, directory: str, with_records: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._with_records = with_records
        self._expected = -1
        self._epoch = -1
        self._batches = 0
        self._records = 0
        self._size_bytes = 0
        self._gaps = 0
        self._epoch_starts: list[tuple[int, int, int]] = []
        """Of each epoch that has records: where the batch before its first ends, and where that begins."""
        self._counts = {Severity.NOTE: 0, Severity.ERROR: 0}

    def run(self) -> Iterator[Problem | Verdict]:
        segments = _segments(self._disk, self._directory)
        bases = [base for base, _ in segments]
        yield from self._counted(self._unfinished())
        for base, path in segments:
            yield from self._counted(self._segment(base, path, is_last=base == bases[-1]))
        yield from self._counted(self._epochs())
        yield from self._counted(self._snapshots())
        yield Verdict(
            directory=self._directory,
            segments=len(bases),
            batches=self._batches,
            records=self._records,
            size_bytes=self._size_bytes,
            start_offset=bases[0] if bases else 0,
            end_offset=max(self._expected, bases[-1]) if bases else 0,
            gaps=self._gaps,
            notes=self._counts[Severity.NOTE],
            errors=self._counts[Severity.ERROR],
        )

    def _counted(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        for problem in problems:
            self._counts[problem.severity] += 1
            yield problem

    def _unfinished(self) -> Iterator[Problem]:
        for name in self._disk.list(self._directory):
            if name.endswith((names.CLEANED_SUFFIX, names.SWAP_SUFFIX)):
                text = "a compaction was cut short; the next start completes it, or begins it again"
                yield Problem(Severity.NOTE, f"{self._directory}/{name}", 0, -1, text)

    def _segment(self, base: int, path: str, *, is_last: bool) -> Iterator[Problem]:
        if self._expected >= 0 and base != self._expected:
            text = f"the segment begins at {base}, but the one before it ends at {self._expected}"
            yield Problem(Severity.ERROR, path, 0, base, text)
        self._expected = base
        swap = names.SWAP_SUFFIX if path.endswith(names.SWAP_SUFFIX) else ""
        indexes = _IndexCheck(self._disk, self._directory, base, swap)
        yield from indexes.begin()
        for found in _walk(self._disk, path):
            if isinstance(found, Problem):
                # What a power loss tears is the end of the last file; a start cuts it off.
                torn = is_last and self._is_unclean()
                yield Problem(
                    Severity.NOTE if torn else found.severity, found.file, found.position, self._expected, found.text
                )
                break
            yield from self._batch(path, found)
            yield from indexes.batch(found)
        yield from indexes.end()
        self._size_bytes += self._disk.size(path)

    def _batch(self, path: str, found: _Found) -> Iterator[Problem]:
        header = found.header
        offset = header.base_offset
        if offset < self._expected:
            text = f"offset {self._expected} or later was to be expected here"
            yield Problem(Severity.ERROR, path, found.position, offset, text)
        elif offset > self._expected:
            # Compaction took what was between; it leaves no gap between two segments.
            self._gaps += 1
        if header.partition_leader_epoch < self._epoch:
            text = f"epoch {header.partition_leader_epoch} after epoch {self._epoch}"
            yield Problem(Severity.ERROR, path, found.position, offset, text)
        elif header.partition_leader_epoch > self._epoch:
            self._epoch = header.partition_leader_epoch
            self._epoch_starts.append((self._epoch, self._expected, offset))
        if batch_crc(found.view) != header.crc:
            yield Problem(Severity.ERROR, path, found.position, offset, "the batch does not match its checksum")
        elif self._with_records:
            try:
                for _ in iter_records(found.view, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX, verify_crc=False):
                    pass
            except WireError as error:
                yield Problem(Severity.ERROR, path, found.position, offset, str(error))
        self._expected = header.next_offset
        self._batches += 1
        self._records += header.records_count

    def _epochs(self) -> Iterator[Problem]:
        path = f"{self._directory}/{names.EPOCHS_NAME}"
        try:
            entries = decode_epochs(self._disk.read_bytes(path))
        except FileNotFoundError:
            return
        except EpochsDamaged as error:
            yield Problem(Severity.NOTE, path, 0, -1, str(error))
            return
        found = {epoch: (earliest, first) for epoch, earliest, first in self._epoch_starts}
        for epoch, start in entries[1:]:
            # The first records of an epoch may have been compacted away: then it began somewhere in the gap.
            if epoch in found and not found[epoch][0] <= start <= found[epoch][1]:
                text = f"epoch {epoch} is said to begin at {start}, but begins at {found[epoch][1]}"
                yield Problem(Severity.ERROR, path, 0, start, text)

    def _snapshots(self) -> Iterator[Problem]:
        for name in self._disk.list(self._directory):
            offset = names.offset_in(name, names.SNAPSHOT_SUFFIX)
            if offset is not None:
                path = f"{self._directory}/{name}"
                try:
                    decode_snapshot(self._disk.read_bytes(path))
                except SnapshotDamaged as error:
                    yield Problem(Severity.NOTE, path, 0, offset, f"{error}; an older snapshot is used instead")

    def _is_unclean(self) -> bool:
        parent = names.parent_of(self._directory)
        return not self._disk.exists(f"{parent}/{names.CLEAN_SHUTDOWN_NAME}".lstrip("/"))


class _IndexCheck:
    """Compares the indexes of a segment with its batches as they go by."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, swap: str) -> None:
        self._disk = disk
        self._base_offset = base_offset
        self._offset_path = names.path_of(directory, base_offset, names.OFFSET_INDEX_SUFFIX) + swap
        self._time_path = names.path_of(directory, base_offset, names.TIME_INDEX_SUFFIX) + swap
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []
        self._max_timestamp = -1

    def begin(self) -> Iterator[Problem]:
        for path, entry_bytes in ((self._offset_path, OFFSET_ENTRY_BYTES), (self._time_path, TIME_ENTRY_BYTES)):
            if self._disk.exists(path) and self._disk.size(path) % entry_bytes:
                yield Problem(Severity.NOTE, path, 0, -1, f"the size is not a multiple of {entry_bytes} bytes")
        if self._disk.exists(self._offset_path):
            self._offsets = list(_offset_entries(self._disk, self._offset_path, self._base_offset))[::-1]
        if self._disk.exists(self._time_path):
            self._times = list(_time_entries(self._disk, self._time_path, self._base_offset))[::-1]

    def batch(self, found: _Found) -> Iterator[Problem]:
        header = found.header
        if header.records_count:
            self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        while self._offsets and self._offsets[-1][1] <= found.position:
            offset, position = self._offsets.pop()
            if position != found.position or offset != header.last_offset:
                text = f"there is no batch at position {position} that ends with offset {offset}"
                yield Problem(Severity.NOTE, self._offset_path, position, offset, text)
        while self._times and self._times[-1][1] <= header.last_offset:
            timestamp, offset = self._times.pop()
            if timestamp != self._max_timestamp or offset != header.last_offset:
                text = f"{timestamp} is not the largest timestamp up to offset {offset}"
                yield Problem(Severity.NOTE, self._time_path, 0, offset, text)

    def end(self) -> Iterator[Problem]:
        for offset, position in self._offsets:
            text = f"the entry for offset {offset} lies beyond the end of the segment"
            yield Problem(Severity.NOTE, self._offset_path, position, offset, text)
        for timestamp, offset in self._times:
            text = f"the entry for time {timestamp} lies beyond the end of the segment"
            yield Problem(Severity.NOTE, self._time_path, 0, offset, text)

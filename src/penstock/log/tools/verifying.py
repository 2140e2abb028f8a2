"""Checks that a log's files are valid and agree with each other: `penstock log verify`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.log import names
from penstock.log.epochs import EpochsDamaged, decode_epochs
from penstock.log.index_entries import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from penstock.log.producers import SnapshotDamaged, decode_snapshot
from penstock.log.tools.dumping import DECOMPRESSED_BYTES_MAX
from penstock.log.tools.walking import Found, Problem, Severity, offset_entries, segment_files, time_entries, walk
from penstock.runtime import Disk
from penstock.wire.errors import WireError
from penstock.wire.records import batch_crc, iter_records


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result: the last item that `verify` yields."""

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
    """Number of gaps in the offsets within segments, left by compaction."""

    @property
    def is_sound(self) -> bool:
        return not self.errors


def verify(disk: Disk, directory: str, *, records: bool = False) -> Iterator[Problem | Verdict]:
    """Check a log: checksums, ascending offsets and epochs, and that indexes, epochs and snapshots agree with them.

    With `records` every batch is also decompressed and its records checked. The last item is a `Verdict`.
    """
    yield from _Verifier(disk, directory, records).run()


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
        """For each epoch with records: the end of the batch before its first one, and the start of its first one."""
        self._counts = {Severity.NOTE: 0, Severity.ERROR: 0}

    def run(self) -> Iterator[Problem | Verdict]:
        segments = segment_files(self._disk, self._directory)
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
                text = "a compaction was interrupted; the next start completes or repeats it"
                yield Problem(Severity.NOTE, f"{self._directory}/{name}", 0, -1, text)

    def _segment(self, base: int, path: str, *, is_last: bool) -> Iterator[Problem]:
        if self._expected >= 0 and base != self._expected:
            text = f"the segment begins at {base}, but the one before it ends at {self._expected}"
            yield Problem(Severity.ERROR, path, 0, base, text)
        self._expected = base
        swap = names.SWAP_SUFFIX if path.endswith(names.SWAP_SUFFIX) else ""
        indexes = _IndexCheck(self._disk, self._directory, base, swap)
        yield from indexes.begin()
        for found in walk(self._disk, path):
            if isinstance(found, Problem):
                # A power loss tears the end of the last file; a start truncates it.
                torn = is_last and self._is_unclean()
                yield Problem(
                    Severity.NOTE if torn else found.severity, found.file, found.position, self._expected, found.text
                )
                break
            yield from self._batch(path, found)
            yield from indexes.batch(found)
        yield from indexes.end()
        self._size_bytes += self._disk.size(path)

    def _batch(self, path: str, found: Found) -> Iterator[Problem]:
        header = found.header
        offset = header.base_offset
        if offset < self._expected:
            text = f"expected offset {self._expected} or later here"
            yield Problem(Severity.ERROR, path, found.position, offset, text)
        elif offset > self._expected:
            # Compaction removed the records in between; it leaves no gap between two segments.
            self._gaps += 1
        if header.partition_leader_epoch < self._epoch:
            text = f"epoch {header.partition_leader_epoch} follows epoch {self._epoch}"
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
            # Compaction may have removed the first records of an epoch: then it began somewhere in the gap.
            if epoch in found and not found[epoch][0] <= start <= found[epoch][1]:
                text = f"the checkpoint starts epoch {epoch} at {start}, but its records start at {found[epoch][1]}"
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
    """Compares the indexes of a segment with its batches as they are visited."""

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
            self._offsets = list(offset_entries(self._disk, self._offset_path, self._base_offset))[::-1]
        if self._disk.exists(self._time_path):
            self._times = list(time_entries(self._disk, self._time_path, self._base_offset))[::-1]

    def batch(self, found: Found) -> Iterator[Problem]:
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

"""Offline access to the files of a log: its segments, their batches and their index entries.

Uses only disk methods that wait for the device, so it must not run on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from penstock.log import names
from penstock.log.compaction_swap import end_of_swap, swapped_bases
from penstock.log.index_entries import TIME_ENTRY, TIME_ENTRY_BYTES, decode_offset_entries
from penstock.runtime import Disk, File
from penstock.wire.records import HEADER_SIZE, MAGIC, BatchHeader, read_header

CHUNK_BYTES = 1 << 20


class Severity(Enum):
    NOTE = "note"
    """No record is lost: the broker repairs this by itself."""
    ERROR = "error"
    """Records are damaged or missing."""


@dataclass(frozen=True, slots=True)
class Problem:
    severity: Severity
    file: str
    position: int
    offset: int
    """The nearest known offset; -1 if there is none."""
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    position: int
    header: BatchHeader
    view: memoryview


def segment_bases(disk: Disk, directory: str) -> list[int]:
    listed = (names.offset_in(name, names.LOG_SUFFIX) for name in disk.list(directory))
    return sorted(base for base in listed if base is not None)


def segment_files(disk: Disk, directory: str) -> list[tuple[int, str]]:
    """The base offset and file of each segment as a start would use them, even after an interrupted compaction."""
    segments = {base: names.path_of(directory, base, names.LOG_SUFFIX) for base in segment_bases(disk, directory)}
    for base in swapped_bases(disk.list(directory)):
        end = end_of_swap(disk, directory, base)
        segments = {known: path for known, path in segments.items() if not base <= known < end}
        segments[base] = names.path_of(directory, base, names.LOG_SUFFIX) + names.SWAP_SUFFIX
    return sorted(segments.items())


def walk(disk: Disk, path: str) -> Iterator[Found | Problem]:
    """The batches of a file. At the first invalid bytes it yields a `Problem` and ends."""
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
            yield Found(position + at, header, view[at : at + header.size_bytes])
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


def _read_large(file: File, position: int, size: int) -> Found | None:
    """A batch larger than a chunk; None if it is incomplete."""
    if size - position < HEADER_SIZE:
        return None
    header = read_header(file.read(HEADER_SIZE, position))
    if position + header.size_bytes > size:
        return None
    return Found(position, header, memoryview(file.read(header.size_bytes, position)))


def _nothing_there(path: str, position: int, offset: int, size: int) -> Problem:
    return Problem(
        Severity.ERROR, path, position, offset, f"no valid batch begins here; {size - position} bytes cannot be read"
    )


def offset_entries(disk: Disk, path: str, base_offset: int) -> Iterator[tuple[int, int]]:
    offsets, positions = decode_offset_entries(disk.read_bytes(path))
    for offset, position in zip(offsets, positions, strict=True):
        yield base_offset + offset, position


def time_entries(disk: Disk, path: str, base_offset: int) -> Iterator[tuple[int, int]]:
    data = disk.read_bytes(path)
    for timestamp, relative in TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % TIME_ENTRY_BYTES]):
        yield timestamp, base_offset + relative

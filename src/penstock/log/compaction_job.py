"""The work of compaction: read, decide, write. It runs in a subprocess (`Runtime.job`), some megabytes per call.

Two passes over files:

1. *Collect*: from the first dirty offset on, the last offset of each key goes into a map, as far as the map has room.
   What lies beyond the last batch that fitted is left for the next compaction of the log.
2. *Copy*: all segments from the start of the log to there are read, filtered by the map, and written to files that end
   in `.cleaned`. Neighbours that have become small are merged, up to the size that a segment may have.

The broker takes over each finished file (`penstock.log.compaction_swap`) while the next one is in the making. Nothing
here is durable and nothing is lost if it ends at any point: the files it reads are never changed.

One call does as much as it is told and returns; what is under way stays in the memory of the worker, under a token.
The worker may die: then the token is unknown (`JobLost`), and the broker begins again.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from crc32c import crc32c

from penstock.log import names
from penstock.log.compaction_filter import OffsetMap, add_keys, emptied, filter_batch, filter_marker, pick
from penstock.log.compaction_transactions import AbortedTransaction, Transactions
from penstock.log.index_entries import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, encode_offset_entries
from penstock.log.scan import IndexBuilder
from penstock.log.segment import POSITION_MAX, RELATIVE_OFFSET_MAX
from penstock.runtime import JobDisk
from penstock.wire.errors import WireError
from penstock.wire.records import (
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)

CHUNK_BYTES = 1 << 20
"""How much is read, and how much gathers before it is written."""

MAP_ENTRY_BYTES = 160
"""What a key costs in the map: the key, the offset, and its place in a table that has just grown."""

UNDER_WAY_MAX = 8
"""Compactions that a worker remembers. A broker has one at a time, and a worker one broker; simulated brokers share."""

_unpack_header = HEADER.unpack_from


class JobLost(Exception):
    """The worker that did this compaction is gone, and what it knew with it."""


class CorruptBatch(Exception):
    """A batch is not what it should be, so its log cannot be compacted."""


class LastBatch(NamedTuple):
    """The end of what a live producer has written: its header must stay, or a retry would not be recognised."""

    last_offset: int
    """Of its last batch with data; -1 if it has written only a marker."""
    epoch: int


class Source(NamedTuple):
    """A segment to be read."""

    base_offset: int
    end_offset: int
    size_bytes: int
    dirty_position: int
    """From where on its keys are collected."""


class Task(NamedTuple):
    """All that one compaction of a log needs to know. Goes to the subprocess, so it is plain data."""

    directory: str
    sources: tuple[Source, ...]
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    keys_max: int
    producers: Mapping[int, LastBatch]
    aborted: tuple[AbortedTransaction, ...] = ()


class CleanedSegment(NamedTuple):
    """A finished `.cleaned` file, and what it is to replace."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    replaces: tuple[int, ...]
    """The base offsets of the segments it was made from."""
    is_same: bool
    """Nothing was found to be removed, and nothing to be merged."""


class Progress(NamedTuple):
    """What one step has done."""

    read_bytes: int = 0
    written_bytes: int = 0
    keys: int = 0
    """In the map, now."""
    clean_end: int = -1
    """Up to where the log will be clean; known when the copying begins."""
    cleaned: CleanedSegment | None = None
    records_read: int = 0
    records_kept: int = 0
    is_done: bool = False


_under_way: OrderedDict[bytes, Generator[Progress, None, None]] = OrderedDict()


def begin(token: bytes, disk: JobDisk, task: Task) -> None:
    """Prepare a compaction, to be done with `advance`."""
    _under_way[token] = clean(disk, task)
    while len(_under_way) > UNDER_WAY_MAX:
        _under_way.popitem(last=False)


def advance(token: bytes, bytes_max: int) -> Progress:
    """Go on until so many bytes are read, or a segment is finished, or all is done.

    Raises JobLost, CorruptBatch, OSError.
    """
    steps = _under_way.get(token)
    if steps is None:
        raise JobLost("the worker was started anew")
    read_bytes = written_bytes = records_read = records_kept = 0
    try:
        for step in steps:
            read_bytes += step.read_bytes
            written_bytes += step.written_bytes
            records_read += step.records_read
            records_kept += step.records_kept
            if step.cleaned is not None or step.is_done or read_bytes >= bytes_max:
                if step.is_done:
                    del _under_way[token]
                return step._replace(
                    read_bytes=read_bytes,
                    written_bytes=written_bytes,
                    records_read=records_read,
                    records_kept=records_kept,
                )
    except BaseException:
        _under_way.pop(token, None)
        raise
    raise AssertionError("the last step says that it is the last")


def forget(token: bytes) -> None:
    """Nobody will ask for the rest."""
    _under_way.pop(token, None)


def clean(disk: JobDisk, task: Task) -> Generator[Progress, None, None]:
    """A whole compaction, in steps of about CHUNK_BYTES."""
    offsets: OffsetMap = {}
    latest = yield from _collect(disk, task, offsets)
    clean_end = latest + 1
    sources = [source for source in task.sources if source.base_offset < clean_end]
    transactions = Transactions(task.aborted)
    survivors = array("q", sorted(offsets.values()))
    for group in group_sources(sources, task):
        copying = _Copy(disk, task, group, offsets, survivors, latest, transactions)
        for step in copying.run():
            yield step._replace(keys=len(offsets), clean_end=clean_end)
    yield Progress(keys=len(offsets), clean_end=clean_end, is_done=True)


def group_sources(sources: list[Source], task: Task) -> Iterator[list[Source]]:
    """Neighbours that fit into one segment, by their size, by that of their indexes and by their offsets."""
    # An entry for each interval at the most, of the larger of the two kinds, and one at the end.
    entries_max = task.segment_index_bytes // max(OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES) - 1
    bytes_max = min(task.segment_bytes, max(1, entries_max) * max(1, task.index_interval_bytes))
    group: list[Source] = []
    size_bytes = 0
    for source in sources:
        if group and (
            size_bytes + source.size_bytes > bytes_max
            or source.end_offset - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX
        ):
            yield group
            group, size_bytes = [], 0
        group.append(source)
        size_bytes += source.size_bytes
    if group:
        yield group


def _collect(disk: JobDisk, task: Task, offsets: OffsetMap) -> Generator[Progress, None, int]:
    """Fill the map. Returns the last offset that it has seen."""
    transactions = Transactions(task.aborted)
    first_dirty, keys_max = task.first_dirty_offset, task.keys_max
    latest = first_dirty - 1
    for source in task.sources:
        if source.end_offset <= first_dirty:
            continue
        for read_bytes, batches in _batches(disk, task.directory, source, source.dirty_position):
            for header, batch in batches:
                attributes = header.attributes
                last_offset = header.base_offset + header.last_offset_delta
                if attributes & CONTROL_FLAG:
                    transactions.is_unneeded(header, batch)
                elif last_offset >= first_dirty and not (
                    attributes & TRANSACTIONAL_FLAG and transactions.is_aborted(header)
                ):
                    # The first batch is taken in any case: a compaction that does nothing would never end.
                    if len(offsets) + header.records_count > keys_max and offsets:
                        return latest
                    try:
                        add_keys(header, batch, offsets, first_dirty)
                    except WireError as error:
                        raise _unreadable(task.directory, source, header, error) from None
                if last_offset > latest:
                    latest = last_offset
            yield Progress(read_bytes=read_bytes, keys=len(offsets))
        latest = max(latest, source.end_offset - 1)
    return latest


class _Copy:
    """Makes one segment from a group of them."""

    def __init__(
        self,
        disk: JobDisk,
        task: Task,
        group: list[Source],
        offsets: OffsetMap,
        survivors: array[int],
        latest: int,
        transactions: Transactions,
    ) -> None:
        self._disk = disk
        self._task = task
        self._group = group
        self._offsets = offsets
        self._survivors = survivors
        self._latest = latest
        self._transactions = transactions
        self._path = names.path_of(task.directory, group[0].base_offset, names.LOG_SUFFIX) + names.CLEANED_SUFFIX
        self._index = IndexBuilder(group[0].base_offset, task.index_interval_bytes)
        self._gathered = bytearray()
        self._written_bytes = 0
        self._is_same = len(group) == 1

    def run(self) -> Iterator[Progress]:
        group = self._group
        end_offset = group[-1].end_offset
        self._disk.create(self._path)
        for source in group:
            for read_bytes, batches in _batches(self._disk, self._task.directory, source, 0):
                seen = kept = 0
                survivors: list[memoryview | bytes] = []
                for header, batch in batches:
                    try:
                        left = self._filter(header, batch, end_offset)
                    except WireError as error:
                        raise _unreadable(self._task.directory, source, header, error) from None
                    self._is_same = self._is_same and left is batch
                    seen += header.records_count
                    if left is not None:
                        kept += header.records_count if left is batch else _unpack_header(left)[-1]
                        survivors.append(left)
                self._gather(b"".join(survivors))
                written = self._write() if len(self._gathered) >= CHUNK_BYTES else 0
                yield Progress(read_bytes, written, records_read=seen, records_kept=kept)
        written = self._write()
        self._finish()
        yield Progress(
            written_bytes=written,
            cleaned=CleanedSegment(
                base_offset=group[0].base_offset,
                end_offset=end_offset,
                size_bytes=self._written_bytes,
                max_timestamp=self._index.max_timestamp,
                max_timestamp_offset=self._index.max_timestamp_offset,
                replaces=tuple(source.base_offset for source in group),
                is_same=self._is_same,
            ),
        )

    def _filter(self, header: BatchHeader, batch: memoryview, end_offset: int) -> memoryview | bytes | None:
        task = self._task
        attributes = header.attributes
        # The last batch of a segment leads to the next one: there is never a gap between two files.
        keep_empty = header.base_offset + header.last_offset_delta + 1 == end_offset or (
            header.producer_id >= 0 and self._is_last_of_producer(header)
        )
        if attributes & CONTROL_FLAG:
            is_unneeded = self._transactions.is_unneeded(header, batch)
            return filter_marker(
                header,
                batch,
                now_ms=task.now_ms,
                delete_retention_ms=task.delete_retention_ms,
                is_last_of_all=is_unneeded,
                keep_empty=keep_empty,
            )
        if attributes & TRANSACTIONAL_FLAG and self._transactions.is_aborted(header):
            return emptied(header) if keep_empty else None
        if header.base_offset > self._latest:
            return batch
        if header.base_offset >= task.first_dirty_offset and header.records_count:
            return pick(
                header,
                batch,
                self._offsets,
                self._survivors,
                now_ms=task.now_ms,
                delete_retention_ms=task.delete_retention_ms,
                keep_empty=keep_empty,
            )
        return filter_batch(
            header,
            batch,
            self._offsets,
            now_ms=task.now_ms,
            delete_retention_ms=task.delete_retention_ms,
            keep_empty=keep_empty,
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._task.producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _gather(self, data: bytes) -> None:
        position = self._written_bytes + len(self._gathered)
        if position + len(data) > POSITION_MAX:
            raise CorruptBatch(f"{self._path} would grow beyond what an index can point into")
        view = memoryview(data)
        taken = 0
        # They were batches a moment ago, so the walk gets to their end.
        while taken < len(view):
            taken += self._index.visit(view[taken:], position + taken)
        self._gathered += data

    def _write(self) -> int:
        size = len(self._gathered)
        if size:
            self._disk.write(self._path, bytes(self._gathered), self._written_bytes)
            self._written_bytes += size
            self._gathered = bytearray()
        return size

    def _finish(self) -> None:
        index = self._index
        index.finish()
        base = names.path_of(self._task.directory, self._group[0].base_offset, "")
        for suffix, data in (
            (names.OFFSET_INDEX_SUFFIX, encode_offset_entries(index.offsets, index.positions)),
            (names.TIME_INDEX_SUFFIX, bytes(index.times)),
        ):
            path = base + suffix + names.CLEANED_SUFFIX
            self._disk.create(path)
            if data:
                self._disk.write(path, data, 0)
        # Retention goes by it where records have no timestamps.
        newest = names.path_of(self._task.directory, self._group[-1].base_offset, names.LOG_SUFFIX)
        self._disk.set_mtime_ms(self._path, self._disk.mtime_ms(newest))


Batches = list[tuple[BatchHeader, memoryview]]


def _batches(disk: JobDisk, directory: str, source: Source, position: int) -> Iterator[tuple[int, Batches]]:
    """The batches of a segment from a position on, a chunk at a time, with the bytes of each chunk."""
    path = names.path_of(directory, source.base_offset, names.LOG_SUFFIX)
    want = CHUNK_BYTES
    expected = source.base_offset
    make_header = BatchHeader._make
    while position < source.size_bytes:
        size = min(want, source.size_bytes - position)
        view = memoryview(disk.read(path, size, position))
        if len(view) < size:
            raise CorruptBatch(f"{path} ends at {position + len(view)}, and should have {source.size_bytes} bytes")
        want = CHUNK_BYTES
        batches: Batches = []
        at = 0
        end = len(view)
        while at < end:
            if end - at < HEADER_SIZE:
                if position + end < source.size_bytes:
                    break
                raise _no_batch(path, position + at)
            header = make_header(_unpack_header(view, at))
            batch_end = at + LENGTH_OVERHEAD + header.batch_length
            if header.magic != MAGIC or batch_end < at + HEADER_SIZE or position + batch_end > source.size_bytes:
                raise _no_batch(path, position + at)
            if batch_end > end:
                want = max(want, batch_end - at)
                break
            next_offset = header.base_offset + header.last_offset_delta + 1
            if not expected <= header.base_offset < next_offset <= source.end_offset:
                raise CorruptBatch(f"{path}: the batch at position {position + at} is not where its offsets belong")
            if crc32c(view[at + CRC_START : batch_end]) != header.crc:
                raise CorruptBatch(f"{path}: the batch at position {position + at} does not match its checksum")
            batches.append((header, view[at:batch_end]))
            expected = next_offset
            at = batch_end
        position += at
        if batches:
            yield at, batches


def _no_batch(path: str, position: int) -> CorruptBatch:
    return CorruptBatch(f"{path} has no batch at position {position}, where one should begin")


def _unreadable(directory: str, source: Source, header: BatchHeader, error: WireError) -> CorruptBatch:
    path = names.path_of(directory, source.base_offset, names.LOG_SUFFIX)
    return CorruptBatch(f"{path}: the batch of offsets {header.base_offset}..{header.last_offset}: {error}")

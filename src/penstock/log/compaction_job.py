"""The work of compaction: read, decide, write. It runs in a subprocess (`Runtime.job`), some megabytes per call.

Two passes over files:

1. *Collect*: starting at the first dirty offset, put the last offset of each key into a map until the map is full.
   Batches that no longer fit are left for the next compaction of the log.
2. *Copy*: read all segments from the start of the log to that point, filter them by the map, and write them to
   `.cleaned` files. Neighbouring segments that became small are merged, up to the maximum segment size.

The broker puts each finished file in place (`penstock.log.compaction_swap`) while the next is being written. Nothing
here is durable, and nothing is lost if the job stops at any point: the files it reads are never changed.

Each call processes a given number of bytes and returns. The worker keeps the state of a running compaction in memory,
under a token. If the worker dies, the token is unknown (`JobLost`) and the broker starts again.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from crc32c import crc32c

from penstock.log import names
from penstock.log.compaction_filter import OffsetMap, add_keys, emptied, filter_batch, filter_marker, pick
from penstock.log.compaction_transactions import Transactions
from penstock.log.index_entries import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, encode_offset_entries
from penstock.log.scan import IndexBuilder
from penstock.log.segment import POSITION_MAX, RELATIVE_OFFSET_MAX
from penstock.log.transactions import AbortedTransaction
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
"""The size of one read, and of the write buffer."""

MAP_ENTRY_BYTES = 160
"""The memory of one key in the map: the key, the offset, and its slot in a hash table that has just grown."""

UNDER_WAY_MAX = 8
"""Compactions that one worker remembers. A worker serves one broker, which runs one at a time; simulated brokers share
a worker."""

_unpack_header = HEADER.unpack_from


class JobLost(Exception):
    """The worker that ran this compaction died, and its state is lost."""


class CorruptBatch(Exception):
    """A batch is corrupt, so its log cannot be compacted."""


class LastBatch(NamedTuple):
    """The last batch of a live producer. Its header must be kept; otherwise a retry would not be recognised."""

    last_offset: int
    """The last offset of its last batch with data; -1 if it wrote only a marker."""
    epoch: int


class Source(NamedTuple):
    """A segment to be read."""

    base_offset: int
    end_offset: int
    size_bytes: int
    dirty_position: int
    """The position at which collecting keys starts."""


class Task(NamedTuple):
    """The input of one compaction. It is sent to the subprocess, so it holds only plain data."""

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
    """A finished `.cleaned` file, and the segments that it replaces."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    replaces: tuple[int, ...]
    """The base offsets of the segments it was made from."""
    is_same: bool
    """Nothing was removed or merged, so the segment need not be replaced."""


class Progress(NamedTuple):
    """The result of one step."""

    read_bytes: int = 0
    written_bytes: int = 0
    keys: int = 0
    """The current number of keys in the map."""
    clean_end: int = -1
    """The offset up to which the log will be clean; known when copying starts."""
    cleaned: CleanedSegment | None = None
    records_read: int = 0
    records_kept: int = 0
    is_done: bool = False


_under_way: OrderedDict[bytes, Generator[Progress, None, None]] = OrderedDict()


def begin(token: bytes, disk: JobDisk, task: Task) -> None:
    """Prepare a compaction; `advance` runs it."""
    _under_way[token] = clean(disk, task)
    while len(_under_way) > UNDER_WAY_MAX:
        _under_way.popitem(last=False)


def advance(token: bytes, bytes_max: int) -> Progress:
    """Continue until `bytes_max` bytes are read, a segment is finished, or the compaction is complete.

    Raises JobLost, CorruptBatch, OSError.
    """
    steps = _under_way.get(token)
    if steps is None:
        raise JobLost("the worker was restarted")
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
    raise AssertionError("the last step must be marked as last")


def forget(token: bytes) -> None:
    """Drop the state of a compaction that will not be continued."""
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
    """Group neighbouring segments that fit into one, by size, index size and range of offsets."""
    # At most one entry of the larger kind per interval, and one at the end.
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
    """Fill the map. Returns the last offset that was added."""
    first_dirty, keys_max = task.first_dirty_offset, task.keys_max
    # This pass does not see the markers of transactions that ended before.
    transactions = Transactions(one for one in task.aborted if one.last_offset >= first_dirty)
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
                    # The first batch is always taken: otherwise a compaction could make no progress.
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
    """Merges a group of segments into one `.cleaned` file."""

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
        # The last batch of a segment is kept, so that there is never a gap between two segments.
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
            raise CorruptBatch(f"{self._path} would be larger than its index can address")
        view = memoryview(data)
        taken = 0
        # These bytes were produced here as complete batches, so the loop reaches their end.
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
        # Retention uses the modification time if records have no timestamps.
        newest = names.path_of(self._task.directory, self._group[-1].base_offset, names.LOG_SUFFIX)
        self._disk.set_mtime_ms(self._path, self._disk.mtime_ms(newest))


Batches = list[tuple[BatchHeader, memoryview]]


def _batches(disk: JobDisk, directory: str, source: Source, position: int) -> Iterator[tuple[int, Batches]]:
    """The batches of a segment from `position` on, in chunks, each with the number of bytes read."""
    path = names.path_of(directory, source.base_offset, names.LOG_SUFFIX)
    want = CHUNK_BYTES
    expected = source.base_offset
    make_header = BatchHeader._make
    while position < source.size_bytes:
        size = min(want, source.size_bytes - position)
        view = memoryview(disk.read(path, size, position))
        if len(view) < size:
            raise CorruptBatch(f"{path} has {position + len(view)} bytes instead of {source.size_bytes}")
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
                raise CorruptBatch(f"{path}: the batch at position {position + at} has the wrong offsets")
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

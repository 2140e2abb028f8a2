"""Finding an offset by time, for ListOffsets.

The segments' largest timestamps select the segment, its time index the position to start at, and the batch headers the
batch. Only that batch is decompressed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.reading import LogChanged
from penstock.log.scan import BATCHES_PER_VISIT, SLICE_MS, scan
from penstock.log.segment import UNKNOWN, Segment
from penstock.wire.errors import WireError
from penstock.wire.records import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, Record, iter_records

if TYPE_CHECKING:
    from penstock.log.log import Log

DECOMPRESSED_BYTES_MAX = 16 << 20
"""A batch that decompresses to more is not searched; its first offset is returned."""
RECORDS_PER_LOOK = 128
"""Records checked between two looks at the clock."""

_unpack_header = HEADER.unpack_from


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class TimeSearch:
    """Searches a log by time."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    async def offset_for_timestamp(self, timestamp: int, upto: int) -> TimestampOffset | None:
        """The first record with a timestamp >= `timestamp`, if it is below `upto`."""
        log = self._log
        while True:
            version = log.version
            try:
                found = await self._search_time(timestamp)
                return found if found is not None and found.offset < upto else None
            except (LogChanged, FileNotFoundError):
                if log.version == version:
                    raise

    async def max_timestamp_offset(self, upto: int | None = None) -> TimestampOffset | None:
        """The first record with the log's largest timestamp (KIP-734), if it is below `upto`."""
        log = self._log
        while True:
            version = log.version
            try:
                found = await self._search_largest()
                return found if found is not None and (upto is None or found.offset < upto) else None
            except (LogChanged, FileNotFoundError):
                if log.version == version:
                    raise

    async def _search_time(self, timestamp: int) -> TimestampOffset | None:
        log = self._log
        for segment in list(log.segments):
            await self._know_timestamp(segment)
            if segment.max_timestamp < timestamp or min(segment.end_offset, log.end_offset) <= log.start_offset:
                continue
            await self._load_index_for(segment)
            start_offset = max(log.start_offset, segment.index.floor_offset_of_time(timestamp))
            position = segment.index.floor(start_offset)
            search = _Search(timestamp, log.start_offset)
            while position < segment.size_bytes:
                position = await scan(log.runtime, segment, position, segment.size_bytes, search)
                if position >= segment.size_bytes:
                    break
                size = search.size
                if not size:
                    return None  # damaged; `penstock log verify` shows where
                found = await self._first_record(
                    segment,
                    position,
                    size,
                    lambda record: record.timestamp >= timestamp and record.offset >= log.start_offset,
                )
                if found is not None:
                    return found
                search.size = 0
                position += size
        return None

    async def _search_largest(self) -> TimestampOffset | None:
        log = self._log
        largest: Segment | None = None
        for segment in list(log.segments):
            await self._know_timestamp(segment)
            if segment.max_timestamp >= 0 and (largest is None or segment.max_timestamp > largest.max_timestamp):
                largest = segment
        if largest is None or largest.max_timestamp_offset < log.start_offset:
            return None
        timestamp = largest.max_timestamp
        found = await log.reader.locate(largest.max_timestamp_offset)
        header = await found.segment.file.pread(HEADER_SIZE, found.position)
        size = BatchHeader._make(_unpack_header(header)).size_bytes
        return await self._first_record(
            found.segment, found.position, size, lambda record: record.timestamp == timestamp
        )

    async def _first_record(
        self, segment: Segment, position: int, size: int, wanted: Callable[[Record], bool]
    ) -> TimestampOffset | None:
        log = self._log
        batch = memoryview(await segment.file.pread(size, position))
        header = BatchHeader._make(_unpack_header(batch))
        started_ms = log.runtime.now_ms()
        try:
            records = iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX, verify_crc=False)
            for number, record in enumerate(records):
                if wanted(record):
                    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
                if number % RECORDS_PER_LOOK == 0 and log.runtime.now_ms() - started_ms > SLICE_MS:
                    await log.runtime.sleep(0)
                    started_ms = log.runtime.now_ms()
        except WireError:
            # Too large or undecodable: return its first offset, which never skips a record that matches.
            return TimestampOffset(header.max_timestamp, header.base_offset, header.partition_leader_epoch)
        return None

    async def _know_timestamp(self, segment: Segment) -> None:
        log = self._log
        version = log.version
        if segment.max_timestamp == UNKNOWN:
            await log.writer.load_max_timestamp(segment)
            if log.version != version:
                raise LogChanged

    async def _load_index_for(self, segment: Segment) -> None:
        log = self._log
        version = log.version
        await log.load_index(segment)
        if log.version != version:
            raise LogChanged


class _Search:
    """Stops at the first batch with a record of this time or later, at or after the start of the log."""

    def __init__(self, timestamp: int, start_offset: int) -> None:
        self.size = 0
        self._timestamp = timestamp
        self._start_offset = start_offset

    def visit(self, view: memoryview, position: int) -> int:
        at = 0
        for _ in range(BATCHES_PER_VISIT):
            if len(view) - at < HEADER_SIZE:
                break
            fields = _unpack_header(view, at)
            size = fields[1] + LENGTH_OVERHEAD
            if size < HEADER_SIZE:
                break
            if fields[8] >= self._timestamp and fields[0] + fields[6] >= self._start_offset:
                self.size = size
                break
            if at + size > len(view):
                break
            at += size
        return at

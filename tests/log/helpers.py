"""Helpers of the log tests: batches, reading a whole log, and a model of what a crash may leave."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from struct import pack_into
from typing import Any, NamedTuple, TypeVar

from penstock.log import Log, LogConfig
from penstock.runtime import Runtime
from penstock.sim.disk import SimDisk
from penstock.sim.harness import run
from penstock.sim.runtime import SimRuntime
from penstock.wire.compression import Codec
from penstock.wire.records import BatchHeader, Record, build_batch, iter_batches, iter_records

T = TypeVar("T")

WALL_MS = 1_750_001_000_000
"""About where the clock of a simulated world stands when it begins."""


def batch(
    count: int = 1,
    *,
    size: int = 10,
    timestamp: int = WALL_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    label: str = "",
) -> memoryview:
    """A batch as a producer sends it, in a writable buffer. Records are a millisecond apart."""
    value = label.encode().ljust(size, b".")
    records = [Record(timestamp=timestamp + number, key=b"k", value=value) for number in range(count)]
    return memoryview(
        bytearray(
            build_batch(
                records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
                control=control,
            )
        )
    )


def stamped(records: memoryview, offset: int, epoch: int) -> bytes:
    """The batch as a leader stores it."""
    stored = bytearray(records)
    pack_into(">q", stored, 0, offset)
    pack_into(">i", stored, 12, epoch)
    return bytes(stored)


class Stored(NamedTuple):
    header: BatchHeader
    data: bytes

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def next(self) -> int:
        return self.header.next_offset


def stored(data: bytes) -> list[Stored]:
    return [Stored(header, bytes(view)) for header, view in iter_batches(data)]


async def slice_bytes(log: Log, offset: int, max_bytes: int = 1 << 20, upto: int | None = None) -> bytes:
    """The bytes that a fetch would send."""
    upto = log.end_offset if upto is None else upto
    found = log.reader.try_read(offset, max_bytes, upto)
    if found is None:
        found = await log.reader.read(offset, max_bytes, upto)
    return await found.file.pread(found.size, found.position) if found.size else b""


async def contents(log: Log, max_bytes: int = 700) -> list[Stored]:
    """All batches of a log, read as a consumer does."""
    batches: list[Stored] = []
    offset = log.start_offset
    while offset < log.end_offset:
        found = stored(await slice_bytes(log, offset, max_bytes))
        assert found, f"nothing at offset {offset} of {log}"
        assert found[0].first <= offset < found[0].next
        batches += found
        offset = found[-1].next
    assert offset == max(log.end_offset, log.start_offset)
    return batches


def values(batches: list[Stored]) -> list[bytes]:
    return [record.value or b"" for one in batches for record in iter_records(one.data)]


def simulate(main: Callable[[SimRuntime], Coroutine[Any, Any, T]], disk: SimDisk | None = None, seed: int = 0) -> T:
    return run(main, seed=seed, disk=disk, guard=False)


async def open_log(runtime: Runtime, config: LogConfig | None = None, **options: Any) -> Log:
    options = {"clean": False, "recovery_point": 0, "start_offset": 0} | options
    return await Log.open(runtime, "topic-0", config or LogConfig(), **options)


@dataclass
class History:
    """The operations on a log before a crash, from which follows what may be left of it.

    `batches` are those that were appended and not truncated, including those that retention has removed since.
    """

    batches: list[Stored] = field(default_factory=list)
    appending: bytes | None = None
    """The append that was under way: it may have arrived or not."""
    durable: int = 0
    """Everything below survives a power loss."""
    start: int = 0
    """The log may start here, or earlier if that was not made durable."""
    truncating_to: int | None = None
    base: int = 0
    """Where the log began, or was begun afresh."""

    @property
    def end(self) -> int:
        return self.batches[-1].next if self.batches else self.base

    def append(self, log: Log, records: memoryview, epoch: int, wall_ms: int) -> None:
        self.appending = stamped(records, log.end_offset, epoch)
        appended = log.writer.append_leader(records, epoch, wall_ms)
        if not appended.duplicate:
            assert bytes(records) == self.appending
            self.batches += stored(self.appending)
        self.appending = None

    async def flush(self, log: Log) -> None:
        end = self.end
        await log.flush()
        assert log.durable_end >= end
        self.durable = max(self.durable, end)

    async def truncate(self, log: Log, offset: int) -> None:
        kept = [one for one in self.batches if one.next <= offset]
        self.truncating_to = kept[-1].next if kept else self.base
        await log.trimmer.truncate_to(offset)
        self.batches = kept
        self.durable = min(self.durable, self.end)
        self.start = min(self.start, self.end)
        self.truncating_to = None
        assert log.end_offset == self.end

    async def check(self, log: Log, *, power_loss: bool) -> None:
        """Check that `log`, opened after a crash, is a permitted result; it becomes the new state of the model."""
        least = self.durable if power_loss else self.end
        if self.truncating_to is not None:
            least = min(least, self.truncating_to)
        possible = [*self.batches, *(stored(self.appending) if self.appending else [])]
        ends = [self.base, *(one.next for one in possible)]
        assert log.damage == ()
        if power_loss and log.start_offset == log.end_offset <= self.start and log.end_offset not in ends:
            # DeleteRecords is durable and the records after it are not: the log goes on there, empty.
            assert log.end_offset >= least
            self.batches, self.base = [], log.end_offset
            return
        assert log.end_offset in ends, f"{log} ends inside a batch or beyond {ends[-1]}"
        assert log.end_offset >= min(least, ends[-1]), f"{log} lost what was before {least}"
        assert log.start_offset <= max(self.start, log.end_offset)
        expected = [one for one in possible if one.next > log.start_offset and one.next <= log.end_offset]
        assert await contents(log) == expected
        self.batches = [one for one in possible if one.next <= log.end_offset]
        self.appending = None
        self.truncating_to = None
        self.durable = min(self.durable, self.end)
        check_epochs(log, expected)
        check_producers(log, self.batches)
        await check_indexes(log, expected)


def check_epochs(log: Log, batches: list[Stored]) -> None:
    for one in batches:
        offset = max(one.first, log.start_offset)
        assert log.epoch_of(offset) == one.header.partition_leader_epoch, (log.epochs.entries, offset)
    if batches:
        assert log.latest_epoch >= batches[-1].header.partition_leader_epoch


def check_producers(log: Log, history: list[Stored]) -> None:
    """The state of every producer that has a batch in the log must be that of its last batch.

    `history` may have batches that retention has removed.
    """
    last: dict[int, BatchHeader] = {}
    for one in history:
        if one.header.producer_id >= 0:
            last[one.header.producer_id] = one.header
    for producer_id, header in last.items():
        entry = log.producers.get(producer_id)
        if entry is None:
            assert header.last_offset < log.segments[0].base_offset
            continue
        assert (entry.epoch, entry.last_sequence) == (header.producer_epoch, header.last_sequence)
        assert (entry.last_offset, entry.last_offset_delta) == (header.last_offset, header.last_offset_delta)
    for producer_id, _ in log.producers.entries():
        assert producer_id in last


async def check_indexes(log: Log, batches: list[Stored]) -> None:
    """Check that every entry of every index is correct."""
    for segment in log.segments:
        if not segment.size_bytes:
            continue
        await log.load_index(segment)
        data = await segment.file.pread(segment.size_bytes, 0)
        positions: dict[int, int] = {}
        largest: dict[int, int] = {}
        position, max_timestamp = 0, -1
        for one in stored(data):
            positions[position] = one.header.last_offset
            if one.header.max_timestamp > max_timestamp and one.header.records_count:
                max_timestamp = one.header.max_timestamp
                largest[one.header.last_offset] = max_timestamp
            position += len(one.data)
        for last_offset, at in segment.index.offset_entries():
            assert positions.get(at) == last_offset, (segment, last_offset, at)
        for timestamp, offset in segment.index.time_entries():
            assert largest.get(offset) == timestamp, (segment, timestamp, offset)
        if segment.max_timestamp != -2:
            assert segment.max_timestamp == max_timestamp

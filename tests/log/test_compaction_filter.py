"""How compaction treats single batches: transactions, markers, and headers that must stay."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from log.compaction_helpers import Pair
from log.helpers import WALL_MS
from penstock.log.compaction_filter import OffsetMap, add_keys, emptied, filter_batch, filter_marker
from penstock.log.compaction_job import CleanedSegment, LastBatch, Progress, Source, Task, clean, group_sources
from penstock.log.compaction_transactions import AbortedTransaction
from penstock.wire.errors import WireError
from penstock.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    ControlRecordType,
    Record,
    build_batch,
    check_batch,
    control_key,
    iter_batches,
    iter_records,
    read_header,
)

DELETE_RETENTION_MS = 1_000
DIRECTORY = "t-0"
LOG = f"{DIRECTORY}/{0:020d}.log"


class MemoryDisk:
    """`penstock.runtime.JobDisk` in a dict."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = {path: bytearray(data) for path, data in files.items()}

    def read(self, path: str, size: int, position: int) -> bytes:
        return bytes(self.files[path][position : position + size])

    def create(self, path: str) -> None:
        self.files[path] = bytearray()

    def write(self, path: str, data: bytes, position: int) -> None:
        assert position == len(self.files[path])
        self.files[path] += data

    def mtime_ms(self, path: str) -> int:
        return 0

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        pass


class Written:
    """Makes a log file, batch by batch."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end = 0

    def data_of(self, *pairs: Pair, producer: int = -1, transactional: bool = False) -> None:
        made = [Record(timestamp=WALL_MS, key=key, value=value) for key, value in pairs]
        self.data += build_batch(
            made,
            base_offset=self.end,
            leader_epoch=0,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=0 if producer >= 0 else -1,
            transactional=transactional,
        )
        self.end += len(pairs)

    def marker(self, producer: int, kind: ControlRecordType) -> None:
        record = Record(timestamp=WALL_MS, key=control_key(kind), value=pack(">hi", 0, 0))
        self.data += build_batch(
            [record],
            base_offset=self.end,
            leader_epoch=0,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        self.end += 1

    def compacted(
        self,
        *,
        now_ms: int = WALL_MS,
        aborted: tuple[AbortedTransaction, ...] = (),
        producers: dict[int, LastBatch] | None = None,
        first_dirty: int = 0,
    ) -> Written:
        disk = MemoryDisk({LOG: bytes(self.data)})
        task = Task(
            directory=DIRECTORY,
            sources=(Source(0, self.end, len(self.data), 0),),
            first_dirty_offset=first_dirty,
            now_ms=now_ms,
            delete_retention_ms=DELETE_RETENTION_MS,
            segment_bytes=1 << 30,
            segment_index_bytes=10 << 20,
            index_interval_bytes=4096,
            keys_max=1_000,
            producers=producers or {},
            aborted=aborted,
        )
        steps: list[Progress] = list(clean(disk, task))
        assert steps[-1].is_done
        (cleaned,) = [step.cleaned for step in steps if step.cleaned is not None]
        assert isinstance(cleaned, CleanedSegment)
        after = Written()
        after.data = disk.files[LOG + ".cleaned"]
        after.end = self.end
        for _, view in iter_batches(after.data):
            check_batch(view)
        assert len(after.data) == cleaned.size_bytes
        return after

    @property
    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in iter_batches(self.data)]

    @property
    def table(self) -> list[tuple[int, bytes | None]]:
        """Offsets and values of the data."""
        return [
            (record.offset, record.value)
            for header, view in iter_batches(self.data)
            if not header.is_control
            for record in iter_records(view)
        ]

    @property
    def markers(self) -> list[int]:
        return [header.base_offset for header in self.headers if header.is_control and header.records_count]


# ---- transactions


def test_records_of_an_aborted_transaction_go_and_supersede_nothing() -> None:
    log = Written()
    log.data_of((b"a", b"kept"))
    log.data_of((b"a", b"aborted"), producer=1, transactional=True)
    log.data_of((b"b", b"committed"), producer=2, transactional=True)
    log.marker(1, ControlRecordType.ABORT)
    log.marker(2, ControlRecordType.COMMIT)
    log.data_of((b"c", b"end"))
    after = log.compacted(aborted=(AbortedTransaction(1, 1, 3),))
    assert after.table == [(0, b"kept"), (2, b"committed"), (5, b"end")]
    assert after.markers == [3, 4], "both transactions had batches in this pass"


def test_a_marker_goes_when_its_transaction_is_gone_and_its_horizon_has_passed() -> None:
    log = Written()
    log.data_of((b"a", b"1"), producer=1, transactional=True)
    log.marker(1, ControlRecordType.ABORT)
    log.data_of((b"b", b"1"), producer=2, transactional=True)
    log.marker(2, ControlRecordType.COMMIT)
    log.data_of((b"b", b"2"))
    aborted = (AbortedTransaction(1, 0, 1),)
    once = log.compacted(aborted=aborted)
    assert once.markers == [1, 3]
    assert all(header.delete_horizon_ms is None for header in once.headers)
    twice = once.compacted(aborted=aborted, now_ms=WALL_MS + 5)
    assert twice.markers == [1, 3]
    horizons = [header.delete_horizon_ms for header in twice.headers if header.is_control]
    assert horizons == [WALL_MS + 5 + DELETE_RETENTION_MS] * 2
    assert twice.compacted(aborted=aborted, now_ms=WALL_MS + 4 + DELETE_RETENTION_MS).markers == [1, 3]
    gone = twice.compacted(aborted=aborted, now_ms=WALL_MS + 5 + DELETE_RETENTION_MS)
    assert gone.markers == []
    assert gone.table == [(4, b"2")]


def test_a_marker_stays_as_long_as_a_record_of_its_transaction_does() -> None:
    log = Written()
    log.data_of((b"a", b"1"), (b"b", b"1"), producer=1, transactional=True)
    log.marker(1, ControlRecordType.COMMIT)
    log.data_of((b"a", b"2"))
    for _ in range(3):
        log = log.compacted(now_ms=WALL_MS + 10 * DELETE_RETENTION_MS)
        assert log.markers == [2]
    assert log.table == [(1, b"1"), (3, b"2")]


def test_the_last_marker_of_a_live_producer_stays_as_a_header() -> None:
    """The marker is all that is left of the producer, and its epoch fences others."""
    log = Written()
    log.marker(1, ControlRecordType.COMMIT)
    log.data_of((b"a", b"1"))
    producers = {1: LastBatch(-1, 0)}
    once = log.compacted(producers=producers)
    late_ms = WALL_MS + 2 * DELETE_RETENTION_MS
    gone = once.compacted(producers=producers, now_ms=late_ms)
    (marker, _) = gone.headers
    assert (marker.records_count, marker.is_control, marker.producer_epoch) == (0, True, 0)
    again = gone.compacted(producers=producers, now_ms=late_ms)
    assert again.data == gone.data
    assert len(gone.compacted(now_ms=late_ms).headers) == 1, "and goes when the producer is forgotten"


def test_other_control_records_stay() -> None:
    log = Written()
    log.marker(-1, ControlRecordType.LEADER_CHANGE)
    log.data_of((b"a", b"1"))
    assert log.compacted().markers == [0]


# ---- single batches


def test_the_last_batch_of_a_segment_stays_if_only_as_a_header() -> None:
    log = Written()
    log.data_of((b"a", b"1"))
    log.data_of((b"a", None))
    once = log.compacted()
    gone = once.compacted(now_ms=WALL_MS + DELETE_RETENTION_MS)
    (header,) = gone.headers
    assert (header.base_offset, header.last_offset, header.records_count) == (1, 1, 0)
    assert len(gone.data) == HEADER_SIZE
    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)
    assert gone.compacted().data == gone.data


def test_the_clean_part_is_filtered_by_keys_and_the_dirty_by_offsets() -> None:
    log = Written()
    for _ in range(3):
        log.data_of((b"a", b"1"), (b"b", b"1"))
    log.data_of((b"a", b"2"))
    # From offset 4 on it is dirty: what is superseded within the clean part alone was dealt with before.
    assert log.compacted(first_dirty=4).table == [(5, b"1"), (6, b"2")]
    assert log.compacted(first_dirty=6).table == [(1, b"1"), (3, b"1"), (5, b"1"), (6, b"2")]


def whole(records: bytes, count: int) -> tuple[BatchHeader, memoryview]:
    batch = bytearray(build_batch([Record(key=b"k", value=b"v")]))
    header = read_header(batch)._replace(records_count=count)
    return header, memoryview(bytes(batch[:HEADER_SIZE]) + records)


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (b"", 1),
        (bytes([14, 0, 0, 0, 2, 107, 2]), 1),
        (bytes([14, 0, 0, 0, 40, 107, 2, 118]), 1),
        (bytes([12, 0, 0, 0, 2, 107, 1, 0, 0]), 1),
        (bytes([0x80] * 9), 1),
    ],
    ids=["nothing", "cut off", "a long key", "more than that", "no number"],
)
def test_malformed_records_are_refused(records: bytes, count: int) -> None:
    header, batch = whole(records, count)
    offsets: OffsetMap = {}
    with pytest.raises(WireError):
        add_keys(header, batch, offsets, 0)
    with pytest.raises(WireError):
        filter_batch(header, batch, offsets, now_ms=0, delete_retention_ms=0, keep_empty=False)


def test_an_emptied_batch_is_left_as_it_is() -> None:
    header = read_header(build_batch([Record(key=b"k", value=b"v")], producer_id=1, producer_epoch=2, base_sequence=3))
    empty = memoryview(emptied(header))
    again = read_header(empty)
    for keep, expected in ((True, empty), (False, None)):
        assert filter_batch(again, empty, {}, now_ms=0, delete_retention_ms=0, keep_empty=keep) is expected
    marker = memoryview(emptied(header._replace(attributes=0x30)))
    for keep, expected in ((True, marker), (False, None)):
        kept = filter_marker(
            read_header(marker), marker, now_ms=0, delete_retention_ms=0, is_last_of_all=True, keep_empty=keep
        )
        assert kept is expected


# ---- groups of segments


def grouped(*sizes: int, step: int = 10, **changes: Any) -> list[list[int]]:
    sources = [Source(number * step, (number + 1) * step, size, 0) for number, size in enumerate(sizes)]
    task = Task(DIRECTORY, tuple(sources), 0, 0, 0, 1_000, 10 << 20, 4_096, 10, {})._replace(**changes)
    return [[source.size_bytes for source in group] for group in group_sources(sources, task)]


def test_neighbours_are_merged_while_they_fit() -> None:
    assert grouped(500, 400, 100, 1, 900, 900, 2_000) == [[500, 400, 100], [1, 900], [900], [2_000]]
    assert grouped() == []


def test_a_merged_segment_has_room_for_its_indexes_and_offsets() -> None:
    assert grouped(100, 100, 100, index_interval_bytes=10, segment_index_bytes=12 * 21) == [[100, 100], [100]]
    assert grouped(1, 1, 1, 1, step=1 << 30) == [[1, 1], [1, 1]]

"""Finding an offset by time, as ListOffsets does."""

from __future__ import annotations

import pytest

from log.helpers import WALL_MS, batch, open_log, simulate
from penstock.log import Log, LogConfig, TimeSearch
from penstock.runtime import Runtime
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.wire.compression import Codec
from penstock.wire.records import Record, build_batch

TIMES = [[100, 105, 103], [90, 95], [200, 150, 210], [205], [300, 300], [250], [400]]
"""Of the records, batch by batch; neither batches nor records are in order."""


async def filled(runtime: Runtime, codec: Codec = Codec.NONE, segment_bytes: int = 220) -> Log:
    log = await open_log(runtime, LogConfig(segment_bytes=segment_bytes, index_interval_bytes=80))
    for epoch, times in enumerate(TIMES):
        records = [Record(timestamp=timestamp, value=b"v") for timestamp in times]
        log.writer.append_leader(memoryview(bytearray(build_batch(records, codec=codec))), epoch, WALL_MS)
    return log


@pytest.mark.parametrize("codec", list(Codec))
def test_the_first_record_at_or_after_a_time_is_found(codec: Codec) -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, codec)
        flat = [(timestamp, epoch) for epoch, times in enumerate(TIMES) for timestamp in times]
        for asked in range(85, 405, 5):
            found = await TimeSearch(log).offset_for_timestamp(asked, log.end_offset)
            offset = next(number for number, (timestamp, _) in enumerate(flat) if timestamp >= asked)
            assert found == (flat[offset][0], offset, flat[offset][1])
        assert await TimeSearch(log).offset_for_timestamp(401, log.end_offset) is None

    simulate(main)


def test_records_beyond_the_high_watermark_are_not_found() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        assert await TimeSearch(log).offset_for_timestamp(400, 12) is None
        found = await TimeSearch(log).offset_for_timestamp(300, 12)
        assert found is not None
        assert found.offset == 9

    simulate(main)


def test_deleted_records_are_not_found() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        log.trimmer.advance_start_offset(6)
        found = await TimeSearch(log).offset_for_timestamp(0, log.end_offset)
        assert found == (150, 6, 2)

    simulate(main)


def test_the_largest_timestamp_is_returned_with_its_first_record() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        assert await TimeSearch(log).max_timestamp_offset() == (400, 12, 6)
        assert await TimeSearch(log).max_timestamp_offset(upto=12) is None
        await log.trimmer.truncate_to(12)
        assert await TimeSearch(log).max_timestamp_offset() == (300, 9, 4)

    simulate(main)


def test_an_empty_log_has_no_times() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        assert await TimeSearch(log).offset_for_timestamp(0, 0) is None
        assert await TimeSearch(log).max_timestamp_offset() is None

    simulate(main)


def test_times_are_found_after_a_restart() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        await log.flush()
        await log.close()

    async def check(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(index_interval_bytes=80), clean=True, recovery_point=13)
        assert await TimeSearch(log).offset_for_timestamp(203, 13) == (210, 7, 2)
        assert await TimeSearch(log).max_timestamp_offset() == (400, 12, 6)

    simulate(write, disk)
    disk.restart(power_loss=False)
    simulate(check, disk)


def test_a_batch_too_large_to_decompress_is_answered_with_its_first_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.timestamps.DECOMPRESSED_BYTES_MAX", 100)

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        log.writer.append_leader(batch(5, size=1_000, codec=Codec.ZSTD, timestamp=50), 3, WALL_MS)
        assert await TimeSearch(log).offset_for_timestamp(52, 5) == (54, 0, 3)

    simulate(main)


def test_only_one_batch_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    import penstock.log.timestamps as timestamps

    opened: list[int] = []
    original = timestamps.iter_records

    def counted(data, **options):  # type: ignore[no-untyped-def]
        opened.append(len(data))
        return original(data, **options)

    monkeypatch.setattr(timestamps, "iter_records", counted)

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(index_interval_bytes=100))
        for number in range(200):
            log.writer.append_leader(batch(3, timestamp=10 * number), 0, WALL_MS)
        found = await TimeSearch(log).offset_for_timestamp(1_502, 600)
        assert found == (1_502, 452, 0)
        assert len(opened) == 1

    simulate(main)

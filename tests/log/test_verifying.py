"""Finding damage in an open log."""

from __future__ import annotations

import pytest

from log.helpers import batch, open_log, simulate
from penstock.log import Log, LogConfig
from penstock.log.verifying import first_damage
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime

BATCHES = 10
PER_BATCH = 3
END = BATCHES * PER_BATCH


async def filled(runtime: SimRuntime, config: LogConfig | None = None) -> Log:
    log = await open_log(runtime, config or LogConfig())
    for _ in range(BATCHES):
        log.writer.append_leader(batch(PER_BATCH, timestamp=runtime.wall_ms()), 0, runtime.wall_ms())
    await log.flush()
    return log


def batch_bytes(log: Log) -> int:
    return sum(segment.size_bytes for segment in log.segments) // BATCHES


def test_a_whole_log_has_no_damage() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        for offset in (0, 1, END - 1, END, END + 5):
            assert await first_damage(log, offset) is None
            assert await first_damage(log, offset, to_the_end=True) is None

    simulate(main, SimDisk(0))


@pytest.mark.parametrize(
    ("field", "position"), [("base offset", 6), ("length", 10), ("magic", 16), ("checksum", 18), ("records", 65)]
)
def test_any_flipped_bit_is_found_at_its_batch(field: str, position: int) -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        disk.rot(log.active.path(".log"), 4 * batch_bytes(log) + position)
        for offset, to_the_end in ((0, False), (3 * PER_BATCH + 1, True)):
            found = await first_damage(log, offset, to_the_end=to_the_end)
            assert found is not None
            # A wrong offset is noticed at the next batch, and then the one before is not believed either.
            assert 3 * PER_BATCH < found <= 4 * PER_BATCH, field

    simulate(main, disk)


def test_damage_before_the_requested_offset_is_not_reported() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        disk.rot(log.active.path(".log"), 4 * batch_bytes(log) + 65)
        assert await first_damage(log, 5 * PER_BATCH, to_the_end=True) is None

    simulate(main, disk)


def test_damage_in_a_later_segment_is_found_by_a_full_check() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, LogConfig(segment_bytes=400))
        assert len(log.segments) > 2
        disk.rot(log.segments[-2].path(".log"), 65)
        assert await first_damage(log, 0) is None
        assert await first_damage(log, 0, to_the_end=True) == log.segments[-2].base_offset

    simulate(main, disk)

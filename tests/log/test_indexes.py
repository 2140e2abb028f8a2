"""Sparse indexes: Kafka's formats, searching, and what happens to them in memory and on disk."""

from __future__ import annotations

from array import array
from struct import pack

import pytest

from log.helpers import simulate
from penstock.log.index_entries import (
    IndexDamaged,
    check_offset_entries,
    check_time_entries,
    decode_offset_entries,
    encode_offset_entries,
)
from penstock.log.indexes import ENTRIES_UNSTORED_MAX, IndexCache, SegmentIndex
from penstock.runtime import Runtime
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime

BASE = 1000
GAP = 1 << 20


def index_on(runtime: Runtime, cache: IndexCache | None = None, *, fresh: bool = True) -> SegmentIndex:
    runtime.disk.mkdir("t-0")
    return SegmentIndex(runtime.disk, "t-0", BASE, cache or IndexCache(), fresh=fresh)


def fill(index: SegmentIndex, count: int) -> None:
    """Batches of ten offsets and a hundred bytes; the first one has no entry."""
    for number in range(1, count + 1):
        index.add(BASE + 10 * number + 9, 100 * number, 5000 + number, BASE + 10 * number + 9)


def test_the_files_are_kafkas() -> None:
    async def main(runtime: SimRuntime) -> None:
        index = index_on(runtime)
        index.add(BASE + 19, 4100, 777, BASE + 15)
        index.add(BASE + 29, 8300, 777, BASE + 15)
        index.add(BASE + 39, 12500, 900, BASE + 39)
        index.store()
        path = "t-0/00000000000000001000"
        assert runtime.disk.read_bytes(path + ".index") == pack(">iiiiii", 19, 4100, 29, 8300, 39, 12500)
        assert runtime.disk.read_bytes(path + ".timeindex") == pack(">qiqi", 777, 15, 900, 39)

    simulate(main)


def test_floor_finds_where_to_begin_a_walk() -> None:
    async def main(runtime: SimRuntime) -> None:
        index = index_on(runtime)
        fill(index, 5)
        # The batch at 200 has the offsets 1020..1029: one before it must be walked from the entry before.
        assert [index.floor(BASE + offset) for offset in (0, 18, 19, 28, 29, 30, 59, 1000)] == [
            0, 0, 100, 100, 200, 200, 500, 500,
        ]  # fmt: skip

    simulate(main)


def test_boundary_is_the_largest_known_position_that_is_not_too_far() -> None:
    async def main(runtime: SimRuntime) -> None:
        index = index_on(runtime)
        fill(index, 5)
        assert [index.boundary(position) for position in (0, 99, 100, 250, 9999)] == [0, 0, 100, 200, 500]

    simulate(main)


def test_time_floor_is_strictly_earlier() -> None:
    async def main(runtime: SimRuntime) -> None:
        index = index_on(runtime)
        fill(index, 3)
        assert index.floor_offset_of_time(5001) == BASE
        assert index.floor_offset_of_time(5002) == BASE + 19
        assert index.floor_offset_of_time(9999) == BASE + 39

    simulate(main)


def test_a_dropped_index_is_on_disk_and_can_be_reloaded() -> None:
    async def main(runtime: SimRuntime) -> None:
        runtime.disk.disk.cold_read_probability = 0.0
        index = index_on(runtime)
        fill(index, 100)
        offsets, times = index.offset_entries(), index.time_entries()
        index.drop()
        assert not index.is_resident
        assert index.try_load(100_000, GAP)
        assert (index.offset_entries(), index.time_entries()) == (offsets, times)

    simulate(main)


def test_entries_that_are_added_while_the_rest_is_on_disk_are_found_without_loading() -> None:
    async def main(runtime: SimRuntime) -> None:
        index = index_on(runtime)
        fill(index, 10)
        index.drop()
        index.add(BASE + 119, 1100, 9000, BASE + 119)
        assert not index.knows_offset(BASE + 118)
        assert index.knows_offset(BASE + 119)
        assert index.floor(BASE + 500) == 1100
        await index.load(2000, GAP)
        assert index.knows_offset(BASE)
        assert len(index.offset_entries()) == 11
        assert index.floor(BASE + 30) == 200

    simulate(main)


def test_the_cache_drops_the_least_recently_used_index() -> None:
    async def main(runtime: SimRuntime) -> None:
        cache = IndexCache(bytes_max=4_000)
        runtime.disk.mkdir("t-0")
        indexes = [SegmentIndex(runtime.disk, "t-0", BASE + 1000 * n, cache, fresh=True) for n in range(4)]
        for index in indexes[:3]:
            for number in range(1, 40):
                index.add(index.base_offset + number, 100 * number, number, index.base_offset + number)
            cache.touch(index)
        assert [index.is_resident for index in indexes[:3]] == [True, True, True]
        cache.touch(indexes[0])
        for number in range(1, 40):
            indexes[3].add(indexes[3].base_offset + number, 100 * number, number, indexes[3].base_offset + number)
        cache.touch(indexes[3])
        assert [index.is_resident for index in indexes] == [True, False, True, True]
        assert cache.size_bytes <= cache.bytes_max

    simulate(main)


def test_entries_go_to_the_file_in_bulk() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        index = index_on(runtime)
        fill(index, ENTRIES_UNSTORED_MAX - 1)
        before = disk.operations
        fill_one = ENTRIES_UNSTORED_MAX
        index.add(BASE + 10 * fill_one + 9, 100 * fill_one, 9999, BASE + 10 * fill_one + 9)
        assert index.is_stored
        assert disk.operations - before <= 4

    simulate(main, disk)


def test_an_index_that_lost_a_sector_is_damaged() -> None:
    offsets = array("I", range(1, 401))
    positions = array("I", range(100, 40_100, 100))
    data = bytearray(encode_offset_entries(offsets, positions))
    check_offset_entries(*decode_offset_entries(bytes(data)), 50_000)
    for sector in range(0, len(data), 512):
        torn = bytearray(data)
        torn[sector : sector + 512] = bytes(len(torn[sector : sector + 512]))
        with pytest.raises(IndexDamaged):
            check_offset_entries(*decode_offset_entries(bytes(torn)), 50_000)


def test_a_time_index_that_lost_a_sector_is_damaged() -> None:
    data = bytearray(b"".join(pack(">qi", 1000 + number, number) for number in range(300)))
    check_time_entries(data)
    for sector in range(0, len(data), 512):
        torn = bytearray(data)
        torn[sector : sector + 512] = bytes(len(torn[sector : sector + 512]))
        with pytest.raises(IndexDamaged):
            check_time_entries(torn)


def test_a_sealed_index_with_any_flipped_bit_is_damaged() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        index = index_on(runtime)
        fill(index, 50)
        index.store()
        seal = index.seal
        assert seal is not None
        again = SegmentIndex(runtime.disk, "t-0", BASE, IndexCache(), fresh=False, seal=seal)
        await again.load(100_000, GAP)
        disk.rot("t-0/00000000000000001000.index", 17)
        again = SegmentIndex(runtime.disk, "t-0", BASE, IndexCache(), fresh=False, seal=seal)
        with pytest.raises(IndexDamaged):
            await again.load(100_000, GAP)

    simulate(write, disk)


def test_an_index_without_files_is_damaged_not_empty() -> None:
    async def main(runtime: SimRuntime) -> None:
        index = index_on(runtime, fresh=False)
        with pytest.raises(IndexDamaged):
            await index.load(100_000, GAP)

    simulate(main)


def test_an_index_that_ends_long_before_its_segment_is_damaged() -> None:
    async def main(runtime: SimRuntime) -> None:
        index = index_on(runtime)
        fill(index, 5)
        index.store()
        again = index_on(runtime, fresh=False)
        with pytest.raises(IndexDamaged):
            await again.load(10 * GAP, GAP)

    simulate(main)

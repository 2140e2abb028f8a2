"""What a power loss may do to a disk, and what it must not."""

from __future__ import annotations

import errno

import pytest

from penstock.runtime import Runtime
from penstock.sim import ProcessEnded, SimDisk, SimRuntime, run

SEEDS = range(150)


def outcomes_after_power_loss(workload: object, path: str) -> set[bytes | None]:
    """What the file holds after the workload and a power loss, over many seeds; None where it is gone."""
    seen: set[bytes | None] = set()
    for seed in SEEDS:
        disk = SimDisk(seed)
        run(workload, seed=seed, disk=disk)  # type: ignore[arg-type]
        disk.restart(power_loss=True)
        seen.add(disk.content(path) if disk.namespace.find(path) is not None else None)
    return seen


def test_what_was_synced_survives_whole() -> None:
    async def workload(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"x" * 10_000, 0)
        file.pwrite(b"y" * 10, 5_000)
        file.truncate(9_000)
        await file.sync()
        await runtime.disk.sync_dir("")

    expected = b"x" * 5_000 + b"y" * 10 + b"x" * 3_990
    assert outcomes_after_power_loss(workload, "a") == {expected}


def test_a_synced_file_whose_name_was_not_synced_may_be_gone() -> None:
    async def workload(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"data", 0)
        await file.sync()

    assert outcomes_after_power_loss(workload, "a") == {None, b"data"}


def test_unsynced_appends_are_kept_lost_cut_or_zeroed_behind_the_synced_part() -> None:
    synced, unsynced = b"s" * 1_000, b"u" * 6_000

    async def workload(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(synced, 0)
        await file.sync()
        await runtime.disk.sync_dir("")
        file.pwrite(unsynced, len(synced))

    outcomes = outcomes_after_power_loss(workload, "a")
    assert all(content is not None and content.startswith(synced) for content in outcomes)
    assert all(content is not None and set(content[1_000:]) <= set(b"u\0") for content in outcomes)
    assert synced in outcomes
    assert synced + unsynced in outcomes
    tails = [content[1_000:] for content in outcomes if content is not None]
    assert any(tail and set(tail) == set(b"u") and len(tail) < 6_000 for tail in tails), "cut"
    assert any(set(tail) == set(b"\0") for tail in tails), "the size arrived without the data"
    assert any(b"\0u" in tail for tail in tails), "a later sector arrived without an earlier one"


def test_unsynced_overwrites_are_torn_between_sectors() -> None:
    async def workload(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"o" * 4096, 0)
        await file.sync()
        await runtime.disk.sync_dir("")
        file.pwrite(b"n" * 4096, 0)

    outcomes = outcomes_after_power_loss(workload, "a")
    for content in outcomes:
        assert content is not None
        assert len(content) == 4096
        for start in range(0, 4096, 512):
            assert content[start : start + 512] in (b"o" * 512, b"n" * 512)
    assert len(outcomes) > 10


def test_an_unsynced_truncation_may_be_undone() -> None:
    async def workload(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"o" * 20_000, 0)
        await file.sync()
        await runtime.disk.sync_dir("")
        file.truncate(6_000)
        file.pwrite(b"n" * 3_000, 6_000)

    outcomes = outcomes_after_power_loss(workload, "a")
    assert all(content is not None and content.startswith(b"o" * 4096) for content in outcomes)
    sizes = {len(content) for content in outcomes if content is not None}
    assert 20_000 in sizes
    assert 6_000 in sizes
    assert 9_000 in sizes
    undone = [content for content in outcomes if content is not None and len(content) == 20_000]
    assert b"o" * 20_000 in undone
    assert all(content.endswith(b"o" * (20_000 - 8192)) for content in undone), "only the page at the cut is rewritten"
    assert any(b"n" in content for content in undone)


def test_a_synced_truncation_stays() -> None:
    async def workload(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"o" * 20_000, 0)
        await file.sync()
        await runtime.disk.sync_dir("")
        file.truncate(6_000)
        await file.sync()

    assert outcomes_after_power_loss(workload, "a") == {b"o" * 6_000}


def test_a_sync_covers_what_was_written_before_it_was_asked_for() -> None:
    async def workload(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        await runtime.disk.sync_dir("")
        file.pwrite(b"before", 0)
        sync = file.sync()
        file.pwrite(b"after!", 6)
        await sync

    outcomes = outcomes_after_power_loss(workload, "a")
    assert b"before" in outcomes
    assert all(content is not None and content.startswith(b"before") for content in outcomes)


def test_a_power_loss_during_a_sync_promises_nothing() -> None:
    async def workload(runtime: SimRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        await runtime.disk.sync_dir("")
        file.pwrite(b"data", 0)
        file.sync()

    assert {b"", b"data"} <= outcomes_after_power_loss(workload, "a")


def test_an_unsynced_rename_leaves_the_old_or_the_new_file() -> None:
    async def workload(runtime: Runtime) -> None:
        disk = runtime.disk
        for name, data in (("a", b"old"), ("b", b"new")):
            file = disk.open(name, create=True)
            file.pwrite(data, 0)
            await file.sync()
        await disk.sync_dir("")
        disk.rename("b", "a")

    assert outcomes_after_power_loss(workload, "a") == {b"old", b"new"}
    assert outcomes_after_power_loss(workload, "b") == {b"new", None}


def test_a_rename_of_an_unsynced_file_may_survive_without_its_data() -> None:
    async def workload(runtime: Runtime) -> None:
        disk = runtime.disk
        disk.open("tmp", create=True).pwrite(b"data", 0)
        disk.rename("tmp", "a")
        await disk.sync_dir("")

    assert {b"", b"\0\0\0\0", b"data"} <= outcomes_after_power_loss(workload, "a")


def test_an_unsynced_unlink_may_be_undone() -> None:
    async def workload(runtime: Runtime) -> None:
        disk = runtime.disk
        file = disk.open("a", create=True)
        file.pwrite(b"data", 0)
        await file.sync()
        await disk.sync_dir("")
        disk.unlink("a")

    assert outcomes_after_power_loss(workload, "a") == {None, b"data"}


def test_names_survive_in_the_order_they_were_made() -> None:
    async def workload(runtime: Runtime) -> None:
        for name in ("1", "2", "3"):
            runtime.disk.open(name, create=True)

    seen = set()
    for seed in SEEDS:
        disk = SimDisk(seed)
        run(workload, seed=seed, disk=disk)
        disk.restart(power_loss=True)
        seen.add(tuple(disk.namespace.root.entries))
    assert seen == {(), ("1",), ("1", "2"), ("1", "2", "3")}


def test_syncing_one_directory_does_not_sync_another() -> None:
    async def workload(runtime: Runtime) -> None:
        disk = runtime.disk
        disk.mkdir("one")
        disk.mkdir("two")
        await disk.sync_dir("")
        disk.open("one/a", create=True)
        disk.open("two/b", create=True)
        await disk.sync_dir("two")

    assert outcomes_after_power_loss(workload, "two/b") == {b""}
    assert outcomes_after_power_loss(workload, "one/a") == {None, b""}


def test_a_directory_tree_comes_back_as_it_was_or_in_part() -> None:
    async def workload(runtime: Runtime) -> None:
        disk = runtime.disk
        disk.mkdir("topic-0")
        file = disk.open("topic-0/log", create=True)
        file.pwrite(b"data", 0)
        await file.sync()
        await disk.sync_dir("topic-0")
        await disk.sync_dir("")
        disk.rename("topic-0", "topic-0-delete")
        disk.rmtree("topic-0-delete")

    assert outcomes_after_power_loss(workload, "topic-0/log") == {None, b"data"}
    assert outcomes_after_power_loss(workload, "topic-0-delete/log") == {None, b"data"}


def test_a_replacement_is_all_or_nothing() -> None:
    async def workload(runtime: Runtime) -> None:
        await runtime.disk.replace_bytes("a", b"old")
        await runtime.disk.replace_bytes("a", b"the new content")

    assert outcomes_after_power_loss(workload, "a") == {b"the new content"}


def test_a_kill_keeps_everything() -> None:
    async def workload(runtime: Runtime) -> None:
        runtime.disk.open("a", create=True).pwrite(b"unsynced", 0)

    for seed in range(20):
        disk = SimDisk(seed)
        run(workload, seed=seed, disk=disk)
        disk.restart(power_loss=False)
        assert disk.content("a") == b"unsynced"


def test_a_failed_sync_reports_once_loses_the_data_and_poisons_the_file() -> None:
    async def workload(runtime: SimRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        await runtime.disk.sync_dir("")
        file.pwrite(b"data", 0)
        runtime.host.disk.fail_next_syncs()
        for _ in range(3):
            with pytest.raises(OSError) as caught:
                await file.sync()
            assert caught.value.errno == errno.EIO
        other = runtime.disk.open("b", create=True)
        await other.sync()

    outcomes = outcomes_after_power_loss(workload, "a")
    assert b"" in outcomes
    assert b"data" in outcomes or b"dat" in outcomes


def test_after_a_failed_sync_a_new_process_may_see_bytes_that_are_not_on_the_disk() -> None:
    async def lose(runtime: SimRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        await runtime.disk.sync_dir("")
        file.pwrite(b"data", 0)
        runtime.host.disk.fail_next_syncs(path_contains="a")
        try:
            await file.sync()
        except OSError as error:
            runtime.fatal("sync failed", error)

    async def sync_again(runtime: SimRuntime) -> bytes:
        file = runtime.disk.open("a")
        await file.sync()
        return file.read(4, 0)

    seen = set()
    for seed in SEEDS:
        disk = SimDisk(seed)
        with pytest.raises(ProcessEnded, match="sync failed"):
            run(lose, seed=seed, disk=disk)
        cached = run(sync_again, seed=seed, disk=disk)
        disk.restart(power_loss=True)
        seen.add((cached, disk.content("a")))
    assert (b"data", bytes(4)) in seen, "cached, synced with success, and not there: the reason to exit on an error"


def test_a_full_disk_cuts_a_write_short() -> None:
    async def workload(runtime: SimRuntime) -> None:
        disk = runtime.host.disk
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"x" * 100, 0)
        disk.fill(free_bytes=30)
        with pytest.raises(OSError) as caught:
            file.pwrite(b"y" * 100, 100)
        assert caught.value.errno == errno.ENOSPC
        assert file.size() == 130
        file.pwrite(b"z" * 100, 0)
        assert runtime.disk.free_bytes() == 0
        with pytest.raises(OSError):
            runtime.disk.open("b", create=True)
        with pytest.raises(OSError):
            await runtime.disk.replace_bytes("c", b"data")
        runtime.disk.unlink("a")
        assert runtime.disk.free_bytes() == 130
        runtime.disk.open("d", create=True).pwrite(b"x" * 100, 0)

    run(workload)


def test_read_errors_and_bit_rot() -> None:
    async def workload(runtime: SimRuntime) -> None:
        disk = runtime.host.disk
        file = runtime.disk.open("a", create=True)
        file.pwrite(bytes(1000), 0)
        disk.fail_reads("a", count=2)
        with pytest.raises(OSError):
            file.read(10, 0)
        with pytest.raises(OSError):
            await file.pread(10, 0)
        assert file.read(10, 0) == bytes(10)
        position = disk.rot("a")
        content = file.read(1000, 0)
        assert content[position].bit_count() == 1
        assert sum(content) == content[position]

    run(workload)


def test_cold_pages_appear_as_often_as_wanted() -> None:
    async def workload(runtime: SimRuntime) -> list[int]:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"x" * 100, 0)
        return [file.try_pread_into(memoryview(bytearray(100)), 0) for _ in range(1000)]

    usual = run(workload, disk=SimDisk(1))
    assert 0 in usual
    assert any(0 < count < 100 for count in usual)
    assert usual.count(100) > 500
    assert set(run(workload, disk=SimDisk(1, cold_read_probability=0.0))) == {100}
    assert 100 not in run(workload, disk=SimDisk(1, cold_read_probability=1.0))

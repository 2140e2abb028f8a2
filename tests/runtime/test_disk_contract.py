"""What both disks promise."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime import DirectoryInUse, File, Runtime

RunOn = Callable[..., Any]


def read_cached(file: File, size: int, position: int = 0) -> bytes | None:
    """What the page cache says, or None if it will not say in many tries."""
    buffer = bytearray(size)
    for _ in range(100):
        count = file.try_pread_into(memoryview(buffer), position)
        if count == size:
            return bytes(buffer)
    return None


def test_written_bytes_are_read_back_by_every_way_of_reading(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"hello world", 0)
        file.pwrite(memoryview(bytearray(b"W")), 6)
        assert file.size() == 11
        assert file.read(100, 0) == b"hello World"
        assert await file.pread(5, 6) == b"World"
        assert read_cached(file, 5, 6) == b"World"
        assert runtime.disk.read_bytes("a") == b"hello World"
        assert runtime.disk.size("a") == 11

    run_on(main)


def test_reads_are_short_only_at_the_end_of_the_file(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"x" * 100_000, 0)
        assert len(await file.pread(100_000, 0)) == 100_000
        assert await file.pread(10, 99_995) == b"x" * 5
        assert await file.pread(10, 100_000) == b""
        assert file.read(10, 200_000) == b""
        assert file.try_pread_into(memoryview(bytearray(10)), 100_000) == 0

    run_on(main)


def test_a_gap_before_a_write_reads_as_zeros(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"end", 5000)
        assert file.read(6000, 0) == bytes(5000) + b"end"

    run_on(main)


def test_truncate_cuts_and_extends(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"hello world", 0)
        file.truncate(5)
        assert file.size() == 5
        file.truncate(8)
        assert file.read(100, 0) == b"hello\0\0\0"

    run_on(main)


def test_a_missing_file_is_noticed_at_its_first_use(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("missing")
        assert not runtime.disk.exists("missing")
        with pytest.raises(FileNotFoundError):
            file.read(1, 0)
        with pytest.raises(FileNotFoundError):
            file.size()
        with pytest.raises(FileNotFoundError):
            file.pwrite(b"x", 0)
        with pytest.raises(FileNotFoundError):
            runtime.disk.read_bytes("missing")
        with pytest.raises(FileNotFoundError):
            runtime.disk.size("missing")
        with pytest.raises(FileNotFoundError):
            runtime.disk.open("missing/a", create=True)

    run_on(main)


def test_creating_makes_the_name_at_once_and_keeps_what_is_there(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        runtime.disk.open("a", create=True)
        assert runtime.disk.list("") == ["a"]
        runtime.disk.open("a").pwrite(b"kept", 0)
        assert runtime.disk.open("a", create=True).read(4, 0) == b"kept"

    run_on(main)


def test_files_persist_between_runs(run_on: RunOn) -> None:
    async def write(runtime: Runtime) -> None:
        runtime.disk.mkdir("d")
        runtime.disk.open("d/a", create=True).pwrite(b"kept", 0)

    async def read(runtime: Runtime) -> bytes:
        return runtime.disk.read_bytes("d/a")

    run_on(write)
    assert run_on(read) == b"kept"


def test_a_file_follows_its_rename(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"1", 0)
        runtime.disk.rename("a", "b")
        file.close()
        assert file.path == "b"
        assert runtime.disk.open("b") is file
        file.pwrite(b"2", 1)
        assert runtime.disk.read_bytes("b") == b"12"
        assert runtime.disk.list("") == ["b"]

    run_on(main)


def test_files_follow_the_rename_of_their_directory(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        disk = runtime.disk
        disk.mkdir("topic-0/inner")
        disk.mkdir("topic-00")
        file = disk.open("topic-0/log", create=True)
        inner = disk.open("topic-0/inner/log", create=True)
        other = disk.open("topic-00/log", create=True)
        file.close()
        disk.rename("topic-0", "gone")
        file.pwrite(b"1", 0)
        inner.pwrite(b"2", 0)
        assert (file.path, inner.path, other.path) == ("gone/log", "gone/inner/log", "topic-00/log")
        assert disk.read_bytes("gone/log") == b"1"
        assert disk.read_bytes("gone/inner/log") == b"2"
        assert disk.list("") == ["gone", "topic-00"]

    run_on(main)


def test_a_rename_replaces_its_target(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        disk = runtime.disk
        old = disk.open("target", create=True)
        old.pwrite(b"old", 0)
        retained = disk.open("target")
        retained.retain()
        disk.open("new", create=True).pwrite(b"new", 0)
        disk.rename("new", "target")
        assert disk.read_bytes("target") == b"new"
        assert disk.open("target").read(3, 0) == b"new"
        assert retained.read(3, 0) == b"old"
        retained.release()
        with pytest.raises(FileNotFoundError):
            old.read(3, 0)

    run_on(main)


def test_an_unlinked_file_is_readable_while_it_is_retained(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        disk = runtime.disk
        file = disk.open("a", create=True)
        file.pwrite(b"hello", 0)
        file.retain()
        file.retain()
        file.close()
        disk.unlink("a")
        assert not disk.exists("a")
        file.close()
        assert file.read(5, 0) == b"hello"
        file.release()
        assert await file.pread(5, 0) == b"hello"
        assert read_cached(file, 5) == b"hello"
        file.release()
        with pytest.raises(FileNotFoundError):
            file.read(5, 0)

    run_on(main)


def test_a_new_file_under_the_name_of_an_unlinked_one_is_another_file(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        disk = runtime.disk
        old = disk.open("a", create=True)
        old.pwrite(b"old", 0)
        disk.unlink("a")
        new = disk.open("a", create=True)
        assert new is not old
        assert new.size() == 0
        with pytest.raises(FileNotFoundError):
            old.pwrite(b"x", 0)
        assert new.size() == 0

    run_on(main)


def test_a_read_under_way_survives_close_and_unlink(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"x" * 1000, 0)
        reads = [file.pread(1000, 0) for _ in range(20)]
        file.close()
        runtime.disk.unlink("a")
        for read in reads:
            assert await read == b"x" * 1000

    run_on(main)


def test_unlinking_and_listing_what_is_not_there_is_no_error(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        runtime.disk.unlink("nothing")
        runtime.disk.rmtree("nothing")
        assert runtime.disk.list("nothing") == []

    run_on(main)


def test_directories(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        disk = runtime.disk
        disk.mkdir("b/c/d")
        disk.mkdir("b/c")
        disk.mkdir("a")
        retained = disk.open("b/c/file", create=True)
        retained.pwrite(b"1", 0)
        retained.retain()
        assert disk.list("") == ["a", "b"]
        assert disk.list("b/c") == ["d", "file"]
        disk.rmtree("b")
        assert disk.list("") == ["a"]
        assert not disk.exists("b/c/file")
        assert retained.read(1, 0) == b"1"
        retained.release()

    run_on(main)


def test_syncs_complete_together(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        files = [runtime.disk.open(f"f{number}", create=True) for number in range(5)]
        asked = []
        for _ in range(20):
            for file in files:
                file.pwrite(b"x", file.size())
                asked.append(file.sync())
        asked.append(runtime.disk.sync_dir(""))
        for future in asked:
            assert await future is None

    run_on(main)


def test_syncing_an_unlinked_file_has_nothing_to_do(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"x", 0)
        runtime.disk.unlink("a")
        await file.sync()

    run_on(main)


def test_small_files_are_replaced_in_the_order_of_the_calls(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        disk = runtime.disk
        first = disk.replace_bytes("checkpoint", b"1")
        second = disk.replace_bytes("checkpoint", b"2")
        await second
        assert first.done()
        assert disk.read_bytes("checkpoint") == b"2"
        assert disk.list("") == ["checkpoint"]
        with pytest.raises(FileNotFoundError):
            await disk.replace_bytes("missing/checkpoint", b"1")

    run_on(main)


def test_a_directory_is_locked_once(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        lock = runtime.disk.lock("")
        assert runtime.disk.exists(".lock")
        with pytest.raises(DirectoryInUse):
            runtime.disk.lock("")
        runtime.disk.mkdir("other")
        runtime.disk.lock("other").release()
        lock.release()
        runtime.disk.lock("").release()

    run_on(main)


def test_a_lock_ends_with_its_process(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        runtime.disk.lock("")

    run_on(main)
    run_on(main)


def test_modification_times_are_wall_time(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        runtime.disk.open("a", create=True).pwrite(b"x", 0)
        assert abs(runtime.disk.mtime_ms("a") - runtime.wall_ms()) < 60_000

    run_on(main)


def test_space(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        assert 0 < runtime.disk.free_bytes() <= runtime.disk.total_bytes()

    run_on(main)


def test_offloaded_code_may_use_the_disk(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        disk = runtime.disk
        file = disk.open("a", create=True)
        file.pwrite(b"hello", 0)
        assert await runtime.offload(file.read, 5, 0) == b"hello"
        assert await runtime.offload(file.size) == 5
        file.retain()
        file.close()
        await runtime.offload(disk.unlink, "a")
        assert await runtime.offload(file.read, 5, 0) == b"hello"
        file.release()
        await runtime.offload(disk.mkdir, "d")
        other = await runtime.offload(lambda: disk.open("d/b", create=True))
        assert other.size() == 0
        await runtime.offload(disk.rmtree, "d")
        assert disk.list("") == []

    run_on(main)


def test_paths_cannot_leave_the_root(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        for path in ("/etc", "../a", "a/../../b"):
            with pytest.raises(AssertionError):
                runtime.disk.open(path)
        with pytest.raises(OSError) as caught:
            runtime.disk.rename("nothing", "b")
        assert caught.value.errno == errno.ENOENT

    run_on(main)

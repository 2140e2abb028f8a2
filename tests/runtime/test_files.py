"""What only the real disk does: descriptors, threads, and how it meets failures of the kernel."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime import files, production
from penstock.runtime.files import RealFile
from penstock.runtime.production import ProductionRuntime
from support.waiting import wait_until


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def assert_descriptors_at_most(limit: int) -> None:
    """Now, or in a moment: clients that other tests have left in this process connect and give up by themselves."""
    wait_until(lambda: open_descriptors() <= limit)


def test_unused_files_cost_no_descriptor(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        before = open_descriptors()
        opened = [runtime.disk.open(f"f{number}") for number in range(1000)]
        assert_descriptors_at_most(before)
        assert len(opened) == 1000

    production.run(main, root=str(tmp_path))


def test_idle_files_are_closed_beyond_the_limit_and_opened_again(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        before = open_descriptors()
        opened = [runtime.disk.open(f"f{number}", create=True) for number in range(100)]
        for number, file in enumerate(opened):
            file.pwrite(b"%03d" % number, 0)
        assert runtime.disk.descriptors_open == 10
        assert_descriptors_at_most(before + 10)
        for number, file in enumerate(opened):
            assert file.read(3, 0) == b"%03d" % number
        assert runtime.disk.descriptors_open == 10

    production.run(main, root=str(tmp_path), descriptors_max=10)


def test_a_file_in_steady_use_keeps_its_descriptor(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        hot = runtime.disk.open("hot", create=True)
        first = hot._descriptor
        for number in range(100):
            hot.pwrite(b"x", number)
            runtime.disk.open(f"cold{number}", create=True).pwrite(b"x", 0)
        assert hot._descriptor == first

    production.run(main, root=str(tmp_path), descriptors_max=10)


def test_retained_and_busy_files_are_not_closed_by_the_limit(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        kept = [runtime.disk.open(f"kept{number}", create=True) for number in range(20)]
        for file in kept:
            file.pwrite(b"kept", 0)
            file.retain()
            runtime.disk.unlink(file.path)
        busy = [runtime.disk.open(f"busy{number}", create=True) for number in range(20)]
        syncs = [file.sync() for file in busy]
        for number in range(50):
            runtime.disk.open(f"other{number}", create=True).pwrite(b"x", 0)
        for sync in syncs:
            await sync
        assert [file.read(4, 0) for file in kept] == [b"kept"] * 20
        for file in kept:
            file.release()
        runtime.disk.open("one more", create=True).pwrite(b"x", 0)
        assert runtime.disk.descriptors_open <= 11

    production.run(main, root=str(tmp_path), descriptors_max=10)


def test_forgotten_files_give_their_descriptors_back(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        for number in range(50):
            runtime.disk.open(f"f{number}", create=True).pwrite(b"x", 0)
        assert runtime.disk.descriptors_open == 0
        assert runtime.disk._files == {}

    production.run(main, root=str(tmp_path))


def test_a_file_that_comes_back_while_it_is_collected_opens_a_descriptor_of_its_own(tmp_path: Path) -> None:
    """Another thread can get at a file through the registry until its `__del__` has ended."""

    async def main(runtime: ProductionRuntime) -> None:
        file = runtime.disk.open("f", create=True)
        file.pwrite(b"x", 0)
        file.__del__()
        other = runtime.disk.open("other", create=True)
        other.pwrite(b"o", 0)
        file.pwrite(b"y", 0)
        await file.sync()
        assert (file.read(1, 0), other.read(1, 0)) == (b"y", b"o")

    production.run(main, root=str(tmp_path))


def test_syncing_leaves_no_file_to_be_collected_by_the_thread(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        await runtime.disk.open("f", create=True).sync()
        assert runtime.disk._files == {}, "it was collected on the loop, when its sync was told"

    production.run(main, root=str(tmp_path))


def test_everything_is_closed_at_the_end(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> list[RealFile]:
        opened = [runtime.disk.open(f"f{number}", create=True) for number in range(50)]
        await opened[0].sync()
        return opened

    production.run(main, root=str(tmp_path))
    before = open_descriptors()
    kept = production.run(main, root=str(tmp_path))
    assert_descriptors_at_most(before)
    assert len(kept) == 50


def test_syncs_asked_for_meanwhile_share_one_round(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> int:
        file = runtime.disk.open("a", create=True)
        asked = []
        for number in range(1000):
            file.pwrite(b"x", number)
            asked.append(file.sync())
        for future in asked:
            await future
        return runtime.disk.syncer.rounds

    assert production.run(main, root=str(tmp_path)) < 200


def test_a_failed_sync_is_never_followed_by_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_fdatasync = os.fdatasync
    failures = iter([OSError(errno.EIO, "input/output error")])

    def fdatasync(descriptor: int) -> None:
        error = next(failures, None)
        if error is not None:
            raise error
        real_fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)

    async def main(runtime: ProductionRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        other = runtime.disk.open("b", create=True)
        file.pwrite(b"lost", 0)
        asked = [file.sync() for _ in range(3)]
        for future in asked:
            with pytest.raises(OSError) as caught:
                await future
            assert caught.value.errno == errno.EIO
        await other.sync()
        file.pwrite(b"again", 0)
        with pytest.raises(OSError):
            await file.sync()
        del file
        runtime.disk.rename("a", "c")
        with pytest.raises(OSError):
            await runtime.disk.open("c").sync()

    production.run(main, root=str(tmp_path))


def test_a_failed_replacement_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        await runtime.disk.replace_bytes("a", b"old")
        monkeypatch.setattr(os, "fdatasync", _raise_eio)
        with pytest.raises(OSError):
            await runtime.disk.replace_bytes("a", b"new")
        monkeypatch.undo()
        with pytest.raises(OSError):
            await runtime.disk.replace_bytes("a", b"newer")
        assert runtime.disk.read_bytes("a") == b"old"

    production.run(main, root=str(tmp_path))


def _raise_eio(descriptor: int) -> None:
    raise OSError(errno.EIO, "input/output error")


def test_a_full_disk_raises(tmp_path: Path) -> None:
    os.symlink("/dev/full", tmp_path / "full")

    async def main(runtime: ProductionRuntime) -> None:
        with pytest.raises(OSError) as caught:
            runtime.disk.open("full").pwrite(b"x" * 100, 0)
        assert caught.value.errno == errno.ENOSPC

    production.run(main, root=str(tmp_path))


def test_a_short_write_is_not_taken_for_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pwrite = os.pwrite
    calls = []

    def pwrite(descriptor: int, data: Any, position: int) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "no space left on device")
        return real_pwrite(descriptor, memoryview(data)[:30], position)

    monkeypatch.setattr(files, "_pwrite", pwrite)
    monkeypatch.setattr(os, "pwrite", pwrite)

    async def main(runtime: ProductionRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        with pytest.raises(OSError) as caught:
            file.pwrite(b"x" * 100, 0)
        assert caught.value.errno == errno.ENOSPC
        assert calls == [100, 70]

    production.run(main, root=str(tmp_path))


def test_a_cold_page_is_told_apart_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def preadv(descriptor: int, buffers: Any, position: int, flags: int = 0) -> int:
        assert flags & os.RWF_NOWAIT
        raise BlockingIOError(errno.EAGAIN, "would wait")

    async def main(runtime: ProductionRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"hello", 0)
        monkeypatch.setattr(files, "_preadv", preadv)
        assert file.try_pread_into(memoryview(bytearray(5)), 0) == 0
        assert await file.pread(5, 0) == b"hello"

    production.run(main, root=str(tmp_path))


def test_a_file_system_without_nowait_is_read_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_preadv = os.preadv
    asked: list[int] = []

    def preadv(descriptor: int, buffers: Any, position: int, flags: int = 0) -> int:
        asked.append(flags)
        if flags:
            raise OSError(errno.EOPNOTSUPP, "operation not supported")
        return real_preadv(descriptor, buffers, position)

    monkeypatch.setattr(files, "_preadv", preadv)

    async def main(runtime: ProductionRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"hello", 0)
        buffer = bytearray(5)
        assert file.try_pread_into(memoryview(buffer), 0) == 5
        assert file.try_pread_into(memoryview(buffer), 0) == 5
        assert bytes(buffer) == b"hello"
        assert asked == [os.RWF_NOWAIT, 0, 0]

    production.run(main, root=str(tmp_path))


def test_a_cancelled_read_does_not_free_its_descriptor_early(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"x" * 100_000, 0)
        for _ in range(100):
            file.pread(100_000, 0).cancel()
            file.close()
        assert file._pins > 0
        assert file._descriptor >= 0
        while file._pins:
            await runtime.sleep(1)
        file.close()
        assert file._descriptor < 0
        assert file.read(1, 0) == b"x"

    production.run(main, root=str(tmp_path))


def test_the_number_of_threads_changes_while_reads_are_under_way(tmp_path: Path) -> None:
    def io_threads() -> int:
        return sum(thread.name.startswith(files.IO_THREAD_NAMES) for thread in threading.enumerate())

    async def main(runtime: ProductionRuntime) -> None:
        file = runtime.disk.open("f", create=True)
        file.pwrite(b"abc", 0)
        pending = []
        for count in (1, 3, 2):
            runtime.disk.use_io_threads(count)
            pending += [file.pread(3, 0) for _ in range(20)]
        for read in pending:
            assert await read == b"abc"
        wait_until(lambda: io_threads() <= 2)

    production.run(main, root=str(tmp_path), io_threads=4)
    assert io_threads() == 0

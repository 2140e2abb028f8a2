"""A real directory that can be slowed down, and that rejects writes from a killed node.

Two differences from `penstock.runtime.files`. Nothing waits for the device: test data need not survive the machine, and
the end of a process loses nothing from the page cache. And every operation that would wait for the device takes
`delay_ms` longer while that is set:

- a write blocks the node, as the kernel blocks a process with too many dirty pages;
- reads that miss the page cache, syncs and replacements are delayed, while the node continues.
"""

from __future__ import annotations

import errno
import os
import time
from asyncio import AbstractEventLoop, Future
from functools import partial

from penstock.runtime import Buffer
from penstock.runtime.files import IO_THREADS_DEFAULT, RealDisk, RealFile
from penstock.runtime.paths import TEMPORARY_SUFFIX, normal

__all__ = ["FaultyDisk"]


class FaultyDisk(RealDisk):
    def __init__(self, root: str, loop: AbstractEventLoop) -> None:
        super().__init__(root, loop, io_threads=IO_THREADS_DEFAULT)
        self.delay_ms = 0.0
        """May be set from any thread."""
        self.is_dead = False
        """Set when the node was killed: any part of it that still runs can write no more."""

    def new_file(self, path: str) -> RealFile:
        return FaultyFile(self, path)

    def sync_dir(self, path: str) -> Future[None]:
        self.check()
        return self.later()

    def replace_bytes(self, path: str, data: bytes) -> Future[None]:
        self.check()
        path = normal(path)
        real = self._real(path)
        work = partial(self._replace, real, bytes(data))
        return self.syncer.ask(("replace", real), work, shared=False, finished=partial(self._detach, path))

    def rename(self, source: str, target: str) -> None:
        self.check()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.check()
        super().unlink(path)

    def rmtree(self, path: str) -> None:
        self.check()
        super().rmtree(path)

    # ---- for the files

    def check(self) -> None:
        if self.is_dead:
            raise OSError(errno.EIO, "the node was killed")

    def hold(self) -> None:
        """Blocks the calling thread for as long as the device would."""
        if self.delay_ms:
            time.sleep(self.delay_ms / 1000)

    def later(self) -> Future[None]:
        future: Future[None] = self._loop.create_future()
        self._loop.call_later(self.delay_ms / 1000, _resolve, future)
        return future

    def _replace(self, real: str, data: bytes) -> None:
        self.hold()
        self.check()
        temporary = real + TEMPORARY_SUFFIX
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, real)


class FaultyFile(RealFile):
    __slots__ = ()
    _disk: FaultyDisk

    def pwrite(self, data: Buffer, position: int) -> None:
        disk = self._disk
        disk.check()
        disk.hold()
        super().pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._disk.check()
        super().truncate(size)

    def pread(self, size: int, position: int) -> Future[bytes]:
        delay_ms = self._disk.delay_ms
        found = super().pread(size, position)
        if not delay_ms:
            return found
        late: Future[bytes] = self._disk._loop.create_future()
        found.add_done_callback(lambda _: self._disk._loop.call_later(delay_ms / 1000, _pass_on, found, late))
        return late

    def sync(self) -> Future[None]:
        self._disk.check()
        return self._disk.later()


def _resolve(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _pass_on(source: Future[bytes], target: Future[bytes]) -> None:
    if target.done() or source.cancelled():
        return
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())

"""The real disk in a job's subprocess: plain system calls on the broker's files."""

from __future__ import annotations

import os

from penstock.runtime.paths import normal
from penstock.runtime.syscalls import FILE_MODE, read_fully, write_rest

__all__ = ["RealJobDisk"]


class RealJobDisk:
    """`penstock.runtime.JobDisk`. It holds only its root, so that it can be pickled."""

    __slots__ = ("root",)

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, path: str, size: int, position: int) -> bytes:
        descriptor = os.open(self._real(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_fully(descriptor, size, position)
        finally:
            os.close(descriptor)

    def create(self, path: str) -> None:
        os.close(os.open(self._real(path), os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_TRUNC, FILE_MODE))

    def write(self, path: str, data: bytes, position: int) -> None:
        descriptor = os.open(self._real(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = os.pwrite(descriptor, data, position)
            if written != len(data):
                write_rest(descriptor, data, position, written)
            # Not for durability: the broker later syncs these files together with data that producers wait for, and
            # writing a gigabyte then would take too long.
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def mtime_ms(self, path: str) -> int:
        return os.stat(self._real(path)).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        os.utime(self._real(path), ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def _real(self, path: str) -> str:
        return os.path.join(self.root, normal(path))

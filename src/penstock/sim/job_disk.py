"""The simulated disk for jobs. A simulated job runs in the broker's process, so this is the same disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime import JobDisk
    from penstock.sim.mount import MountedDisk

__all__ = ["SimJobDisk"]


class SimJobDisk:
    """`penstock.runtime.JobDisk` on a mount: every call is an operation at which the process may crash."""

    def __init__(self, mount: MountedDisk) -> None:
        self._mount = mount

    def read(self, path: str, size: int, position: int) -> bytes:
        return self._mount.open(path).read(size, position)

    def create(self, path: str) -> None:
        self._mount.unlink(path)
        self._mount.open(path, create=True)

    def write(self, path: str, data: bytes, position: int) -> None:
        self._mount.open(path).pwrite(data, position)

    def mtime_ms(self, path: str) -> int:
        return self._mount.mtime_ms(path)

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        self._mount.open(path).inode().mtime_ms = mtime_ms


if TYPE_CHECKING:

    def _is_a_job_disk(disk: SimJobDisk) -> JobDisk:
        return disk

"""An exclusive lock on a data directory."""

from __future__ import annotations

import fcntl
import os

from penstock.runtime import DirectoryInUse
from penstock.runtime.syscalls import CLOSED, FILE_MODE

__all__ = ["LOCK_NAME", "RealLock"]

LOCK_NAME = ".lock"


class RealLock:
    """`flock` on a file: the kernel releases it when the process ends for any reason."""

    def __init__(self, directory: str) -> None:
        real_path = os.path.join(directory, LOCK_NAME)
        self._descriptor = os.open(real_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise DirectoryInUse(
                f"{directory} is in use by another process (it holds {real_path}). "
                "Stop that process, or choose another data directory."
            ) from None

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = CLOSED

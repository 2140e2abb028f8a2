"""A data directory that is only read: no lock is taken, nothing is written, read-only file systems will do.

Has of the runtime's `Disk` what reads and waits, which is all that the log's offline tools use.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

LOCK_NAME = ".lock"


class OfflineFile:
    def __init__(self, real: str) -> None:
        self.path = real
        self._descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def read(self, size: int, position: int) -> bytes:
        parts = []
        while size > 0:
            part = os.pread(self._descriptor, size, position)
            if not part:
                break
            parts.append(part)
            size -= len(part)
            position += len(part)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size


class OfflineDisk:
    def __init__(self, root: Path) -> None:
        self.root = str(root)

    def open(self, path: str) -> OfflineFile:
        return OfflineFile(self._real(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._real(path))

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._real(path)))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int:
        return os.stat(self._real(path)).st_size

    def read_bytes(self, path: str) -> bytes:
        with open(self._real(path), "rb") as file:
            return file.read()

    def _real(self, path: str) -> str:
        return os.path.join(self.root, path)


def is_in_use(root: Path) -> bool:
    """Whether a broker holds the directory."""
    try:
        with (root / LOCK_NAME).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

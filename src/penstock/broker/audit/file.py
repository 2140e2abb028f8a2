"""The file of the audit log: appended and synced by a thread, and renamed when it has reached its size.

audit/audit.jsonl        the newest lines
audit/audit.jsonl.1      the ones before, and so on: a higher number is older
"""

from __future__ import annotations

from typing import Final

from penstock.runtime import Runtime

DIRECTORY: Final = "audit"
PATH: Final = f"{DIRECTORY}/audit.jsonl"


class AuditFile:
    """One writer: `append` is not called again before the last call is done."""

    def __init__(self, runtime: Runtime, size_bytes_max: int, kept_max: int) -> None:
        self._runtime = runtime
        self._size_bytes_max = size_bytes_max
        self._kept_max = kept_max
        self._end = -1
        """The size of the file; −1 if it is not known: at the start and after a failure."""

    async def append(self, data: bytes) -> None:
        """Append whole lines, durably. Raises OSError."""
        end, self._end = self._end, -1
        self._end = await self._runtime.offload(self._append, end, data)

    def _append(self, end: int, data: bytes) -> int:
        """In a thread. Returns the new size."""
        disk = self._runtime.disk
        calls = disk.for_jobs()
        if end < 0:
            disk.mkdir(DIRECTORY)
            end = disk.size(PATH) if disk.exists(PATH) else 0
            if end and calls.read(PATH, 1, end - 1) != b"\n":
                data = b"\n" + data  # the last line was cut off by a crash
        if end and end + len(data) > self._size_bytes_max:
            self._rotate()
            end = 0
        if end == 0:
            calls.create(PATH)
        calls.write(PATH, data, end)
        return end + len(data)

    def _rotate(self) -> None:
        disk = self._runtime.disk
        disk.unlink(f"{PATH}.{self._kept_max}")
        for number in range(self._kept_max - 1, 0, -1):
            if disk.exists(f"{PATH}.{number}"):
                disk.rename(f"{PATH}.{number}", f"{PATH}.{number + 1}")
        disk.rename(PATH, f"{PATH}.1")

"""A note of the metadata log's last synced offset, which distinguishes a torn tail from lost data.

After a crash a log is truncated where its bytes become invalid. Unsynced bytes may be lost that way. Synced bytes may
have been acknowledged, and a replica that lost them must not help to elect a leader. So the end of the log after a sync
is noted next to it. The note need not be exact, but must never be too high. There are two:

`synced-end`        replaced durably, at most once a second: survives a power loss
`synced-end-now`    overwritten in place after every sync of the log, before any response, and never synced itself:
                    exact if only the process died. A power loss may tear it; then it is ignored.

Both are lowered before the log is truncated to match the leader's.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from penstock.broker.layout import METADATA_DIRECTORY
from penstock.runtime import Disk, Runtime, Timer

PATH = f"{METADATA_DIRECTORY}/synced-end"
NOW_PATH = f"{METADATA_DIRECTORY}/synced-end-now"
LATE_MS = 1_000
BUSY_POLL_MS = 1
UNKNOWN = -1


class Noted(NamedTuple):
    """The content of the notes."""

    end: int
    """The log was durable up to this offset; -1 if unknown."""
    is_damaged: bool
    """The durable note exists but is invalid. It is replaced atomically, so a crash cannot be the cause."""


def read_noted(disk: Disk) -> Noted:
    durable = parse(disk.read_bytes(PATH)) if disk.exists(PATH) else UNKNOWN
    now = parse(disk.read_bytes(NOW_PATH)) if disk.exists(NOW_PATH) else UNKNOWN
    return Noted(max(durable, now), durable == UNKNOWN and disk.exists(PATH))


class SyncedEnd:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._end = UNKNOWN
        self._written = UNKNOWN
        self._writing = False
        self._closed = False
        self._timer: Timer | None = None

    def found(self, noted: Noted) -> None:
        """Set what the disk holds. A damaged note is rewritten with the next change."""
        self._end = self._written = UNKNOWN if noted.is_damaged else noted.end

    def moved(self, end: int) -> None:
        """The log is durable up to this offset."""
        if end != self._end:
            self._end = end
            self._runtime.disk.open(NOW_PATH, create=True).pwrite(text(end), 0)
        if self._end > self._written and self._timer is None and not self._writing and not self._closed:
            self._timer = self._runtime.call_later(LATE_MS, self._begin)

    async def lower(self, end: int) -> None:
        """The log will be truncated here. When this returns, no note on disk claims more."""
        disk = self._runtime.disk
        self._end = min(self._end, end)
        while self._writing:
            await self._runtime.sleep(BUSY_POLL_MS)
        if disk.exists(NOW_PATH):
            disk.unlink(NOW_PATH)
            await disk.sync_dir(METADATA_DIRECTORY)
        if self._written > end:
            await self._write()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._timer = None
        if not self._writing and not self._closed:
            self._runtime.spawn_essential(self._write(), "synced end")

    async def _write(self) -> None:
        self._writing = True
        end = self._end
        await self._runtime.disk.replace_bytes(PATH, text(end))
        self._written = end
        self._writing = False
        self.moved(self._end)


def text(end: int) -> bytes:
    """The text of a note, of fixed length, so that a new one exactly overwrites the old."""
    number = b"%020d" % max(0, end)
    return number + b" %08x\n" % crc32c(number)


def parse(data: bytes) -> int:
    """The offset in a note; -1 if it is invalid. Accepts any number of digits: earlier releases did not pad."""
    number, _, checksum = data.strip().partition(b" ")
    whole = number.isdigit() and checksum == b"%08x" % crc32c(number)
    return int(number) if whole else UNKNOWN

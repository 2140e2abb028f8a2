"""How far the metadata log was once durable: what tells a torn tail from a log that lost what it had.

After a crash a log is cut where its bytes are no longer whole. What was never synced may go that way; what was synced
may have been acknowledged, and a replica that lost it must not help to elect anyone. So the end of the log, as it was
after a sync, is noted beside it. The note need not be exact, only never too high. There are two of them:

`synced-end`        replaced durably, at most once a second: what a power loss leaves
`synced-end-now`    overwritten in place after every sync of the log, before anyone is answered, and never synced
                    itself: exact if only the process died. A power loss may tear it; then it does not count.

Before the log is cut on the leader's word both are lowered.
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
    """What the notes say."""

    end: int
    """The log was durable up to here; -1 if there is nothing to go by."""
    is_damaged: bool
    """The durable one is there and not whole. It is replaced atomically, so no crash did that."""


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
        """What the disk holds. A damaged note is written anew as soon as there is something to say."""
        self._end = self._written = UNKNOWN if noted.is_damaged else noted.end

    def moved(self, end: int) -> None:
        """The log is durable up to here."""
        if end != self._end:
            self._end = end
            self._runtime.disk.open(NOW_PATH, create=True).pwrite(text(end), 0)
        if self._end > self._written and self._timer is None and not self._writing and not self._closed:
            self._timer = self._runtime.call_later(LATE_MS, self._begin)

    async def lower(self, end: int) -> None:
        """The log will be cut here: once this returns, nothing on disk says that it was longer."""
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
    """Of one length, so that each takes the place of the one before."""
    number = b"%020d" % max(0, end)
    return number + b" %08x\n" % crc32c(number)


def parse(data: bytes) -> int:
    """-1 if it is not whole. Takes numbers of any length: earlier releases did not pad them."""
    number, _, checksum = data.strip().partition(b" ")
    whole = number.isdigit() and checksum == b"%08x" % crc32c(number)
    return int(number) if whole else UNKNOWN

"""How far the metadata log was once durable: what tells a torn tail from a log that lost what it had.

After a crash a log is cut where its bytes are no longer whole. What was never synced may go that way; what was synced
may have been acknowledged, and a replica that lost it must not help to elect anyone. So the end of the log, as it was
after a sync, is noted in a file of its own, a moment later and at most once in that time: it need not be exact, only
never too high. Before the log is cut on the leader's word the note is lowered.
"""

from __future__ import annotations

from crc32c import crc32c

from penstock.broker.layout import METADATA_DIRECTORY
from penstock.runtime import Runtime, Timer

PATH = f"{METADATA_DIRECTORY}/synced-end"
LATE_MS = 1_000
BUSY_POLL_MS = 1
UNKNOWN = -1


class SyncedEnd:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._end = UNKNOWN
        self._written = UNKNOWN
        self._writing = False
        self._closed = False
        self._timer: Timer | None = None

    def read(self) -> int:
        """What was noted last; -1 if there is nothing to go by."""
        disk = self._runtime.disk
        self._end = self._written = parse(disk.read_bytes(PATH)) if disk.exists(PATH) else UNKNOWN
        return self._written

    def moved(self, end: int) -> None:
        """The log is durable up to here."""
        self._end = end
        if self._end > self._written and self._timer is None and not self._writing and not self._closed:
            self._timer = self._runtime.call_later(LATE_MS, self._begin)

    async def lower(self, end: int) -> None:
        """The log will be cut here: once this returns, nothing on disk says that it was longer."""
        self._end = min(self._end, end)
        while self._writing:
            await self._runtime.sleep(BUSY_POLL_MS)
        if self._written > end:
            await self._write()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._timer = None
        if not self._writing and not self._closed:
            self._runtime.spawn(self._write(), "synced end")

    async def _write(self) -> None:
        self._writing = True
        end = self._end
        await self._runtime.disk.replace_bytes(PATH, text(end))
        self._written = end
        self._writing = False
        self.moved(self._end)


def text(end: int) -> bytes:
    return b"%d %08x\n" % (end, crc32c(b"%d" % end))


def parse(data: bytes) -> int:
    number, _, checksum = data.strip().partition(b" ")
    whole = number.isdigit() and checksum == b"%08x" % crc32c(number)
    return int(number) if whole else UNKNOWN

"""Making a log durable: group commit, and the offset below which records may be acknowledged.

`durable_end` is the offset below which everything survives a power loss: the bytes of the segments, their file names,
and the epochs that recovery could not find again in the batches. Kafka calls it the recovery point.

`stable_end` is the offset below which a write may be acknowledged. The configuration limits how much may be unsynced:

    flush.messages=N   at most N - 1 records. With 1 every append waits for its sync.
    flush.ms=T         no record older than T. A sync starts T after the first unsynced append; records appended while
                       it runs wait for it. With 0 every append waits for its sync.
    neither            no limit: Kafka's default, which relies on replication.

One pass at a time syncs everything that is not durable, so appends that arrive during a pass share the next one. A
failed sync ends the process: the kernel may have dropped the dirty pages, and a second sync would still succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log import names
from penstock.log.config import NEVER
from penstock.log.segment import OPEN_END
from penstock.runtime import Future, Timer

if TYPE_CHECKING:
    from penstock.log.core import LogCore
    from penstock.log.segment import Segment


class Flusher:
    """The syncs of one log. Created for the first sync."""

    __slots__ = (
        "_closed",
        "_closing",
        "_is_overdue",
        "_log",
        "_names_changed",
        "_running",
        "_target",
        "_timer",
        "_waiters",
    )

    def __init__(self, log: LogCore) -> None:
        self._log = log
        self._target = 0
        self._running = False
        self._is_overdue = False
        self._timer: Timer | None = None
        self._waiters: list[Future[None]] = []
        self._closed: list[Segment] = []
        """Closed segments whose indexes and snapshots are not synced yet."""
        self._closing: list[Segment] = []
        """Closed segments that the running pass syncs."""
        self._names_changed = log.names_in_doubt

    # ---- asking

    def flush(self) -> Future[None]:
        """The future resolves when everything now in the log is durable."""
        log = self._log
        future: Future[None] = log.runtime.future()
        if log.durable_end >= log.end_offset and not self._closed and not self._must_sync_names():
            future.set_result(None)
        else:
            self._waiters.append(future)
            self._request(log.end_offset)
        return future

    @property
    def proved_end(self) -> int:
        """The highest offset that the recovery point may have: recovery trusts the indexes of segments below it."""
        unproved = self._closing or self._closed
        return unproved[0].base_offset if unproved else OPEN_END

    def segment_closed(self, segment: Segment) -> None:
        """Sync a rolled segment in the background, so that a recovery need not read it."""
        self._closed.append(segment)
        self._request(segment.end_offset)

    def names_changed(self) -> None:
        """A file was created: it is durable only after its directory is synced."""
        self._names_changed = True

    def appended(self) -> None:
        """After an append or a sync: update `stable_end`, and start a sync if one is due."""
        log = self._log
        end = log.end_offset
        unsynced = end - log.durable_end
        flush_ms = log.config.flush_ms
        if unsynced >= log.config.flush_messages or (unsynced and flush_ms == 0):
            log.stable_end = max(log.stable_end, log.durable_end)
            self._request(end)
            return
        if unsynced and self._is_overdue:
            # The running sync started in time; these records wait for it and are synced by the next pass.
            log.stable_end = max(log.stable_end, log.durable_end)
            return
        log.stable_end = end
        if unsynced and flush_ms < NEVER and self._timer is None:
            self._timer = log.runtime.call_later(flush_ms, self._time_is_up)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- syncing

    def _time_is_up(self) -> None:
        self._timer = None
        self._is_overdue = True
        self._request(self._log.end_offset)

    def _request(self, target: int) -> None:
        self._target = max(self._target, target)
        if not self._running:
            self._running = True
            self._log.runtime.spawn_essential(self._run(), f"flush of {self._log.directory}")

    async def _run(self) -> None:
        log = self._log
        try:
            while not log.is_closed and (
                self._closed or self._waiters or min(self._target, log.end_offset) > log.durable_end
            ):
                await self._pass()
        except OSError as error:
            # Deleting a log removes its files, which makes a running sync fail.
            if not log.is_closed:
                log.fail("sync", error)
            return
        self._running = False

    async def _pass(self) -> None:
        log = self._log
        disk = log.runtime.disk
        version = log.version
        active = log.active
        # A pass for a closed segment does not sync the active one: nobody asked for that.
        target = log.end_offset if self._target > active.base_offset or self._waiters else active.base_offset
        # A flush requested during this pass waits for the next one: its records may not be in this pass.
        waiters, self._waiters = self._waiters, []
        closed, self._closed = self._closed, []
        self._closing = closed
        syncs = [
            segment.file.sync()
            for segment in log.segments
            if segment.has_file and segment.end_offset > log.durable_end and segment.base_offset < target
        ]
        for segment in closed:
            if not segment.is_removed and not segment.index.is_proved:
                # It was stored before the last clean stop, which did not sync it.
                await log.load_index(segment)
            syncs += self._side_files(segment)
        if self._must_sync_names():
            self._names_changed = False
            syncs += self._identity()
            syncs.append(disk.sync_dir(names.parent_of(log.directory)))
            if not log.epochs.is_dirty:
                syncs.append(disk.sync_dir(log.directory))
        if log.epochs.is_dirty:
            # Recovery cannot find an epoch that begins below the recovery point. (This write also syncs the directory.)
            log.epochs.is_dirty = False
            syncs.append(disk.replace_bytes(f"{log.directory}/{names.EPOCHS_NAME}", log.epochs.encode()))
        for sync in syncs:
            await sync
        self._closing = []
        if log.version == version:
            self._is_durable(target)
        else:
            # A truncation replaced what this pass synced; the new content needs another pass.
            self._waiters = waiters + self._waiters
            waiters = []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def _must_sync_names(self) -> bool:
        """Whether the directory needs a sync. A log that was never written to has no directory yet."""
        return self._names_changed and self._log.active.has_file

    def _identity(self) -> list[Future[None]]:
        """Sync `partition.metadata`. Without it the log's topic is unknown, and a start after a power loss would set
        the log aside."""
        disk = self._log.runtime.disk
        path = f"{self._log.directory}/{names.PARTITION_METADATA_NAME}"
        return [disk.open(path).sync()] if disk.exists(path) else []

    def _side_files(self, segment: Segment) -> list[Future[None]]:
        if segment.is_removed:
            return []
        files = list(segment.index_files())
        if segment.aborted_count:
            files.append(self._log.runtime.disk.open(segment.aborted.path))
        snapshot = names.path_of(self._log.directory, segment.end_offset, names.SNAPSHOT_SUFFIX)
        disk = self._log.runtime.disk
        if disk.exists(snapshot):
            files.append(disk.open(snapshot))
        return [file.sync() for file in files if disk.exists(file.path)]

    def _is_durable(self, target: int) -> None:
        log = self._log
        if target > log.durable_end:
            log.durable_end = target
        self._is_overdue = False
        if self._timer is not None and log.durable_end == log.end_offset:
            self._timer.cancel()
            self._timer = None
        self.appended()
        if log.on_durable is not None:
            log.on_durable(log)

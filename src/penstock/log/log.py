"""`Log`: one partition's log, as the rest of the broker sees it. The package docstring explains how it works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from penstock.log import names
from penstock.log.aborted import AbortedTransactions
from penstock.log.appending import Writer
from penstock.log.checkpoints import LogState, SegmentState
from penstock.log.config import LogConfig
from penstock.log.core import LogCore
from penstock.log.indexes import IndexCache
from penstock.log.listing import LogParts
from penstock.log.opening import open_parts
from penstock.log.producers import ProducerState
from penstock.log.reading import Reader
from penstock.log.scan import SLICE_MS
from penstock.log.snapshots import ProducerSnapshots
from penstock.log.trimming import Trimmer
from penstock.runtime import Runtime


class Log(LogCore):
    __slots__ = ("aborted", "reader", "snapshots", "trimmer", "writer")

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        config: LogConfig,
        parts: LogParts,
        cache: IndexCache,
        checkpoint: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Use `Log.open`."""
        super().__init__(
            runtime,
            directory,
            config,
            segments=parts.segments,
            start_offset=parts.start_offset,
            end_offset=parts.end_offset,
            durable_end=parts.durable_end,
            epochs=parts.epochs,
            cache=cache,
            checkpoint=checkpoint,
        )
        self.reader = Reader(self)
        self.snapshots = ProducerSnapshots(self, parts.producers, parts.snapshot_offset)
        self.aborted = AbortedTransactions(self, self.snapshots)
        self.writer = Writer(self, self.snapshots, self.aborted)
        self.trimmer = Trimmer(self, self.reader, self.writer, self.snapshots, self.aborted)

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.opens_batches = config.opens_batches
        self.writer.configure(config)

    @property
    def producers(self) -> ProducerState:
        return self.snapshots.state

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        directory: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int,
        start_offset: int,
        state: LogState | None = None,
        cache: IndexCache | None = None,
        checkpoint: Callable[[], Awaitable[None]] | None = None,
        slice_ms: float = SLICE_MS,
    ) -> Self:
        """Open a log, or create a new one.

        `clean`: the log was closed cleanly, so `recovery_point` is its end. With the `state` that the clean stop saved,
        nothing is read at all. Otherwise the log is scanned from the recovery point and truncated at the first
        incomplete or corrupt batch; `state` is then that of an earlier clean stop, if the log has only grown since.
        `checkpoint` is awaited before a truncation lowers the recovery point or the start offset, to make the new
        values durable. Raises CorruptLog.
        """
        cache = IndexCache() if cache is None else cache
        parts = await open_parts(
            runtime,
            directory,
            config,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
            state=state,
            cache=cache,
            slice_ms=slice_ms,
        )
        log = cls(runtime, directory, config, parts, cache, checkpoint)
        log.damage = tuple(parts.damage)
        log.scanned_bytes, log.cut_bytes, log.cut_whole = parts.scanned_bytes, parts.cut_bytes, parts.cut_whole
        log.cuts = tuple(parts.cuts)
        log.names_in_doubt = not clean or state is None
        if parts.producers is None and state is not None and state.transactions:
            # Readers of committed records must not pass an open transaction, even if the snapshot is damaged.
            await log.snapshots.reload(log.reader)
        for path in parts.deleted:
            log.trimmer.unlink_later(path)
        for segment in parts.obsolete:
            log.trimmer.remove(segment)
        for segment in parts.rebuilt:
            log.flusher.segment_closed(segment)
        return log

    async def close(self, *, clean: bool = True) -> LogState | None:
        """Close the log. A clean close makes everything durable and returns what the next start needs."""
        if self.is_closed:
            return None
        state = None
        await self.trimmer.settled()
        if clean:
            try:
                await self._settle()
            except OSError as error:
                self.fail("closing", error)
            state = self._state()
        self.is_closed = True
        if self._flusher is not None:
            self._flusher.stop()
        for segment in self.segments:
            if clean:
                segment.release()
            else:
                segment.forget_indexes()
        return state

    async def delete(self) -> None:
        """Delete the log and its directory, durably when this returns. The disk space is freed a little later."""
        disk = self.runtime.disk
        self._let_go()
        if not disk.exists(self.directory):
            return
        doomed = names.aside(self.directory, self.runtime.uuid().hex(), names.DELETED_DIRECTORY_SUFFIX)
        try:
            disk.rename(self.directory, doomed)
            await disk.sync_dir(names.parent_of(self.directory))
        except OSError as error:
            self.fail("deleting", error)
        self.runtime.call_later(self._config.file_delete_delay_ms, self._remove_directory, doomed)

    async def detach(self) -> None:
        """Make the log durable and close it for good, because its directory is about to be renamed."""
        await self.trimmer.settled()
        try:
            await self.flush()
        except OSError as error:
            self.fail("flushing", error)
        self._let_go()

    def _let_go(self) -> None:
        """Release the files: they may no longer be used under these names."""
        self.is_closed = True
        self.trimmer.changed()
        if self._flusher is not None:
            self._flusher.stop()
        self.trimmer.cancel_unlinks()
        for segment in self.segments:
            segment.is_removed = True
            segment.discard_indexes()

    async def _settle(self) -> None:
        """Write to disk everything that an unclean start would have to rebuild."""
        self.trimmer.unlink_at_once()
        is_written = self.durable_end < self.end_offset or self._flusher is not None or self.version > 0
        if not is_written and not self.names_in_doubt:
            return  # nothing was appended since a clean start
        if self.active.has_file:
            self.active.store_index()
        self.snapshots.write()
        if self.snapshots.offset == self.end_offset and len(self.producers):
            # The next start relies on this snapshot.
            await self.runtime.disk.open(self.snapshots.path).sync()
            self.flusher.names_changed()
        if self.active.aborted_count > 0:
            # The next start keeps the entries of markers before this snapshot.
            await self.runtime.disk.open(self.active.aborted.path).sync()
        await self.flush()

    def _state(self) -> LogState:
        segments = [
            SegmentState(s.base_offset, s.size_bytes, s.max_timestamp, s.max_timestamp_offset, s.aborted_count)
            for s in self.segments
            if s.has_file
        ]
        return LogState(
            name=self.name,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            segments=segments,
            epochs=self.epochs.entries,
            first_timestamp=self.active.first_timestamp,
            producers=1 if self.snapshots.loaded is None else len(self.snapshots.loaded),
            seal=self.active.seal,
            transactions=0 if self.transactions is None else len(self.transactions),
        )

    def _remove_directory(self, path: str) -> None:
        self.runtime.spawn(self._remove_tree(path), f"remove {path}")

    async def _remove_tree(self, path: str) -> None:
        try:
            await self.runtime.offload(self.runtime.disk.rmtree, path)
        except OSError as error:
            self.fail("removing a deleted log", error)

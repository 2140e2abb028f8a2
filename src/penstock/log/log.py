"""`Log`: one partition's log, as the rest of the broker sees it. See the package for how it works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from penstock.log import names
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
    __slots__ = ("reader", "snapshots", "trimmer", "writer")

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
        self.writer = Writer(self, self.snapshots)
        self.trimmer = Trimmer(self, self.reader, self.writer, self.snapshots)

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
        """Open a log, or begin a new one.

        `clean`: it was closed cleanly, so `recovery_point` is where it ends; with the `state` that the clean stop
        wrote down nothing is read at all. Otherwise the log is scanned from the recovery point on and cut where the
        first batch is not whole; then `state` is what an earlier clean stop wrote down, if the log only grew since.
        `checkpoint` is called, and awaited, before the recovery point or the start offset goes back in a truncation: it
        makes them durable. Raises CorruptLog.
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
        for path in parts.deleted:
            log.trimmer.unlink_later(path)
        for segment in parts.obsolete:
            log.trimmer.remove(segment)
        for segment in parts.rebuilt:
            log.flusher.segment_closed(segment)
        return log

    async def close(self, *, clean: bool = True) -> LogState | None:
        """Let go of the log. A clean close makes everything durable and tells what the next start needs to know."""
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
            elif segment.loaded_index is not None:
                self.cache.forget(segment.loaded_index)
        return state

    async def delete(self) -> None:
        """Remove the log and its directory: durably when this returns. The bytes go a little later."""
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
        """Close the log for good, because its directory gets another name: all of it is durable then."""
        await self.trimmer.settled()
        try:
            await self.flush()
        except OSError as error:
            self.fail("flushing", error)
        self._let_go()

    def _let_go(self) -> None:
        """Nobody may use the files under these names any longer."""
        self.is_closed = True
        self.trimmer.changed()
        if self._flusher is not None:
            self._flusher.stop()
        self.trimmer.cancel_unlinks()
        for segment in self.segments:
            segment.is_removed = True
            if segment.loaded_index is not None:
                segment.loaded_index.discard()

    async def _settle(self) -> None:
        """Bring to disk what an unclean stop would have to find out again."""
        self.trimmer.unlink_at_once()
        is_written = self.durable_end < self.end_offset or self._flusher is not None or self.version > 0
        if not is_written and not self.names_in_doubt:
            return  # nothing happened since a clean start
        if self.active.has_file:
            self.active.store_index()
        self.snapshots.write()
        if self.snapshots.offset == self.end_offset and len(self.producers):
            # The next start believes that it is there, and whole.
            await self.runtime.disk.open(self.snapshots.path).sync()
            self.flusher.names_changed()
        await self.flush()

    def _state(self) -> LogState:
        segments = [
            SegmentState(s.base_offset, s.size_bytes, s.max_timestamp, s.max_timestamp_offset)
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
        )

    def _remove_directory(self, path: str) -> None:
        self.runtime.spawn(self._remove_tree(path), f"remove {path}")

    async def _remove_tree(self, path: str) -> None:
        try:
            await self.runtime.offload(self.runtime.disk.rmtree, path)
        except OSError as error:
            self.fail("removing a deleted log", error)

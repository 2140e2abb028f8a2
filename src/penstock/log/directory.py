"""A data directory: its logs, and the checkpoint files at its root.

Life cycle:

    directory = LogDirectory(runtime)
    await directory.load()                              # reads the checkpoints; from here on a stop is unclean
    await directory.open_all({name: config}, opened)    # or `open` one by one
    await directory.checkpoint()                        # now and then: the less a recovery has to read
    await directory.close()                             # a clean stop
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import suppress

from penstock.log import names
from penstock.log.checkpoints import (
    CheckpointDamaged,
    LogState,
    encode_clean_shutdown,
    encode_offsets,
    read_clean_shutdown,
    read_offsets,
)
from penstock.log.config import LogConfig
from penstock.log.indexes import IndexCache
from penstock.log.log import Log
from penstock.log.opening_many import CONCURRENT_LOGS, Progress, open_many
from penstock.log.recovery import CorruptLog
from penstock.log.scan import SLICE_MS
from penstock.runtime import Future, Runtime

CONCURRENT_CLOSES = 32
"""Logs that are closed at once, so that their syncs share rounds."""


class LogDirectory:
    def __init__(self, runtime: Runtime, path: str = "", *, cache: IndexCache | None = None) -> None:
        """`path` is relative to the root of the runtime's disk, which it is by default."""
        self.runtime = runtime
        self.path = path
        self.cache = IndexCache() if cache is None else cache
        self.logs: dict[str, Log] = {}
        self.is_clean = False
        """Whether the last stop was a clean one."""
        self._states: dict[str, LogState] = {}
        """Logs as the last clean stop left them. What it says is true as long as they only grow."""
        self._untouched: dict[str, None] = {}
        """Those of them that have not been opened since, if that was the last stop."""
        self._recovery_points: dict[str, int] = {}
        self._start_offsets: dict[str, int] = {}
        self._clean_ends: dict[str, int] = {}
        self._present: dict[str, None] = {}
        """What was in the directory when it was loaded, as far as it has not been deleted since."""
        self._written: dict[str, bytes] = {}
        """Checkpoint files as they are on disk, by name."""
        self._names_new = False
        """Directories were made that are perhaps not durable."""
        self._asked = 0
        self._done = 0
        self._writing: Future[None] | None = None

    async def load(self) -> None:
        """Read the checkpoints, and note on disk that the logs are in use. Raises CheckpointDamaged."""
        disk = self.runtime.disk
        if not disk.exists(self.path):
            disk.mkdir(self.path)
            await disk.sync_dir(names.parent_of(self.path))
        for name in (names.START_OFFSETS_NAME, names.RECOVERY_POINTS_NAME, names.CLEANER_OFFSETS_NAME):
            if disk.exists(self._at(name)):
                self._written[name] = disk.read_bytes(self._at(name))
        self._recovery_points = self._read(
            names.RECOVERY_POINTS_NAME, "all logs are then checked as if nothing of them had been synced"
        )
        self._start_offsets = self._read(
            names.START_OFFSETS_NAME, "records that were deleted with DeleteRecords may then come back"
        )
        with suppress(CheckpointDamaged):
            # Without it some logs are compacted that are compacted already.
            self._clean_ends = read_offsets(disk, self._at(names.CLEANER_OFFSETS_NAME))
        states = read_clean_shutdown(disk, self._at(names.CLEAN_SHUTDOWN_NAME))
        self.is_clean = states is not None
        if disk.exists(self._at(names.CLEAN_SHUTDOWN_NAME)):
            disk.rename(self._at(names.CLEAN_SHUTDOWN_NAME), self._at(names.LAST_CLEAN_SHUTDOWN_NAME))
            await disk.sync_dir(self.path)
        else:
            states = read_clean_shutdown(disk, self._at(names.LAST_CLEAN_SHUTDOWN_NAME))
        self._states = states or {}
        if self.is_clean:
            self._untouched = dict.fromkeys(self._states)
        self._present = dict.fromkeys(disk.list(self.path))
        for name in self._present:
            if name.endswith(names.DELETED_DIRECTORY_SUFFIX):
                await self.runtime.offload(disk.rmtree, self._at(name))

    def _read(self, name: str, without: str) -> dict[str, int]:
        try:
            return read_offsets(self.runtime.disk, self._at(name))
        except CheckpointDamaged as error:
            raise CheckpointDamaged(f"{error}. Restore it from a copy, or remove it: {without}") from None

    def names(self) -> list[str]:
        """The logs that have a directory here."""
        found = []
        for name in self.runtime.disk.list(self.path):
            topic, _, partition = name.rpartition("-")
            if topic and partition.isascii() and partition.isdigit():
                found.append(name)
        return found

    async def open(
        self, name: str, config: LogConfig, *, replicated: bool = False, slice_ms: float = SLICE_MS
    ) -> Log:
        """Open a log, or make a new one. Raises CorruptLog.

        `replicated`: other replicas have it, too. Then one that turns out to be damaged below its recovery point is cut
        there like one that was torn, so that the rest is copied again, instead of being kept as it is.
        """
        assert name not in self.logs, f"{name} is open already"
        damage: tuple[str, ...]
        try:
            log = await self._open(name, config, slice_ms, state=self._states.get(name))
            if not (replicated and log.damage):
                return log
            damage = log.damage
            del self.logs[name]
            await log.close(clean=False)
        except CorruptLog as error:
            if not replicated:
                raise
            damage = (str(error),)
        # Nothing vouches for any of it: all is read, and what is known of producers and epochs is made anew.
        self._recovery_points[name] = 0
        log = await self._open(name, config, slice_ms, state=None)
        await self.checkpoint()
        log.damage = (*damage, f"{name} is cut at offset {log.end_offset}: the rest is copied from its leader")
        return log

    async def _open(self, name: str, config: LogConfig, slice_ms: float, *, state: LogState | None) -> Log:
        directory = self._at(name)
        clean = name in self._untouched
        if not clean and name not in self._present:
            await self._forget(name)
        self._untouched.pop(name, None)
        log = await Log.open(
            self.runtime,
            directory,
            config,
            clean=clean,
            recovery_point=self._recovery_points.get(name, 0),
            start_offset=self._start_offsets.get(name, 0),
            state=state,
            cache=self.cache,
            checkpoint=self.checkpoint,
            slice_ms=slice_ms,
        )
        log.clean_end = min(self._clean_ends.get(name, 0), log.end_offset)
        self.logs[name] = log
        return log

    async def open_all(
        self,
        configs: Mapping[str, LogConfig],
        opened: Callable[[Log], None],
        *,
        replicated: Container[str] = (),
        concurrency: int = CONCURRENT_LOGS,
        on_failure: Callable[[str, Exception], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Open many logs, some at a time; `opened` gets each as soon as it is of use."""

        async def open_one(name: str, slice_ms: float) -> None:
            opened(await self.open(name, configs[name], replicated=name in replicated, slice_ms=slice_ms))

        return await open_many(
            self.runtime,
            configs,
            open_one,
            concurrency=concurrency,
            on_failure=on_failure,
            on_progress=on_progress,
        )

    async def checkpoint(self) -> None:
        """Make every log's recovery point and start offset durable, as they are now."""
        self._asked += 1
        mine = self._asked
        while self._done < mine:
            if self._writing is not None:
                await self._writing
                continue
            covers = self._asked
            self._writing = self.runtime.future()
            try:
                await self._write_offsets()
                self._done = covers
            finally:
                self._writing.set_result(None)
                self._writing = None

    async def delete(self, name: str) -> None:
        """Remove a log. A new one of that name starts from nothing.

        The checkpoints forget it first: while they list a log, nobody here meant its directory to go (`had`).
        """
        log = self.logs.pop(name, None)
        self._untouched.pop(name, None)
        self._present.pop(name, None)
        await self._forget(name)
        if log is not None:
            await log.delete()

    async def release(self, name: str) -> None:
        """Close a log, and let the checkpoints forget it, but keep its files: its directory gets another name."""
        log = self.logs.pop(name, None)
        self._untouched.pop(name, None)
        self._present.pop(name, None)
        if log is not None:
            await log.detach()
        await self._forget(name)

    def had(self, name: str) -> bool:
        """Whether this log was here, and nobody here removed it, as far as the checkpoints tell."""
        state = self._states.get(name)
        if name in self._untouched:
            return state is not None and state.end_offset > 0
        return name in self._recovery_points or state is not None

    def was_closed(self, name: str) -> bool:
        """Whether the last stop closed this log cleanly, and it has not been opened since."""
        return name in self._untouched

    async def close(self) -> None:
        """Stop cleanly: close all logs, then write down what the next start needs."""
        states = [self._states[name] for name in self._untouched]

        async def close_one(name: str, slice_ms: float) -> None:
            state = await self.logs[name].close()
            if state is not None:
                states.append(state)

        await open_many(self.runtime, list(self.logs), close_one, concurrency=CONCURRENT_CLOSES)
        await self.checkpoint()
        data = encode_clean_shutdown(states)
        await self.runtime.disk.replace_bytes(self._at(names.CLEAN_SHUTDOWN_NAME), data)

    def recovery_point(self, name: str) -> int:
        """Up to where this log was synced, by the checkpoint; 0 if it is not known."""
        return self._recovery_points.get(name, 0)

    def forget_checkpoints(self, name: str) -> None:
        """The files of this log, which is not open, were removed: a new one of that name starts from nothing."""
        assert name not in self.logs
        for known in (self._recovery_points, self._start_offsets, self._clean_ends, self._states, self._untouched):
            known.pop(name, None)

    async def _forget(self, name: str) -> None:
        """Where the checkpoints know a log of this name that is gone, they would mislead a new one."""
        known = self._recovery_points.pop(name, None) is not None
        known = self._start_offsets.pop(name, None) is not None or known
        known = self._clean_ends.pop(name, None) is not None or known
        if known or name in self._states:
            await self.checkpoint()

    async def _write_offsets(self) -> None:
        # Where one log has been compacted others soon are: they are taken out together, because it costs as much.
        rewrites = any(log.is_rewritten for log in self.logs.values())
        cut = [
            name
            for name, state in self._states.items()
            if (log := self.logs.get(name)) is not None
            and (
                log.end_offset < state.end_offset
                or log.segments[0].base_offset > state.end_offset
                or log.is_rewritten
                or (rewrites and log.config.compacts)
            )
        ]
        gone = [
            name
            for name in self._states
            if name not in self.logs and name not in self._untouched and name not in self._recovery_points
        ]
        for name in cut + gone:
            del self._states[name]
        if cut or gone:
            data = encode_clean_shutdown(list(self._states.values()))
            await self.runtime.disk.replace_bytes(self._at(names.LAST_CLEAN_SHUTDOWN_NAME), data)
        for name, log in self.logs.items():
            self._names_new = self._names_new or name not in self._recovery_points
            self._recovery_points[name] = log.recovery_point
            if log.start_offset > log.segments[0].base_offset:
                self._start_offsets[name] = log.start_offset
            else:
                self._start_offsets.pop(name, None)
            if log.clean_end > log.start_offset:
                self._clean_ends[name] = log.clean_end
            else:
                self._clean_ends.pop(name, None)
        starts = encode_offsets(self._start_offsets.items())
        points = encode_offsets(self._recovery_points.items())
        # In this order: a start offset without its recovery point empties a log that was to be emptied; a recovery
        # point without its start offset would vouch for records that are not there.
        is_synced = await self._replace(names.START_OFFSETS_NAME, starts)
        if self._names_new and not is_synced:
            # Before the next file lists them: what it lists is missed if it is gone (`had`).
            await self.runtime.disk.sync_dir(self.path)
        self._names_new = False
        await self._replace(names.RECOVERY_POINTS_NAME, points)
        if self._clean_ends or names.CLEANER_OFFSETS_NAME in self._written:
            await self._replace(names.CLEANER_OFFSETS_NAME, encode_offsets(self._clean_ends.items()))

    async def _replace(self, name: str, data: bytes) -> bool:
        """Returns whether it was written, and with it all names in the directory made durable."""
        if self._written.get(name) == data:
            return False
        await self.runtime.disk.replace_bytes(self._at(name), data)
        self._written[name] = data
        return True

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

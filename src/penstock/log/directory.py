"""A data directory: its logs, and the checkpoint files at its root.

Life cycle:

    directory = LogDirectory(runtime)
    await directory.load()                              # reads the checkpoints; until `close`, a stop is unclean
    await directory.open_all({name: config}, opened)    # or `open` one by one
    await directory.checkpoint()                        # from time to time: shortens the next recovery
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
"""How many logs are closed concurrently, so that they share syncs."""


class LogDirectory:
    def __init__(self, runtime: Runtime, path: str = "", *, cache: IndexCache | None = None) -> None:
        """`path` is relative to the root of the runtime's disk; empty means the root itself."""
        self.runtime = runtime
        self.path = path
        self.cache = IndexCache() if cache is None else cache
        self.logs: dict[str, Log] = {}
        self.is_clean = False
        """Whether the last stop was clean."""
        self._states: dict[str, LogState] = {}
        """The logs as the last clean stop left them; valid for a log as long as it has only grown since."""
        self._untouched: dict[str, None] = {}
        """After a clean stop: its logs that have not been opened since."""
        self._recovery_points: dict[str, int] = {}
        self._start_offsets: dict[str, int] = {}
        self._clean_ends: dict[str, int] = {}
        self._present: dict[str, None] = {}
        """The directory's entries when it was loaded, without those deleted since."""
        self._written: dict[str, bytes] = {}
        """The current content of the checkpoint files, by name."""
        self._names_new = False
        """New directories were created that may not be durable yet."""
        self._asked = 0
        self._done = 0
        self._writing: Future[None] | None = None

    async def load(self) -> None:
        """Read the checkpoints and mark the logs as in use on disk. Raises CheckpointDamaged."""
        disk = self.runtime.disk
        if not disk.exists(self.path):
            disk.mkdir(self.path)
            await disk.sync_dir(names.parent_of(self.path))
        for name in (names.START_OFFSETS_NAME, names.RECOVERY_POINTS_NAME, names.CLEANER_OFFSETS_NAME):
            if disk.exists(self._at(name)):
                self._written[name] = disk.read_bytes(self._at(name))
        self._recovery_points = self._read(
            names.RECOVERY_POINTS_NAME, "all logs are then checked from their start, as if never synced"
        )
        self._start_offsets = self._read(
            names.START_OFFSETS_NAME, "records deleted with DeleteRecords may then reappear"
        )
        with suppress(CheckpointDamaged):
            # If it is unreadable, the only cost is compacting some logs again.
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
        """The names of the logs that have a directory here."""
        found = []
        for name in self.runtime.disk.list(self.path):
            topic, _, partition = name.rpartition("-")
            if topic and partition.isascii() and partition.isdigit():
                found.append(name)
        return found

    async def open(self, name: str, config: LogConfig, *, replicated: bool = False, slice_ms: float = SLICE_MS) -> Log:
        """Open a log, or create it. Raises CorruptLog.

        `replicated`: other replicas have a copy. If such a log is damaged below its recovery point, it is truncated at
        the damage and copied again from its leader. Without replicas it is kept as it is.
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
        # The recovery point cannot be trusted: read the whole log and rebuild the producer state and the epochs.
        self._recovery_points[name] = 0
        log = await self._open(name, config, slice_ms, state=None)
        await self.checkpoint()
        log.damage = (
            *damage,
            f"{name} was truncated at offset {log.end_offset}; the rest will be copied from its leader",
        )
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
        """Open many logs, `concurrency` at a time; call `opened` with each as soon as it can be used."""

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
        """Write the current recovery points and start offsets of all logs durably."""
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
        """Delete a log. A new log of the same name starts empty.

        The log is removed from the checkpoints first: `had` reports a log that they list but that has no directory as
        missing.
        """
        log = self.logs.pop(name, None)
        self._untouched.pop(name, None)
        self._present.pop(name, None)
        await self._forget(name)
        if log is not None:
            await log.delete()

    async def release(self, name: str) -> None:
        """Close a log and remove it from the checkpoints but keep its files, because its directory is being renamed."""
        log = self.logs.pop(name, None)
        self._untouched.pop(name, None)
        self._present.pop(name, None)
        if log is not None:
            await log.detach()
        await self._forget(name)

    def had(self, name: str) -> bool:
        """Whether the checkpoints list this log, that is: it existed and was not deleted by a broker."""
        state = self._states.get(name)
        if name in self._untouched:
            return state is not None and state.end_offset > 0
        return name in self._recovery_points or state is not None

    def was_closed(self, name: str) -> bool:
        """Whether the last stop closed this log cleanly and it has not been opened since."""
        return name in self._untouched

    async def close(self) -> None:
        """Stop cleanly: close all logs, then write the clean-shutdown checkpoint for the next start."""
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
        """The offset up to which the checkpoint says this log was synced; 0 if unknown."""
        return self._recovery_points.get(name, 0)

    def forget_checkpoints(self, name: str) -> None:
        """Remove this log, which is not open, from the checkpoints because its files were removed. A new log of the
        same name starts empty."""
        assert name not in self.logs
        for known in (self._recovery_points, self._start_offsets, self._clean_ends, self._states, self._untouched):
            known.pop(name, None)

    async def _forget(self, name: str) -> None:
        """Remove entries that belong to a former log of this name: they would be applied to the new one."""
        known = self._recovery_points.pop(name, None) is not None
        known = self._start_offsets.pop(name, None) is not None or known
        known = self._clean_ends.pop(name, None) is not None or known
        if known or name in self._states:
            await self.checkpoint()

    async def _write_offsets(self) -> None:
        # If one log was compacted, others probably were, too. Removing all their entries costs one write.
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
        # The start offsets are written first. A start offset without its recovery point only empties a log that was to
        # be emptied; a recovery point without its start offset would vouch for records that do not exist.
        is_synced = await self._replace(names.START_OFFSETS_NAME, starts)
        if self._names_new and not is_synced:
            # Make the directories durable before a file lists them: a listed log without a directory counts as lost
            # (`had`).
            await self.runtime.disk.sync_dir(self.path)
        self._names_new = False
        await self._replace(names.RECOVERY_POINTS_NAME, points)
        if self._clean_ends or names.CLEANER_OFFSETS_NAME in self._written:
            await self._replace(names.CLEANER_OFFSETS_NAME, encode_offsets(self._clean_ends.items()))

    async def _replace(self, name: str, data: bytes) -> bool:
        """Returns whether the file was written, which also makes all names in the directory durable."""
        if self._written.get(name) == data:
            return False
        await self.runtime.disk.replace_bytes(self._at(name), data)
        self._written[name] = data
        return True

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

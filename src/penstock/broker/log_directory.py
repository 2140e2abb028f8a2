"""All logs of a data directory, and the files at its root that tell about them.

`recovery-point-offset-checkpoint` and `log-start-offset-checkpoint` are written now and then, and before one of them
may go back; the clean shutdown checkpoint is the last thing a clean stop writes and the first a start takes away.
"""

from __future__ import annotations

from penstock.log import Log, LogConfig
from penstock.log.checkpoints import LogState, encode_clean_shutdown, encode_offsets, read_clean_shutdown, read_offsets
from penstock.log.indexes import IndexCache
from penstock.log.names import CLEAN_SHUTDOWN_NAME, RECOVERY_POINTS_NAME, START_OFFSETS_NAME
from penstock.runtime import Future, Runtime


class LogDirectory:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._cache = IndexCache()
        self._logs: dict[str, Log] = {}
        self._writing: Future[None] | None = None
        self._states: dict[str, LogState] | None = None
        self._recovery_points: dict[str, int] = {}
        self._start_offsets: dict[str, int] = {}

    async def open(self) -> None:
        """Read what the last stop left. Raises CheckpointDamaged."""
        disk = self._runtime.disk
        self._states = read_clean_shutdown(disk)
        self._recovery_points = read_offsets(disk, RECOVERY_POINTS_NAME)
        self._start_offsets = read_offsets(disk, START_OFFSETS_NAME)
        if disk.exists(CLEAN_SHUTDOWN_NAME):
            disk.unlink(CLEAN_SHUTDOWN_NAME)
            await disk.sync_dir("")

    @property
    def clean(self) -> bool:
        """The last stop was a clean one: nothing needs to be checked."""
        return self._states is not None

    async def open_log(self, name: str, config: LogConfig, *, new: bool = False) -> Log:
        """Open the log in directory `name`. A `new` one is known to be empty."""
        state = self._states.pop(name, None) if self._states is not None else None
        if state is None and new:
            state = LogState(name, 0, 0, [], [], -1, 0)
        log = await Log.open(
            self._runtime,
            name,
            config,
            clean=False,
            recovery_point=self._recovery_points.pop(name, 0),
            start_offset=self._start_offsets.pop(name, 0),
            state=state,
            cache=self._cache,
            checkpoint=self.checkpoint,
        )
        self._logs[name] = log
        return log

    def forget(self, name: str) -> None:
        """The log is deleted."""
        self._logs.pop(name, None)
        self._recovery_points.pop(name, None)
        self._start_offsets.pop(name, None)

    async def checkpoint(self) -> None:
        """Make recovery points and start offsets durable, as they are now or newer."""
        while self._writing is not None:
            # One that is under way may have been encoded before the caller's change.
            await self._writing
        self._writing = self._runtime.future()
        try:
            disk = self._runtime.disk
            # Logs that are not open yet (a recovery is under way) keep what is known of them.
            points = {**self._recovery_points, **{name: log.recovery_point for name, log in self._logs.items()}}
            starts = {**self._start_offsets, **{name: log.start_offset for name, log in self._logs.items()}}
            await disk.replace_bytes(RECOVERY_POINTS_NAME, encode_offsets(points.items()))
            nonzero = [(name, offset) for name, offset in starts.items() if offset > 0]
            await disk.replace_bytes(START_OFFSETS_NAME, encode_offsets(nonzero))
        finally:
            writing, self._writing = self._writing, None
            writing.set_result(None)

    async def close(self) -> None:
        """Close every log cleanly and say so on disk, last of all."""
        states: list[LogState] = []
        for log in list(self._logs.values()):
            state = await log.close()
            if state is not None:
                states.append(state)
        await self.checkpoint()
        await self._runtime.disk.replace_bytes(CLEAN_SHUTDOWN_NAME, encode_clean_shutdown(states))

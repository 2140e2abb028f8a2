"""The simulated sync thread: `penstock.runtime.syncer` in virtual time, on a disk that can fail."""

from __future__ import annotations

import errno
from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.runtime.paths import TEMPORARY_SUFFIX, split
from penstock.sim.disk import SYNC_LATENCY_MS, SimulatedCrash
from penstock.sim.inode import Inode, SyncSnapshot
from penstock.sim.namespace import JournalEntry

if TYPE_CHECKING:
    from penstock.sim.mount import MountedDisk, SimFile

__all__ = ["SimSyncThread", "fail", "succeed"]


class _Ask:
    __slots__ = ("error", "futures", "steps", "subject")

    def __init__(self, subject: object, steps: list[Callable[[], None]]) -> None:
        self.subject = subject
        self.steps = steps
        self.futures: list[Future[None]] = []
        self.error: OSError | None = None


class SimSyncThread:
    """Rounds of sync work, in the order requested.

    Each request is a list of steps, and virtual time passes before each, so that a process can die between two.
    """

    def __init__(self, mount: MountedDisk) -> None:
        self._mount = mount
        self._asked: list[_Ask] = []
        self._running = False
        self._failed: dict[object, OSError] = {}

    def sync_file(self, file: SimFile, inode: Inode) -> Future[None]:
        mount = self._mount
        mount.kernel.trace("sync", file.path)
        with mount.crash_point():
            mount.disk.operation()
        snapshot = inode.begin_sync()
        step = partial(self._sync_inode, file.path, inode, snapshot)
        for ask in self._asked:
            if ask.subject is inode:
                ask.steps = [step]
                return self._join(ask)
        return self._ask(_Ask(inode, [step]))

    def sync_dir(self, path: str) -> Future[None]:
        mount = self._mount
        mount.kernel.trace("sync_dir", path)
        with mount.crash_point():
            mount.disk.operation()
        namespace = mount.disk.namespace
        directory = namespace.directory(path)
        entries = namespace.begin_sync(directory)

        def sync() -> None:
            self._sync_names(path, entries)

        return self._ask(_Ask(directory, [sync]))

    def replace_bytes(self, path: str, data: bytes) -> Future[None]:
        mount = self._mount
        disk = mount.disk
        namespace = disk.namespace
        temporary = path + TEMPORARY_SUFFIX
        mount.kernel.trace("replace_bytes", path, len(data))

        def create() -> None:
            inode = namespace.find(temporary)
            if inode is None:
                disk.create(temporary, mount.kernel.wall_ms())
            else:
                disk.operation()
                namespace.file(temporary).truncate(0)

        def write() -> None:
            disk.write(namespace.file(temporary), data, 0)

        def sync() -> None:
            disk.operation()
            inode = namespace.file(temporary)
            self._sync_inode(temporary, inode, inode.begin_sync())

        def rename() -> None:
            disk.operation()
            namespace.rename(temporary, path)
            mount.moved(temporary, path)

        def sync_directory() -> None:
            disk.operation()
            parent = split(path)[0]
            self._sync_names(parent, namespace.begin_sync(namespace.directory(parent)))

        return self._ask(_Ask(("replace", path), [create, write, sync, rename, sync_directory]))

    def _ask(self, ask: _Ask) -> Future[None]:
        self._asked.append(ask)
        if not self._running:
            self._running = True
            # Requests made at the same moment belong to the same round.
            self._mount.kernel.schedule(0.0, self._begin_round)
        return self._join(ask)

    def _join(self, ask: _Ask) -> Future[None]:
        future: Future[None] = self._mount.kernel.future()
        ask.futures.append(future)
        return future

    def _begin_round(self) -> None:
        asks, self._asked = self._asked, []
        steps = [(ask, step) for ask in asks for step in ask.steps]
        self._step(asks, steps, 0)

    def _step(self, asks: list[_Ask], steps: list[tuple[_Ask, Callable[[], None]]], index: int) -> None:
        mount = self._mount
        if mount.is_dead or mount.disk.crashed:
            return
        if index == len(steps):
            mount.kernel.deliver(self._resolve, asks)
            if self._asked:
                self._begin_round()
            else:
                self._running = False
            return
        latency_ms = mount.disk.latency_ms(SYNC_LATENCY_MS)
        mount.kernel.schedule(latency_ms, self._run_step, asks, steps, index)

    def _run_step(self, asks: list[_Ask], steps: list[tuple[_Ask, Callable[[], None]]], index: int) -> None:
        mount = self._mount
        if mount.is_dead or mount.disk.crashed:
            return
        ask, step = steps[index]
        ask.error = self._failed.get(ask.subject)
        if ask.error is None:
            try:
                step()
            except OSError as error:
                self._failed[ask.subject] = ask.error = error
            except SimulatedCrash as crash:
                mount.kernel.crashed(str(crash))
                return
        self._step(asks, steps, index + 1)

    @staticmethod
    def _resolve(asks: list[_Ask]) -> None:
        for ask in asks:
            for future in ask.futures:
                if ask.error is not None:
                    fail(future, ask.error)
                else:
                    succeed(future, None)

    def _sync_inode(self, path: str, inode: Inode, snapshot: SyncSnapshot) -> None:
        disk = self._mount.disk
        if disk.sync_fails(path):
            inode.fail_sync(snapshot, disk.rng)
            raise OSError(errno.EIO, "input/output error", path)
        inode.finish_sync(snapshot)

    def _sync_names(self, path: str, entries: list[JournalEntry]) -> None:
        disk = self._mount.disk
        if disk.sync_fails(path):
            raise OSError(errno.EIO, "input/output error", path)
        disk.namespace.finish_sync(entries)


def succeed(future: Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def fail(future: Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)

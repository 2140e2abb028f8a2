"""The simulated disk as one process sees it: `penstock.runtime.Disk` in virtual time.

It behaves like the real one (`penstock.runtime.files`): one `File` per name, whose path follows renames; an unlinked
file is readable only while it is retained; syncs may be requested at any time, run in rounds by one (simulated) thread,
and complete together; after a failed sync of a file every later one fails.

It is stricter than the real one: a sync covers exactly what was written before it was requested, and a cached page may
be cold at any time.
"""

from __future__ import annotations

import errno
from asyncio import Future
from builtins import list as List
from collections.abc import Callable
from typing import Any, Protocol
from zlib import crc32

from penstock.runtime import Buffer, DirectoryInUse
from penstock.runtime.locks import LOCK_NAME
from penstock.runtime.paths import join, normal, split
from penstock.sim.disk import READ_LATENCY_MS, SimDisk, SimulatedCrash
from penstock.sim.inode import Inode
from penstock.sim.job_disk import SimJobDisk
from penstock.sim.namespace import Directory
from penstock.sim.syncer import SimSyncThread, fail, succeed

__all__ = ["MountedDisk", "SimFile"]


class Kernel(Protocol):
    """What a mount needs from its process."""

    def wall_ms(self) -> int: ...
    def future(self) -> Future[Any]: ...
    def schedule(self, delay_ms: float, callback: Callable[..., object], *args: object) -> None:
        """Runs something in the kernel later, whatever the process does meanwhile."""

    def deliver(self, callback: Callable[..., object], *args: object) -> None:
        """Runs something in the process when it is scheduled next."""

    def trace(self, kind: str, *values: object) -> None: ...
    def crashed(self, reason: str) -> None:
        """Reports that the process died inside a disk operation."""


class SimFile:
    """A file of a `MountedDisk`."""

    __slots__ = ("_inode", "_mount", "gone", "path", "retained")

    def __init__(self, mount: MountedDisk, path: str) -> None:
        self.path = path
        self.gone = False
        self.retained = 0
        self._mount = mount
        self._inode: Inode | None = None

    def __repr__(self) -> str:
        return f"<SimFile {self.path!r}{' (unlinked)' if self.gone else ''}>"

    def pwrite(self, data: Buffer, position: int) -> None:
        mount = self._mount
        inode = self.inode()
        mount.kernel.trace("pwrite", self.path, position, len(data), crc32(data))
        with mount.crash_point():
            mount.disk.write(inode, data if isinstance(data, bytes) else bytes(data), position)
        inode.mtime_ms = mount.kernel.wall_ms()

    def try_pread_into(self, buffer: memoryview, position: int) -> int:
        disk = self._mount.disk
        inode = self.inode()
        size = len(buffer)
        if disk.cold_read_probability and disk.rng.random() < disk.cold_read_probability:
            # None of it is cached, or only the first pages are.
            size = disk.rng.randrange(size) if size and disk.rng.random() < 0.5 else 0
            if size == 0:
                return 0
        data = disk.read(inode, size, position)
        buffer[: len(data)] = data
        return len(data)

    def pread(self, size: int, position: int) -> Future[bytes]:
        mount = self._mount
        inode = self.inode()
        future: Future[bytes] = mount.kernel.future()

        def read() -> None:
            if mount.is_dead:
                return
            try:
                data = mount.disk.read(inode, size, position)
            except OSError as error:
                mount.kernel.deliver(fail, future, error)
            else:
                mount.kernel.deliver(succeed, future, data)

        mount.kernel.schedule(mount.disk.latency_ms(READ_LATENCY_MS), read)
        return future

    def read(self, size: int, position: int) -> bytes:
        return self._mount.disk.read(self.inode(), size, position)

    def size(self) -> int:
        return len(self.inode().data)

    def sync(self) -> Future[None]:
        mount = self._mount
        if self.gone and not self.retained:
            # An unlinked file does not survive, so there is nothing to wait for.
            future: Future[None] = mount.kernel.future()
            future.set_result(None)
            return future
        return mount.syncer.sync_file(self, self.inode())

    def truncate(self, size: int) -> None:
        mount = self._mount
        inode = self.inode()
        mount.kernel.trace("truncate", self.path, size)
        with mount.crash_point():
            mount.disk.operation()
        inode.truncate(size)
        inode.mtime_ms = mount.kernel.wall_ms()

    def retain(self) -> None:
        if not self.gone and self._inode is None and self._mount.exists(self.path):
            self.inode()
        self.retained += 1

    def release(self) -> None:
        assert self.retained > 0, f"{self.path}: release without retain"
        self.retained -= 1

    def close(self) -> None:
        pass

    def inode(self) -> Inode:
        self._mount.check_alive()
        if self.gone and not self.retained:
            raise FileNotFoundError(errno.ENOENT, "the file was unlinked", self.path)
        if self._inode is None:
            self._inode = self._mount.disk.namespace.file(self.path)
        return self._inode


class MountedDisk:
    """`penstock.runtime.Disk` on a `SimDisk`."""

    def __init__(self, disk: SimDisk, kernel: Kernel, root: str = "simulated") -> None:
        self.root = root
        self.disk = disk
        self.kernel = kernel
        self.is_dead = False
        self.syncer = SimSyncThread(self)
        self._files: dict[str, SimFile] = {}

    def open(self, path: str, *, create: bool = False) -> SimFile:
        path = normal(path)
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = SimFile(self, path)
        if create and not self.exists(path):
            self.kernel.trace("create", path)
            self.disk.namespace.directory(split(path)[0])
            with self.crash_point():
                self.disk.create(path, self.kernel.wall_ms())
        return file

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self.disk.namespace.find(normal(path)) is not None

    def list(self, path: str) -> List[str]:
        self.check_alive()
        node = self.disk.namespace.find(normal(path))
        if node is None:
            return []
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return sorted(node.entries)

    def size(self, path: str) -> int:
        self.check_alive()
        return len(self.disk.namespace.file(normal(path)).data)

    def mtime_ms(self, path: str) -> int:
        self.check_alive()
        return self.disk.namespace.file(normal(path)).mtime_ms

    def mkdir(self, path: str) -> None:
        made = ""
        for name in normal(path).split("/"):
            made = join(made, name)
            if made and not self.exists(made):
                self.kernel.trace("mkdir", made)
                with self.crash_point():
                    self.disk.operation()
                self.disk.namespace.mkdir(made)

    def rename(self, source: str, target: str) -> None:
        source, target = normal(source), normal(target)
        self.kernel.trace("rename", source, target)
        with self.crash_point():
            self.disk.operation()
        self._keep_retained(target)
        self.disk.namespace.rename(source, target)
        self.moved(source, target)

    def unlink(self, path: str) -> None:
        path = normal(path)
        node = self.disk.namespace.find(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is not None:
            self._remove(path)

    def rmtree(self, path: str) -> None:
        path = normal(path)
        node = self.disk.namespace.find(path)
        if isinstance(node, Directory):
            for name in sorted(node.entries):
                self.rmtree(join(path, name))
        if node is not None and path:
            self._remove(path)

    def sync_dir(self, path: str) -> Future[None]:
        self.check_alive()
        return self.syncer.sync_dir(normal(path))

    def read_bytes(self, path: str) -> bytes:
        self.check_alive()
        inode = self.disk.namespace.file(normal(path))
        return self.disk.read(inode, len(inode.data), 0)

    def replace_bytes(self, path: str, data: bytes) -> Future[None]:
        self.check_alive()
        return self.syncer.replace_bytes(normal(path), bytes(data))

    def lock(self, path: str) -> SimLock:
        lock_path = join(normal(path), LOCK_NAME)
        self.open(lock_path, create=True)
        return SimLock(self.disk, lock_path)

    def free_bytes(self) -> int:
        return self.disk.free_bytes()

    def use_io_threads(self, count: int) -> None:
        """Does nothing: the simulated disk waits in virtual time."""

    def total_bytes(self) -> int:
        return self.disk.capacity_bytes

    def for_jobs(self) -> SimJobDisk:
        return SimJobDisk(self)

    def check_alive(self) -> None:
        if self.is_dead or self.disk.crashed:
            raise SimulatedCrash("the process has ended; nothing reaches the disk any more")

    def crash_point(self) -> _CrashPoint:
        return _CrashPoint(self)

    def moved(self, source: str, target: str) -> None:
        """Renames the open files below `source` to `target`."""
        self._detach(target)
        below = source + "/"
        for path in [path for path in self._files if path == source or path.startswith(below)]:
            file = self._files.pop(path)
            file.path = target + path[len(source) :]
            self._files[file.path] = file

    def _remove(self, path: str) -> None:
        self.kernel.trace("unlink", path)
        with self.crash_point():
            self.disk.operation()
        self._keep_retained(path)
        self.disk.namespace.remove(path)
        self._detach(path)

    def _keep_retained(self, path: str) -> None:
        file = self._files.get(path)
        if file is not None and file.retained and self.exists(path):
            file.inode()

    def _detach(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.gone = True


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        if path in disk.locks:
            raise DirectoryInUse(f"{split(path)[0] or '.'} is in use by another process (it holds {path})")
        self._disk = disk
        self._path = path
        disk.locks[path] = self

    def release(self) -> None:
        if self._disk.locks.get(self._path) is self:
            del self._disk.locks[self._path]


class _CrashPoint:
    """Tells the process that it is dead if the disk's crash point fires inside the block."""

    __slots__ = ("_mount",)

    def __init__(self, mount: MountedDisk) -> None:
        self._mount = mount

    def __enter__(self) -> None:
        self._mount.check_alive()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, SimulatedCrash):
            self._mount.kernel.crashed(str(error))

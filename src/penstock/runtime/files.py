"""Files of the real disk: lazily opened descriptors, non-blocking reads, grouped syncs.

Threads. A disk belongs to the thread that created it, the loop's. Only that thread opens and closes descriptors, so the
hot calls (`pwrite`, `try_pread_into`) need no lock. Work in other threads holds a *pin*, taken on the loop before it
starts and released on the loop after it ended. A pinned descriptor is never closed: one closed too early would be
reused by the next open, and bytes would go to the wrong file. `File.read`, `File.size` and the methods of the disk may
also be called from `Runtime.offload`ed code: they use a descriptor of their own, or none.

Descriptors. At most `descriptors_max` are open. The clock algorithm (a used file gets a second chance) picks the one to
close, because marking a file as used must cost the hot path only a store. Pinned and retained files are skipped, so the
limit can be exceeded by as many as are in use. Closing a descriptor loses neither the data written through it nor a
write-back error: Linux reports that to the next descriptor that syncs.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import threading
from asyncio import AbstractEventLoop, Future
from builtins import list as List
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from weakref import ref

from penstock.runtime import Buffer
from penstock.runtime.job_disk import RealJobDisk
from penstock.runtime.locks import RealLock
from penstock.runtime.paths import join, normal, split
from penstock.runtime.syncer import SyncThread
from penstock.runtime.syscalls import CLOSED, FILE_MODE, read_fully, replace_bytes, sync_directory, write_rest

__all__ = ["RealDisk", "RealFile", "descriptors_max_default", "raise_descriptor_limit"]

DESCRIPTORS_MIN = 64
DESCRIPTORS_MAX = 4096
IO_THREADS_DEFAULT = 8
IO_THREAD_NAMES = "penstock-io"

SENDFILE_PROBE_BYTES = 64 * 1024
"""The page cache reads ahead and reclaims in pieces of about this size, so one byte of each stands for the rest."""

T = TypeVar("T")

_pwrite = os.pwrite
_preadv = os.preadv
_sendfile = os.sendfile
_RWF_NOWAIT = os.RWF_NOWAIT


def descriptors_max_default() -> int:
    """A quarter of the process's limit: most of the rest is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return DESCRIPTORS_MAX
    return max(DESCRIPTORS_MIN, min(DESCRIPTORS_MAX, soft // 4))


def raise_descriptor_limit() -> None:
    """Raises the descriptor limit to the maximum: each connection needs one, and shells often allow only 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class RealFile:
    """A file by its path below the root; its descriptor is opened and closed as needed."""

    __slots__ = ("__weakref__", "_descriptor", "_disk", "_gone", "_pins", "_retained", "_used", "path")

    def __init__(self, disk: RealDisk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._descriptor = CLOSED
        self._used = False
        self._pins = 0
        self._retained = 0
        self._gone = False

    def __repr__(self) -> str:
        return f"<RealFile {self.path!r}{' (unlinked)' if self._gone else ''}>"

    def pwrite(self, data: Buffer, position: int) -> None:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self)
        self._used = True
        written = _pwrite(descriptor, data, position)
        if written != len(data):
            write_rest(descriptor, data, position, written)

    def try_pread_into(self, buffer: memoryview, position: int) -> int:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._disk._open_descriptor(self)
        self._used = True
        try:
            return _preadv(descriptor, (buffer,), position, self._disk._read_flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOTSUP):
                raise
            # The file system (an old overlay, some network ones) cannot tell whether it would wait.
            self._disk._read_flags = 0
            return _preadv(descriptor, (buffer,), position)

    def send_to(self, descriptor: int, position: int, size: int) -> int | None:
        """See `DirectSocket.send_file`. Probes single bytes first: `sendfile` waits for pages not in the cache."""
        byte = memoryview(bytearray(1))
        last = position + size - 1
        for probe in range(position, last, SENDFILE_PROBE_BYTES):
            if not self.try_pread_into(byte, probe):
                return None
        if not self.try_pread_into(byte, last):
            return None
        try:
            return _sendfile(descriptor, self._descriptor, position, size)
        except BlockingIOError:
            return 0

    def pread(self, size: int, position: int) -> Future[bytes]:
        descriptor = self._pin()
        return self._disk._in_io_thread(partial(read_fully, descriptor, size, position), self._unpin)

    def read(self, size: int, position: int) -> bytes:
        if self._disk._in_owner_thread():
            return read_fully(self._live_descriptor(), size, position)
        if self._retained and self._descriptor >= 0:
            return read_fully(self._descriptor, size, position)
        descriptor = os.open(self._disk._real(self.path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_fully(descriptor, size, position)
        finally:
            os.close(descriptor)

    def size(self) -> int:
        if self._descriptor >= 0 and self._disk._in_owner_thread():
            return os.fstat(self._descriptor).st_size
        if self._gone:
            raise _not_found(self.path)
        return os.stat(self._disk._real(self.path)).st_size

    def sync(self) -> Future[None]:
        if self._gone and self._descriptor < 0:
            # An unlinked file does not survive, so there is nothing to wait for.
            return self._disk._done()
        descriptor = self._pin()
        return self._disk.syncer.ask(self, partial(os.fdatasync, descriptor), shared=True, finished=self._unpin)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._live_descriptor(), size)

    def retain(self) -> None:
        self._retained += 1

    def release(self) -> None:
        assert self._retained > 0, f"{self.path}: release without retain"
        self._retained -= 1
        if self._gone and not self._retained:
            self._disk._close_descriptor(self)

    def close(self) -> None:
        if not self._gone or not self._retained:
            self._disk._close_descriptor(self)

    def __del__(self) -> None:
        # Until this has ended, another thread can still get the file from the registry and resurrect it. It must then
        # open a new descriptor, not use the one that is closed here.
        descriptor, self._descriptor = self._descriptor, CLOSED
        if descriptor >= 0 or not self._gone:
            self._disk._collected(self, descriptor)

    def _live_descriptor(self) -> int:
        if self._descriptor < 0:
            return self._disk._open_descriptor(self)
        self._used = True
        return self._descriptor

    def _pin(self) -> int:
        descriptor = self._live_descriptor()
        self._pins += 1
        return descriptor

    def _unpin(self) -> None:
        self._pins -= 1
        if self._gone and not self._retained:
            self._disk._close_descriptor(self)


class RealDisk:
    """A directory of the machine. The module's docstring says which threads may call what.

    (The builtin is spelled `List` below because the method `list` hides it inside the class.)
    """

    def __init__(
        self,
        root: str,
        loop: AbstractEventLoop,
        *,
        io_threads: int = IO_THREADS_DEFAULT,
        descriptors_max: int | None = None,
    ) -> None:
        self.root = os.path.abspath(root)
        os.makedirs(self.root, exist_ok=True)
        self.syncer = SyncThread(loop)
        self.descriptors_max = descriptors_max or descriptors_max_default()
        self._loop = loop
        self._owner = threading.get_ident()
        self._opening = threading.Lock()
        self._read_flags: int = _RWF_NOWAIT
        self._io_threads = ThreadPoolExecutor(io_threads, thread_name_prefix=IO_THREAD_NAMES)
        self._retired_io_threads: List[ThreadPoolExecutor] = []
        # Files by directory and name, so that renaming a directory need not visit every file of the disk.
        self._files: dict[str, dict[str, ref[RealFile]]] = {}
        self._descriptors: OrderedDict[int, ref[RealFile]] = OrderedDict()
        self._locks: List[RealLock] = []

    # --- names ---------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> RealFile:
        path = normal(path)
        directory, name = split(path)
        names = self._files.setdefault(directory, {})
        known = names.get(name)
        file = known() if known is not None else None
        if file is None:
            file = self.new_file(path)
            names[name] = ref(file)
        if create:
            self._create(file)
        return file

    def new_file(self, path: str) -> RealFile:
        """Creates the file object; subclasses in `penstock.testing` override it."""
        return RealFile(self, path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._real(path))

    def list(self, path: str) -> List[str]:
        try:
            return sorted(os.listdir(self._real(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int:
        return os.stat(self._real(path)).st_size

    def mtime_ms(self, path: str) -> int:
        return os.stat(self._real(path)).st_mtime_ns // 1_000_000

    def mkdir(self, path: str) -> None:
        os.makedirs(self._real(path), exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        source, target = normal(source), normal(target)
        self._keep_retained(target)
        os.rename(self._real(source), self._real(target))
        self._detach(target)
        self._move(source, target)

    def unlink(self, path: str) -> None:
        path = normal(path)
        self._keep_retained(path)
        try:
            os.unlink(self._real(path))
        except FileNotFoundError:
            return
        self._detach(path)

    def rmtree(self, path: str) -> None:
        path = normal(path)
        for directory in self._directories_below(path):
            for name in List(self._files.get(directory, ())):
                self._keep_retained(join(directory, name))
        try:
            shutil.rmtree(self._real(path))
        except FileNotFoundError:
            return
        for directory in self._directories_below(path):
            for name in List(self._files.get(directory, ())):
                self._detach(join(directory, name))

    def sync_dir(self, path: str) -> Future[None]:
        real = self._real(path)
        return self.syncer.ask(("directory", real), partial(sync_directory, real), shared=True)

    def read_bytes(self, path: str) -> bytes:
        with open(self._real(path), "rb") as file:
            return file.read()

    def replace_bytes(self, path: str, data: bytes) -> Future[None]:
        path = normal(path)
        real = self._real(path)
        work = partial(replace_bytes, real, bytes(data))
        return self.syncer.ask(("replace", real), work, shared=False, finished=partial(self._detach, path))

    def lock(self, path: str) -> RealLock:
        lock = RealLock(self._real(path))
        self._locks.append(lock)
        return lock

    def free_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_blocks * status.f_frsize

    def for_jobs(self) -> RealJobDisk:
        return RealJobDisk(self.root)

    @property
    def descriptors_open(self) -> int:
        return len(self._descriptors)

    def stop(self) -> None:
        """Finishes the requested syncs, ends the threads, closes every file and releases the locks."""
        self.syncer.stop()
        for threads in (*self._retired_io_threads, self._io_threads):
            threads.shutdown(wait=True)
        for descriptor in List(self._descriptors):
            file = self._descriptors.pop(descriptor)()
            if file is not None:
                file._descriptor = CLOSED
            os.close(descriptor)
        for lock in self._locks:
            lock.release()

    def _real(self, path: str) -> str:
        return os.path.join(self.root, normal(path))

    # --- the registry of files by name ---------------------------------------------------------------------

    def _known(self, path: str) -> RealFile | None:
        directory, name = split(path)
        known = self._files.get(directory, {}).get(name)
        return known() if known is not None else None

    def _directories_below(self, path: str) -> List[str]:
        prefix = path + "/"
        return [directory for directory in List(self._files) if directory == path or directory.startswith(prefix)]

    def _keep_retained(self, path: str) -> None:
        """Before a name is removed, opens the file if it is retained, so that its users can continue reading."""
        file = self._known(path)
        if file is not None and file._retained and file._descriptor < 0:
            self._open_descriptor(file)

    def _detach(self, path: str) -> None:
        """Handles a name that is gone or now names another file."""
        directory, name = split(path)
        names = self._files.get(directory)
        if names is None:
            return
        known = names.pop(name, None)
        if not names:
            self._files.pop(directory, None)
        file = known() if known is not None else None
        if file is not None:
            file._gone = True
            if not file._retained:
                self._close_descriptor(file)

    def _move(self, source: str, target: str) -> None:
        directory, name = split(source)
        known = self._files.get(directory, {}).pop(name, None)
        if known is not None:
            file = known()
            if file is not None:
                target_directory, target_name = split(target)
                self._files.setdefault(target_directory, {})[target_name] = known
                file.path = target
            return
        for below in self._directories_below(source):
            moved = target + below[len(source) :]
            names = self._files[moved] = self._files.pop(below)
            for file_name, entry in names.items():
                file = entry()
                if file is not None:
                    file.path = join(moved, file_name)

    def _collected(self, file: RealFile, descriptor: int) -> None:
        """Cleans up after `file` was garbage-collected with this descriptor."""
        if descriptor >= 0:
            self._descriptors.pop(descriptor, None)
            os.close(descriptor)
        directory, name = split(file.path)
        names = self._files.get(directory)
        if names is not None:
            known = names.get(name)
            # The name may belong to a newer file by now.
            if known is not None and known() in (None, file):
                del names[name]
                if not names:
                    self._files.pop(directory, None)

    # --- descriptors ---------------------------------------------------------------------------------------

    def _create(self, file: RealFile) -> None:
        if self._in_owner_thread():
            if file._descriptor < 0:
                self._open_descriptor(file, os.O_CREAT)
        else:
            os.close(os.open(self._real(file.path), os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, FILE_MODE))

    def _open_descriptor(self, file: RealFile, flags: int = 0) -> int:
        # The lock is for `offload`ed unlinks of retained files, which open descriptors too (see `_keep_retained`).
        with self._opening:
            if file._descriptor >= 0:
                return file._descriptor
            if file._gone:
                raise _not_found(file.path)
            descriptor = os.open(self._real(file.path), os.O_RDWR | os.O_CLOEXEC | flags, FILE_MODE)
            self._descriptors[descriptor] = ref(file)
            file._used = True
            file._descriptor = descriptor
        if len(self._descriptors) > self.descriptors_max and self._in_owner_thread():
            self._close_idle(file)
        return descriptor

    def _close_idle(self, newest: RealFile) -> None:
        # Two rounds: the first may only clear second-chance marks.
        for _ in range(2 * len(self._descriptors)):
            if len(self._descriptors) <= self.descriptors_max:
                return
            descriptor, known = self._descriptors.popitem(last=False)
            file = known()
            if file is None:
                continue
            if file is newest or file._used or file._pins or file._retained:
                file._used = False
                self._descriptors[descriptor] = known
                continue
            file._descriptor = CLOSED
            os.close(descriptor)

    def _close_descriptor(self, file: RealFile) -> None:
        if not self._in_owner_thread():
            self._loop.call_soon_threadsafe(self._close_descriptor, file)
            return
        descriptor = file._descriptor
        if descriptor < 0 or file._pins:
            return
        self._descriptors.pop(descriptor, None)
        file._descriptor = CLOSED
        if file._gone:
            # The last close of an unlinked file frees its blocks, which takes milliseconds if there are many.
            self._io_threads.submit(os.close, descriptor)
        else:
            os.close(descriptor)

    # --- threads -------------------------------------------------------------------------------------------

    def use_io_threads(self, count: int) -> None:
        """Takes effect for new work; the old threads finish what they were given."""
        self._io_threads.shutdown(wait=False)
        self._retired_io_threads.append(self._io_threads)
        self._io_threads = ThreadPoolExecutor(count, thread_name_prefix=IO_THREAD_NAMES)

    def _in_owner_thread(self) -> bool:
        return threading.get_ident() == self._owner

    def _in_io_thread(self, work: Callable[[], T], finished: Callable[[], None]) -> Future[T]:
        future: Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                outcome = partial(_set_result, future, work())
            except Exception as error:
                outcome = partial(_set_exception, future, error)
            self._loop.call_soon_threadsafe(conclude, outcome)

        def conclude(outcome: Callable[[], None]) -> None:
            finished()
            outcome()

        self._io_threads.submit(run)
        return future

    def _done(self) -> Future[None]:
        future: Future[None] = self._loop.create_future()
        future.set_result(None)
        return future


def _not_found(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "the file was unlinked", path)


def _set_result(future: Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)

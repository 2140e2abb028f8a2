"""The seam to the world: clock, timers, randomness, tasks, disk, network, off-loop work.

Everything the engine knows of the outside comes through a `Runtime`. There are two:

- `penstock.runtime.production` runs on uvloop, real files and real sockets;
- `penstock.sim` runs whole brokers in one process, in virtual time, from one seed, on a disk that loses
  unsynced bytes and a network that delays, splits and resets.

The engine imports no `asyncio`, `os`, `time`, `random`, `socket`, `threading` or `subprocess`: an import check
in the tests enforces it. That is what makes a simulated run reproducible byte for byte, so a bug found once can
be found again.

Rules for those who use it:

- The loop is never held. `File.pwrite` and `File.try_pread_into` touch the page cache only; what may wait for a
  device (`pread`, `sync`, `offload`) returns a future.
- Times: `now_ms` is monotonic and for durations; `wall_ms` is the calendar's and for timestamps.
- A failed sync or write is fatal for the process: see `Runtime.fatal`. Never retry it as if it had worked.

Few failures end a node. Everything else ends one request, one connection or one attempt, is logged and counted
(`Runtime.unhandled_errors`), and the node goes on. These few are:

- The disk failed: a sync, a write or a read of the log directory. An OSError that escapes from a task counts as this;
  those of the network never escape, because `connect` raises only ConnectionError and TimeoutError.
- An invariant of the Raft core or of the metadata image is broken: this node can no longer tell what is committed.
- An essential task failed (`spawn_essential`): the ones that write, sync and replay. A test lists them.
- The node lost its place: another process registered under its id, or it belongs to another cluster.

What a peer sends never does, whatever it says: see `penstock.wire.valid` for where it is checked.
"""

from __future__ import annotations

from asyncio import BufferedProtocol, Future, Task
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = [
    "BufferedProtocol",
    "DirectSocket",
    "DirectoryInUse",
    "Disk",
    "File",
    "Future",
    "JobDisk",
    "Listener",
    "Lock",
    "LoopStalls",
    "Runtime",
    "SocketOptions",
    "Task",
    "Timer",
    "Transport",
]

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview


class DirectoryInUse(Exception):
    """Another process holds the lock of a data directory."""


@dataclass(slots=True, frozen=True)
class LoopStalls:
    """By how much the loop was late, measured many times a second: what a request waits before anyone looks at it."""

    max_ms: float
    samples_ms: Sequence[float]


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None: ...


class Lock(Protocol):
    """An exclusive hold on a directory, released when the process ends, however it ends."""

    def release(self) -> None: ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Accept no more connections; those accepted go on."""


class SocketOptions(NamedTuple):
    """How a listener's sockets are set up; -1 leaves a buffer to the system, which adapts it to the link."""

    backlog: int = 4096
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


DEFAULT_SOCKET_OPTIONS = SocketOptions()


class Transport(Protocol):
    """What the engine uses of an asyncio transport; uvloop's and the simulator's have it all."""

    def write(self, data: Buffer) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class File(Protocol):
    """One file, opened lazily: an unused `File` costs no descriptor, and the disk may close idle ones.

    Positions are absolute. There is one `File` per name; its `path` follows renames. After its name is unlinked or
    replaced it stays readable while someone holds `retain`, and then raises FileNotFoundError, as does a file that
    was never there.
    """

    path: str

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data` into the page cache. Raises OSError when it cannot: part of it may then be written."""

    def try_pread_into(self, buffer: memoryview, position: int) -> int:
        """Read what the page cache has, without waiting. Returns the count; 0 means it would wait, or end of file."""

    def pread(self, size: int, position: int) -> Future[bytes]:
        """Read off the loop. Short only at the end of the file."""

    def read(self, size: int, position: int) -> bytes:
        """Read now, waiting for the device if need be: for start-up, `offload`ed code and tools, not for the loop."""

    def size(self) -> int: ...

    def sync(self) -> Future[None]:
        """Make everything written or truncated before this call durable. Calls are grouped; one thread does them.

        Once it has failed it fails for ever: the kernel has forgotten what it could not write.
        """

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""

    def retain(self) -> None:
        """Keep the file readable until the matching `release`, even if it is unlinked or idle."""

    def release(self) -> None: ...

    def close(self) -> None:
        """Give the descriptor back now. The next use opens the file again."""


class DirectSocket(Protocol):
    """A connection's socket, past its transport: to be used only while the transport has nothing left to send.

    Both calls return how many bytes the socket took, which is less than all when it is full, and raise OSError when
    the connection is broken.
    """

    def send(self, data: Buffer) -> int: ...
    def send_file(self, file: File, position: int, size: int) -> int | None:
        """Send from the page cache without a copy through this process. None: the page cache has not got it."""


class JobDisk(Protocol):
    """A disk as a `Runtime.job` sees it: few calls, all of which may wait. It can be sent to a subprocess.

    What a job writes is not durable, and nobody may rely on it, until the broker has synced it.
    """

    def read(self, path: str, size: int, position: int) -> bytes:
        """Short only at the end of the file."""

    def create(self, path: str) -> None:
        """Make an empty file, in place of one that may be there."""

    def write(self, path: str, data: bytes, position: int) -> None: ...
    def mtime_ms(self, path: str) -> int: ...
    def set_mtime_ms(self, path: str, mtime_ms: int) -> None: ...


class Disk(Protocol):
    """A directory tree. Paths are relative to its root and use '/'; the root itself is ''.

    Renames and new or removed names are durable only after `sync_dir` of the directory that holds them.
    """

    root: str

    def open(self, path: str, *, create: bool = False) -> File:
        """With `create` the file is there, perhaps empty, on return; else nothing is looked up before its first use."""

    def exists(self, path: str) -> bool: ...
    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if it does not exist."""

    def size(self, path: str) -> int: ...
    def mtime_ms(self, path: str) -> int: ...
    def mkdir(self, path: str) -> None:
        """With parents; no error if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at `target`."""

    def unlink(self, path: str) -> None:
        """No error if it does not exist."""

    def rmtree(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> Future[None]: ...
    def read_bytes(self, path: str) -> bytes:
        """A whole small file, now. Raises FileNotFoundError."""

    def replace_bytes(self, path: str, data: bytes) -> Future[None]:
        """Atomically and durably replace a small file: temporary name, sync, rename, sync of the directory."""

    def lock(self, path: str) -> Lock:
        """Hold the directory `path` through the file `.lock` in it. Raises DirectoryInUse."""

    def free_bytes(self) -> int: ...
    def total_bytes(self) -> int: ...
    def use_io_threads(self, count: int) -> None:
        """How many threads wait for the disk, from now on."""
    def for_jobs(self) -> JobDisk:
        """The same tree, as an argument of `Runtime.job`."""


P = TypeVar("P", bound=BufferedProtocol)


class Runtime(Protocol):
    """The world, as one node sees it."""

    rng: Random

    @property
    def disk(self) -> Disk: ...

    @property
    def unhandled_errors(self) -> int:
        """How many exceptions callbacks and tasks have let escape. Each was logged; none ended the process."""

    def now_ms(self) -> float:
        """Monotonic milliseconds, with fractions."""

    def cpu_ms(self) -> float:
        """Processor time of the loop's thread: unlike the clock it stands still while the machine does other things."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. May jump."""

    def uuid(self) -> bytes:
        """16 random bytes, marked as a version 4 UUID and never one of Kafka's reserved ones."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer: ...
    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Timer: ...
    def future(self) -> Future[Any]: ...
    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        """Run a coroutine in the background; the runtime keeps it alive.

        If it fails and nobody awaits it, the failure is logged and counted, and the node goes on without it. The
        coroutine itself must see to it that nobody waits for it in vain: it answers, or ends the connection, and
        clears what says that it is at work. A failed disk is fatal here too (`penstock.runtime.tasks.is_disk_failure`).
        """

    def spawn_essential(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        """Run a coroutine whose failure the node must not survive: if nobody awaits it, the process ends."""

    def task_failed(self, name: str, error: BaseException) -> None:
        """Report a failure that ends no more than one piece of work. Fatal if the disk failed."""

    def sleep(self, delay_ms: float) -> Awaitable[None]: ...
    async def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], BufferedProtocol],
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
    ) -> Listener: ...
    async def connect(self, host: str, port: int, factory: Callable[[], P]) -> P:
        """Connect and return the protocol, on which `connection_made` has been called.

        Raises ConnectionError or TimeoutError and nothing else, whatever host and port are.
        """

    def direct_socket(self, transport: Transport) -> DirectSocket | None:
        """The transport's own socket, or None where bytes must pass through the transport (TLS)."""

    def offload(self, function: Callable[..., T], *args: object) -> Future[T]:
        """Run system calls in a thread. Not for CPU work: Python threads would starve the loop."""

    def job(self, function: str, *args: object) -> Future[Any]:
        """Run CPU work ("package.module:function", picklable arguments) in a subprocess.

        There is one, and it does one job after the other, so a job may leave something in its memory for the next; but
        it may die, and then the next finds nothing.
        """

    def fatal(self, reason: str, error: BaseException | None = None) -> None:
        """End the process at once, saying why: nothing that waits for an answer gets one."""

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call back once when the process is asked to end (SIGTERM, SIGINT), or soon if it was asked already."""

    def settle(self) -> None:
        """Start-up is over: what lives now lives long, so keep the garbage collector from looking at it again."""

    def loop_stalls(self) -> LoopStalls:
        """What was measured since the last call."""

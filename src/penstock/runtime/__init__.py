"""The engine's interface to the outside: clock, timers, randomness, tasks, disk, network, off-loop work.

The engine reaches the outside only through a `Runtime`. There are two:

- `penstock.runtime.production` runs on uvloop, real files and real sockets;
- `penstock.sim` runs whole brokers in one process, in virtual time, from one seed, with a disk that loses unsynced
  bytes and a network that delays, splits and resets.

The engine imports no `asyncio`, `os`, `time`, `random`, `socket`, `threading` or `subprocess`, which a test enforces.
That makes a simulated run reproducible byte for byte, so a bug found once can be found again.

Rules for callers:

- Never block the loop. `File.pwrite` and `File.try_pread_into` touch only the page cache; operations that may wait for
  a device (`pread`, `sync`, `offload`) return a future.
- Times: `now_ms` is monotonic, for durations; `wall_ms` is calendar time, for timestamps.
- A failed sync or write is fatal for the process: see `Runtime.fatal`. Never retry it as if it had worked.

Few failures stop a node. Any other failure ends one request, one connection or one attempt, is logged and counted
(`Runtime.unhandled_errors`), and the node continues. The fatal ones are:

- The disk failed: a sync, a write or a read of the log directory. Any OSError that escapes from a task counts as this;
  network errors never escape, because `connect` raises only ConnectionError and TimeoutError.
- An invariant of the Raft core or of the metadata image is broken: this node can no longer tell what is committed.
- An essential task failed (`spawn_essential`): those that write, sync and replay. A test lists them.
- The node lost its identity: another process registered under its id, or it belongs to another cluster.

Data from a peer never stops a node: `penstock.wire.valid` lists where it is checked.
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
    "Tls",
    "TlsSettings",
    "Transport",
]

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview


class DirectoryInUse(Exception):
    """Another process holds the lock of a data directory."""


@dataclass(slots=True, frozen=True)
class LoopStalls:
    """How late the loop was, sampled many times a second: the time a request waits before it is looked at."""

    max_ms: float
    samples_ms: Sequence[float]


@dataclass(slots=True, frozen=True, kw_only=True)
class HostUsage:
    """What the process and its host have used; None where the system does not tell. Counters only grow."""

    process_cpu_s: float | None = None
    resident_bytes: int | None = None
    open_files: int | None = None
    cores: int | None = None
    host_cpu_s: float | None = None
    """CPU time of all cores that was not idle."""
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    """What programs could still get; page cache counts as available."""
    disk_reads: int | None = None
    disk_writes: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    disk_busy_s: float | None = None
    """Of the disk that holds the data."""
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    """Of all interfaces but loopback."""
    network_bytes_per_s_max: int | None = None
    """The speed of the fastest interface, in one direction."""


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a directory, released when the process ends for any reason."""

    def release(self) -> None: ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stops accepting connections; accepted ones continue."""


class SocketOptions(NamedTuple):
    """Socket settings of a listener; -1 leaves a buffer size to the system, which adapts it to the link."""

    backlog: int = 4096
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


DEFAULT_SOCKET_OPTIONS = SocketOptions()


class TlsSettings(NamedTuple):
    """Certificates and rules for TLS connections, as PEM text. `repr` shows no secret."""

    certificate_chain: str = ""
    private_key: str = ""
    key_password: str | None = None
    trusted: str = ""
    """The certificates of authorities. Empty: those of the system, for outgoing connections."""
    client_auth: str = "none"
    """Listeners: none, requested or required."""
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: str = ""
    check_host: bool = True
    """Outgoing connections: whether the certificate must be for the host that was connected to."""

    def __repr__(self) -> str:
        return f"TlsSettings(client_auth={self.client_auth}, versions={self.versions})"


class Tls(Protocol):
    """The certificates in use by a listener, or by outgoing connections (`Runtime.tls`)."""

    def update(self, settings: TlsSettings) -> None:
        """Use other certificates for new connections; open ones continue. Raises ValueError if they are unusable."""


class Transport(Protocol):
    """The part of an asyncio transport that the engine uses; uvloop's and the simulator's transports have it."""

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
    replaced it stays readable as long as it is retained (`retain`), and then raises FileNotFoundError, as does a file
    that never existed.
    """

    path: str

    def pwrite(self, data: Buffer, position: int) -> None:
        """Writes all of `data` into the page cache. Raises OSError on failure; part of it may then be written."""

    def try_pread_into(self, buffer: memoryview, position: int) -> int:
        """Reads from the page cache without waiting. Returns the count; 0 means that it would wait, or end of file."""

    def pread(self, size: int, position: int) -> Future[bytes]:
        """Reads off the loop. Short only at the end of the file."""

    def read(self, size: int, position: int) -> bytes:
        """Reads now, waiting for the device if needed: for start-up, `offload`ed code and tools, not for the loop."""

    def size(self) -> int: ...

    def sync(self) -> Future[None]:
        """Makes everything written or truncated before this call durable. Calls are grouped and run in one thread.

        Once it has failed, it fails forever: the kernel drops the pages that it could not write.
        """

    def truncate(self, size: int) -> None:
        """Truncates, or extends with zeros."""

    def retain(self) -> None:
        """Keeps the file readable until the matching `release`, even if it is unlinked or idle."""

    def release(self) -> None: ...

    def close(self) -> None:
        """Closes the descriptor now. The next use reopens the file."""


class DirectSocket(Protocol):
    """A connection's socket, bypassing its transport. Use it only while the transport has nothing left to send.

    Both calls return how many bytes the socket took, which may be fewer if it is full, and raise OSError if the
    connection is broken.
    """

    def send(self, data: Buffer) -> int: ...
    def send_file(self, file: File, position: int, size: int) -> int | None:
        """Sends from the page cache without copying through this process. None: the data is not in the page cache."""


class JobDisk(Protocol):
    """A disk for a `Runtime.job`: a few blocking calls. It can be sent to a subprocess.

    Data written by a job is not durable, and must not be relied on, until the broker has synced it.
    """

    def read(self, path: str, size: int, position: int) -> bytes:
        """Reads; short only at the end of the file."""

    def create(self, path: str) -> None:
        """Creates an empty file, replacing an existing one."""

    def write(self, path: str, data: bytes, position: int) -> None: ...
    def mtime_ms(self, path: str) -> int: ...
    def set_mtime_ms(self, path: str, mtime_ms: int) -> None: ...


class Disk(Protocol):
    """A directory tree. Paths are relative to its root and use '/'; the root itself is ''.

    Renames and new or removed names are durable only after `sync_dir` of the directory that holds them.
    """

    root: str

    def open(self, path: str, *, create: bool = False) -> File:
        """With `create` the file exists on return, perhaps empty; otherwise nothing is checked before its first use."""

    def exists(self, path: str) -> bool: ...
    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if it does not exist."""

    def size(self, path: str) -> int: ...
    def mtime_ms(self, path: str) -> int: ...
    def mkdir(self, path: str) -> None:
        """Creates a directory and its parents; no error if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Renames atomically; replaces a file at `target`."""

    def unlink(self, path: str) -> None:
        """Removes a file; no error if it does not exist."""

    def rmtree(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> Future[None]: ...
    def read_bytes(self, path: str) -> bytes:
        """Reads a whole small file now. Raises FileNotFoundError."""

    def replace_bytes(self, path: str, data: bytes) -> Future[None]:
        """Atomically and durably replaces a small file: temporary name, sync, rename, sync of the directory."""

    def lock(self, path: str) -> Lock:
        """Locks the directory `path` through a file `.lock` in it. Raises DirectoryInUse."""

    def free_bytes(self) -> int: ...
    def total_bytes(self) -> int: ...
    def use_io_threads(self, count: int) -> None:
        """Sets the number of threads for blocking disk operations."""

    def for_jobs(self) -> JobDisk:
        """The same tree, as an argument of `Runtime.job`."""


P = TypeVar("P", bound=BufferedProtocol)


class Runtime(Protocol):
    """The environment of one node."""

    rng: Random

    @property
    def disk(self) -> Disk: ...

    @property
    def unhandled_errors(self) -> int:
        """The number of exceptions that escaped from callbacks and tasks. Each was logged; none ended the process."""

    def now_ms(self) -> float:
        """Monotonic milliseconds, with fractions."""

    def cpu_ms(self) -> float:
        """CPU time of the loop's thread; unlike the clock, it stands still while the machine runs other things."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. May jump."""

    def uuid(self) -> bytes:
        """16 random bytes, marked as a version 4 UUID and never one of Kafka's reserved ones."""

    def secret_bytes(self, count: int) -> bytes:
        """Random bytes that nobody can predict: nonces, salts, tokens."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer: ...
    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Timer: ...
    def future(self) -> Future[Any]: ...
    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        """Runs a coroutine in the background; the runtime keeps it alive.

        If it fails and nothing awaits it, the failure is logged and counted, and the node continues without it. The
        coroutine itself must make sure that nothing waits for it forever: it answers or closes the connection, and
        clears the flag that marks it as running. A disk failure is fatal here too
        (`penstock.runtime.tasks.is_disk_failure`).
        """

    def spawn_essential(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        """Runs a coroutine that the node cannot do without: if it fails and nothing awaits it, the process ends."""

    def task_failed(self, name: str, error: BaseException) -> None:
        """Reports a failure that ends only one piece of work. Fatal if the disk failed."""

    def sleep(self, delay_ms: float) -> Awaitable[None]: ...
    async def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], BufferedProtocol],
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
        tls: Tls | None = None,
    ) -> Listener:
        """With `tls`, the factory's protocols are `penstock.runtime.tls.Secured`, and see plain text."""

    async def connect(self, host: str, port: int, factory: Callable[[], P], tls: Tls | None = None) -> P:
        """Connects and returns the protocol, on which `connection_made` has been called.

        Raises only ConnectionError or TimeoutError, whatever host and port are. With `tls` it returns after the
        handshake.
        """

    def tls(self, settings: TlsSettings, *, server: bool) -> Tls:
        """Raises ValueError if the settings cannot be used."""

    def read_file(self, path: str) -> bytes:
        """A small file that the operator's configuration names, outside the data directory. Raises OSError. Blocks: for
        start-up and `offload`."""

    def fetch_url(self, url: str, bytes_max: int, timeout_ms: float) -> bytes:
        """A small document at a URL of the operator's configuration. Raises OSError or ValueError. Blocks: for
        `offload`."""

    def direct_socket(self, transport: Transport) -> DirectSocket | None:
        """The transport's socket; None if bytes must pass through the transport (TLS)."""

    def offload(self, function: Callable[..., T], *args: object) -> Future[T]:
        """Runs system calls in a thread. Not for CPU work: Python threads would starve the loop."""

    def job(self, function: str, *args: object) -> Future[Any]:
        """Runs CPU work ("package.module:function", picklable arguments) in a subprocess.

        There is one subprocess, which runs one job at a time, so a job may leave data in memory for the next one. If
        the subprocess dies, that data is lost.
        """

    def fatal(self, reason: str, error: BaseException | None = None) -> None:
        """Ends the process at once and logs the reason; waiting requests get no answer."""

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Calls back once when the process is asked to end (SIGTERM, SIGINT); soon, if it was asked already."""

    def settle(self) -> None:
        """Ends start-up: excludes the objects that exist now, which live long, from garbage collection."""

    def loop_stalls(self) -> LoopStalls:
        """The measurements since the last call."""

    def host_usage(self) -> HostUsage:
        """What this process and its host have used so far. Reads a few small files of the kernel."""

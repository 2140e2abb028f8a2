"""The simulated disk: it outlives the processes that use it, and it breaks on request.

A `SimDisk` is the device and the kernel's page cache. A process sees it through a `MountedDisk` (`penstock.sim.mount`),
which dies with the process. What remains:

- after a *kill*: everything written, synced or not, because the page cache belongs to the kernel;
- after a *power loss*: what was synced, and a random part of the rest, drawn by `penstock.sim.inode` and `.namespace`.

To test recovery exhaustively, crash at each operation in turn:

    disk = SimDisk(seed=1)
    disk.crash_after(7)                     # the 7th write, sync, create, rename, unlink, truncate, mkdir or sync_dir
    with suppress(SimulatedCrash):
        run(workload, disk=disk)
    disk.restart(power_loss=True)
    run(recover_and_check, disk=disk)       # which may set crash_after again

Run the workload once without a crash to learn `disk.operations`, the number of points at which it can crash.
"""

from __future__ import annotations

import errno
from random import Random

from penstock.sim.inode import Inode
from penstock.sim.namespace import Namespace

__all__ = ["SimDisk", "SimulatedCrash"]

CAPACITY_BYTES_DEFAULT = 1 << 40
COLD_READ_PROBABILITY_DEFAULT = 0.1
WRITE_BACK_PROBABILITY_DEFAULT = 0.05
PAGE_BYTES = 4096

READ_LATENCY_MS = 0.4
SYNC_LATENCY_MS = 1.0
LATENCY_TAIL_PROBABILITY = 0.01
LATENCY_TAIL_FACTOR = 20.0


class SimulatedCrash(BaseException):
    """The process or machine died inside a disk operation. Not an `Exception`, so that no handler catches it."""


class SimDisk:
    """A device with its page cache. All attributes may be changed while the simulation runs."""

    def __init__(
        self,
        seed: int | str = 0,
        *,
        capacity_bytes: int = CAPACITY_BYTES_DEFAULT,
        cold_read_probability: float = COLD_READ_PROBABILITY_DEFAULT,
    ) -> None:
        self.rng = Random(f"disk-{seed}")
        self.capacity_bytes = capacity_bytes
        self.cold_read_probability = cold_read_probability
        self.write_back_probability = WRITE_BACK_PROBABILITY_DEFAULT
        self.slowness = 1.0
        self.operations = 0
        self.syncs = 0
        self.crashed = False
        self.namespace = Namespace()
        self.locks: dict[str, object] = {}
        self._crash_at: int | None = None
        self._failing_syncs = 0
        self._failing_sync_path = ""
        self._failing_reads: dict[Inode, int] = {}

    # --- faults --------------------------------------------------------------------------------------------

    def crash_after(self, operations: int) -> None:
        """Crashes inside the given operation, counted from the next one, which is 1."""
        assert operations >= 1
        self._crash_at = self.operations + operations

    def cancel_crash(self) -> None:
        self._crash_at = None

    def restart(self, *, power_loss: bool) -> None:
        """Prepares the disk for the next process, after the last one ended."""
        self.crashed = False
        self._crash_at = None
        self.locks.clear()
        if power_loss:
            self.namespace.lose_power(self.rng)

    def ready_for_next_process(self) -> None:
        """Resets per-process state after the last process ended; the page cache stays."""
        if self.crashed:
            self.crashed = False
            self._crash_at = None
        self.locks.clear()

    def fail_next_syncs(self, count: int = 1, *, path_contains: str = "") -> None:
        """The next syncs report EIO, once each; the pages of the file are then marked clean, and lost."""
        self._failing_syncs = count
        self._failing_sync_path = path_contains

    def fail_reads(self, path: str, count: int = 1) -> None:
        """The next reads of this file report EIO."""
        self._failing_reads[self.namespace.file(path)] = count

    def stop_failing(self) -> None:
        """Clears all injected sync, read and crash faults."""
        self._failing_syncs = 0
        self._failing_reads.clear()
        self._crash_at = None

    def fill(self, free_bytes: int = 0) -> None:
        """Leaves only this much space: a write that needs more is cut short by ENOSPC."""
        self.capacity_bytes = self.used_bytes() + free_bytes

    def rot(self, path: str, position: int | None = None) -> int:
        """Flips one bit of a file silently; returns its position."""
        inode = self.namespace.file(path)
        assert inode.data, f"{path} is empty: there is no bit to flip"
        if position is None:
            position = self.rng.randrange(len(inode.data))
        inode.flip_bit(position, self.rng.randrange(8))
        return position

    # --- inspection -----------------------------------------------------------------------------------------

    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self.namespace.files())

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes())

    def content(self, path: str) -> bytes:
        """The content a process would read now."""
        return bytes(self.namespace.file(path).data)

    def durable_content(self, path: str) -> bytes:
        """The durable content of the file that has this name now."""
        return bytes(self.namespace.file(path).durable)

    # --- for the mount --------------------------------------------------------------------------------------

    def operation(self) -> None:
        """Counts one operation; raises if it is the one to crash in."""
        if self.crash_is_next():
            self.crash()

    def crash_is_next(self) -> bool:
        if self.crashed:
            raise SimulatedCrash("the process has crashed; nothing reaches the disk any more")
        self.operations += 1
        return self.operations == self._crash_at

    def crash(self) -> None:
        self.crashed = True
        raise SimulatedCrash(f"crash in disk operation {self.operations}")

    def write(self, inode: Inode, data: bytes | memoryview, position: int) -> None:
        if self.crash_is_next():
            # write(2) copies page by page, and a fatal signal ends it between two pages.
            whole_pages = self.rng.randint(0, len(data) // PAGE_BYTES)
            inode.write(data[: whole_pages * PAGE_BYTES] if self.rng.random() < 0.7 else data, position)
            self.crash()
        growth = position + len(data) - len(inode.data)
        if growth > 0 and self.capacity_bytes < CAPACITY_BYTES_DEFAULT:
            room = self.free_bytes()
            if growth > room:
                inode.write(data[: max(0, len(data) - growth + room)], position)
                raise OSError(errno.ENOSPC, "no space left on device")
        inode.write(data, position)
        if self.rng.random() < self.write_back_probability:
            inode.write_back(self.rng)

    def read(self, inode: Inode, size: int, position: int) -> bytes:
        failing = self._failing_reads.get(inode, 0)
        if failing:
            self._failing_reads[inode] = failing - 1
            raise OSError(errno.EIO, "input/output error")
        return bytes(inode.data[position : position + size])

    def create(self, path: str, mtime_ms: int) -> Inode:
        self.operation()
        if self.capacity_bytes < CAPACITY_BYTES_DEFAULT and self.free_bytes() == 0:
            raise OSError(errno.ENOSPC, "no space left on device", path)
        return self.namespace.create(path, mtime_ms)

    def sync_fails(self, path: str) -> bool:
        self.syncs += 1
        if self._failing_syncs and self._failing_sync_path in path:
            self._failing_syncs -= 1
            return True
        return False

    def latency_ms(self, base_ms: float) -> float:
        draw = self.rng.random()
        tail = LATENCY_TAIL_FACTOR * self.rng.random() if self.rng.random() < LATENCY_TAIL_PROBABILITY else 0.0
        return self.slowness * base_ms * (0.5 + draw + tail)

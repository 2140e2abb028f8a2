"""Whole brokers in one process, in virtual time, from one seed.

The simulator implements `penstock.runtime` for any number of hosts. The engine's code cannot tell the difference, so
the same server runs here as in production: real bytes through the real codec.

- `World`: the clock, the events, randomness, the trace; `host(name)`, `run`, `run_until`, `execute`, `digest`.
- `Host`: a machine with a disk that outlives its processes; `start`, `stop`, `kill`, `power_loss`, `restart`,
  `pause`, `resume`, `jump_wall_clock`.
- `SimDisk`: page cache and platter; loses, tears, fails, fills up, rots, and crashes at the n-th operation.
- `Network` (`world.network`): latency, chunks, back-pressure; `cut`, `heal`, `reset_connections`, `slow`.
- `FrameClient`: a peer that exchanges length-prefixed frames, on any runtime.
- `run`: one coroutine on one host, for simple tests.
- `penstock.sim.broker`: a whole broker on a host, and a client for its protocol; not imported by default.

A test:

    async def workload(runtime: Runtime) -> bytes:
        file = runtime.disk.open("a", create=True)
        file.pwrite(b"hello", 0)
        await file.sync()
        await runtime.disk.sync_dir("")
        return await file.pread(5, 0)

    disk = SimDisk(seed=3)
    assert run(workload, seed=3, disk=disk) == b"hello"
    disk.restart(power_loss=True)
    assert disk.content("a") == b"hello"

Determinism. During a run the guard (`penstock.sim.guard`) makes everything raise that would let the real world in:
clocks, randomness, files, sockets, threads, and the parts of asyncio whose order depends on hashes. The seed is the
only input: the same seed gives the same `World.digest()` in every process, whatever `PYTHONHASHSEED` is.
"""

from penstock.sim.client import FrameClient
from penstock.sim.disk import SimDisk, SimulatedCrash
from penstock.sim.harness import run
from penstock.sim.host import Exit, Host, Process, ProcessEnded
from penstock.sim.mount import MountedDisk, SimFile
from penstock.sim.network import Link, Network
from penstock.sim.runtime import SimRuntime
from penstock.sim.world import Deadlock, Livelock, UnhandledError, World

__all__ = [
    "Deadlock",
    "Exit",
    "FrameClient",
    "Host",
    "Link",
    "Livelock",
    "MountedDisk",
    "Network",
    "Process",
    "ProcessEnded",
    "SimDisk",
    "SimFile",
    "SimRuntime",
    "SimulatedCrash",
    "UnhandledError",
    "World",
    "run",
]

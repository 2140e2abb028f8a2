"""Hosts and processes of a simulated world, and their faults."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sim.disk import SimDisk, SimulatedCrash
from penstock.sim.loop import ProcessExit, SimLoop
from penstock.sim.mount import MountedDisk
from penstock.sim.runtime import SimRuntime
from penstock.sim.world import WALL_EPOCH_MS, World

if TYPE_CHECKING:
    from penstock.sim.transport import SimTransport

__all__ = ["Exit", "Host", "Process", "ProcessEnded"]

Main = Callable[[SimRuntime], Coroutine[Any, Any, Any]]

MAIN_ENDED = "the main program ended"
UPTIME_MAX_MS = 10_000_000.0


class ProcessEnded(Exception):
    """The process ended before its main program returned."""


@dataclass(slots=True, frozen=True)
class Exit:
    """How a process ended: by itself (`fatal`), or by a fault."""

    at_ms: float
    reason: str
    error: BaseException | None = None


class Host:
    """A machine: its name is its address, and its disk outlives its processes."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.disk = SimDisk(f"{world.seed}-{name}")
        self.process: Process | None = None
        self.files: dict[str, bytes] = {}
        """Files of the operator, outside the data directory: key stores and the like."""
        self.is_powered = True
        self.wall_skew_ms = 0.0
        self.clock_rate = 1.0
        self.exits: list[Exit] = []
        self._main: Main | None = None
        self._incarnations = 0

    def __repr__(self) -> str:
        return f"<Host {self.name}>"

    def start(self, main: Main | None = None) -> Process:
        """Powers up if needed, and starts a process; without `main`, the program that ran last."""
        self._main = main = main or self._main
        assert main is not None, f"{self.name} has never run a program"
        assert self.process is None or self.process.is_dead, f"{self.name} already runs a process"
        self.is_powered = True
        self.disk.ready_for_next_process()
        self._incarnations += 1
        self.process = Process(self, self._incarnations)
        self.world.trace("start", self.process.name)
        self.process.boot(main)
        return self.process

    # --- faults ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """SIGTERM: asks the process to end."""
        if self.process is not None and not self.process.is_dead:
            self.process.runtime.request_stop()

    def kill(self) -> None:
        """SIGKILL: ends the process now; written data stays in the page cache."""
        if self.process is not None:
            self.process.die("killed")

    def power_loss(self) -> None:
        """Turns the machine off until `start`; unsynced data may be lost; peers are not notified."""
        self.is_powered = False
        if self.process is not None:
            self.process.die("power loss", silently=True)
        self.disk.restart(power_loss=True)

    def restart(self, *, delay_ms: float = 0.0) -> None:
        """Starts the last program again, now or later."""
        self.world.after(delay_ms, self._restart_now)

    def _restart_now(self) -> None:
        if self.process is None or self.process.is_dead:
            self.start()

    def pause(self) -> None:
        """SIGSTOP: delays timers and packets until `resume`."""
        if self.process is not None:
            self.world.trace("pause", self.name)
            self.process.loop.pause()

    def resume(self) -> None:
        if self.process is not None:
            self.world.trace("resume", self.name)
            self.process.loop.resume()

    def jump_wall_clock(self, by_ms: float) -> None:
        self.wall_skew_ms += by_ms

    def ended(self, exit: Exit) -> None:
        self.exits.append(exit)


class Process:
    """One incarnation of a program on a host."""

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.world = host.world
        self.name = f"{host.name}#{number}"
        # Monotonic clocks of two machines, or of two boots, are unrelated.
        offset_ms = self.world.rng.random() * UPTIME_MAX_MS
        self.loop = SimLoop(self.world, self.name, clock_offset_ms=offset_ms, clock_rate=host.clock_rate)
        self.transports: dict[int, SimTransport] = {}
        self.mount = MountedDisk(host.disk, self)
        self.runtime = SimRuntime(self)
        self.exit: Exit | None = None
        # Whether the caller checks the result; if not, a failure is an error of the world.
        self.is_watched = False
        self._task: Any = None

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    @property
    def is_dead(self) -> bool:
        return self.loop.is_dead

    def boot(self, main: Main) -> None:
        def begin() -> None:
            self._task = self.loop.create_task(main(self.runtime), name=f"{self.name} main")
            self._task.add_done_callback(self._main_ended)

        self.loop.deliver(begin)

    def result(self) -> Any:
        """The main program's result; raises its error, or how the process died before."""
        assert self.exit is not None, f"{self.name} still runs"
        if isinstance(self.exit.error, SimulatedCrash):
            raise self.exit.error
        if self.exit.reason == MAIN_ENDED:
            return self._task.result()
        raise ProcessEnded(f"{self.name}: {self.exit.reason}") from self.exit.error

    def _main_ended(self, task: Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.is_watched:
            self.loop.call_exception_handler({"message": "the main program failed", "exception": error})
        self.die(MAIN_ENDED, error)

    def die(self, reason: str, error: BaseException | None = None, *, silently: bool = False) -> None:
        if self.is_dead:
            return
        self.world.trace("exit", self.name, reason)
        self.loop.kill()
        self.mount.is_dead = True
        self.exit = Exit(self.world.now_ms, reason, error)
        self.world.network.process_died(self, silently=silently)
        self.host.ended(self.exit)

    def fatal(self, reason: str, error: BaseException | None) -> None:
        self.die(f"fatal: {reason}", error)
        raise ProcessExit(reason)

    # --- the kernel, as the mounted disk sees it -------------------------------------------------------------

    def wall_ms(self) -> int:
        return int(WALL_EPOCH_MS + self.world.now_ms + self.host.wall_skew_ms)

    def future(self) -> Any:
        return self.loop.create_future()

    def schedule(self, delay_ms: float, callback: Callable[..., object], *args: object) -> None:
        self.world.after(delay_ms, callback, *args)

    def deliver(self, callback: Callable[..., object], *args: object) -> None:
        self.loop.deliver(callback, *args)

    def trace(self, kind: str, *values: object) -> None:
        self.world.trace(kind, self.name, *values)

    def crashed(self, reason: str) -> None:
        self.die(reason, SimulatedCrash(reason))

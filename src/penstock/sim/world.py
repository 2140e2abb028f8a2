"""The world of one simulated run: one virtual clock, one heap of events, one source of randomness.

There are two kinds of events. *Kernel* events (a packet arrives, a sync completes) happen whatever processes do.
*Process* events are callbacks of one process's loop; they wait while it is paused and never happen once it is dead.
Events of one process keep their order. Between processes, and among timers due at the same moment, the order is random,
so a seed explores one interleaving, and always the same one.

Every event goes into a running hash, the trace. Two runs of one seed must end with the same `digest()`. If they do not,
`trace_to` writes the events as lines, and the first line that differs shows the leak.
"""

from __future__ import annotations

import gc
from asyncio import events
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from penstock.sim.guard import guarded
from penstock.sim.network import Network

if TYPE_CHECKING:
    from penstock.sim.host import Host
    from penstock.sim.loop import SimLoop
    from penstock.sim.runtime import SimRuntime

__all__ = ["START_MS", "Deadlock", "Event", "Livelock", "UnhandledError", "World"]

BATCHES_WITHOUT_TIME_MAX = 25_000
EXECUTE_LIMIT_MS = 3_600_000.0
TRACE_BUFFER_LINES = 512
START_MS = 1_000_000.0
WALL_EPOCH_MS = 1_750_000_000_000

T = TypeVar("T")


class Livelock(AssertionError):
    """Processes keep running, but virtual time does not advance."""


class Deadlock(AssertionError):
    """A task waits, and no event is left that could wake it."""


class UnhandledError(AssertionError):
    """An exception escaped from a callback of a simulated process."""


class Event:
    """A callback and its time. To asyncio it is a `TimerHandle`."""

    __slots__ = ("__weakref__", "args", "callback", "context", "is_cancelled", "loop", "when_s")

    def __init__(self, loop: SimLoop | None, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.loop = loop
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context: Any = None
        self.when_s = 0.0
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class World:
    """Hosts, network and time of one run. Use it as a context manager, which ends everything that is left."""

    def __init__(self, seed: int | str = 0, *, guard: bool = True, trace_to: TextIO | None = None) -> None:
        self.seed = seed
        self.rng = Random(f"world-{seed}")
        self.now_ms = START_MS
        self.events = 0
        self.hosts: dict[str, Host] = {}
        self.loops: list[SimLoop] = []
        self.errors: list[UnhandledError] = []
        self.tolerate_errors = False
        self.network = Network(self)
        self._guard = guard
        self._heap: list[tuple[float, float, int, Event]] = []
        self._runnable: list[SimLoop] = []
        self._sequence = 0
        self._objects = 0
        self._hash = blake2b(digest_size=16)
        self._trace_lines: list[str] = []
        self._trace_to = trace_to
        self._failure: BaseException | None = None

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()
        if error is None:
            self.check()

    def close(self) -> None:
        """Ends everything still running, in an order that does not depend on the garbage collector."""
        for loop in self.loops:
            loop.close_leftovers()
        self._heap.clear()
        self._runnable.clear()

    # --- hosts ---------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The host with this name; created with an empty disk on first use."""
        from penstock.sim.host import Host

        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = Host(self, name)
        return host

    # --- running -------------------------------------------------------------------------------------------

    def run(self, duration_ms: float) -> None:
        """Lets virtual time pass."""
        until_ms = self.now_ms + duration_ms
        self._run(until_ms, _never)
        self.now_ms = max(self.now_ms, until_ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: float = EXECUTE_LIMIT_MS) -> None:
        """Lets virtual time pass until the condition holds; raises TimeoutError or Deadlock if it never does."""
        until_ms = self.now_ms + limit_ms
        self._run(until_ms, condition)
        if condition():
            return
        if not self._heap:
            raise Deadlock(f"no events left, but these tasks wait:\n{self.describe_waiting()}")
        raise TimeoutError(f"condition not met after {limit_ms} virtual ms; waiting:\n{self.describe_waiting()}")

    def execute(
        self,
        main: Callable[[SimRuntime], Coroutine[Any, Any, T]],
        *,
        host: str = "client",
        limit_ms: float = EXECUTE_LIMIT_MS,
    ) -> T:
        """Runs a coroutine as the main program of a host to its end, and everything else meanwhile.

        Returns its result or raises its error. The process ends with it. An exception that escapes from a callback of
        any process fails the call too, unless `tolerate_errors` is set.
        """
        process = self.host(host).start(main)
        process.is_watched = True
        self.run_until(lambda: process.is_dead, limit_ms)
        result: T = process.result()
        self.check()
        return result

    def check(self) -> None:
        """Raises the first exception that escaped anywhere. Leaving the world's context does this too."""
        if self.errors and not self.tolerate_errors:
            raise self.errors[0]

    def describe_waiting(self) -> str:
        lines = []
        for loop in self.loops:
            if not loop.is_dead:
                lines += [f"  {loop.name}: {task!r}" for task in loop.waiting_tasks()]
        return "\n".join(lines) or "  (nobody)"

    # --- events --------------------------------------------------------------------------------------------

    def after(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Event:
        """Schedules a kernel event."""
        event = Event(None, callback, args)
        self.push(self.now_ms + delay_ms, event)
        return event

    def push(self, when_ms: float, event: Event) -> None:
        self._sequence += 1
        if when_ms < self.now_ms:
            when_ms = self.now_ms
        heappush(self._heap, (when_ms, self.rng.random(), self._sequence, event))

    def make_runnable(self, loop: SimLoop) -> None:
        self._runnable.append(loop)

    def fail(self, error: BaseException) -> None:
        """Stops the run and raises `error` from it."""
        self._failure = self._failure or error

    def next_object_number(self) -> int:
        self._objects += 1
        return self._objects

    # --- trace ---------------------------------------------------------------------------------------------

    def trace(self, kind: str, *values: object) -> None:
        self._trace(f"{self.now_ms!r} {kind} {' '.join(map(str, values))}\n")

    def _trace(self, line: str) -> None:
        lines = self._trace_lines
        lines.append(line)
        if len(lines) >= TRACE_BUFFER_LINES:
            self._flush_trace()

    def digest(self) -> str:
        """The hash of everything that happened."""
        self._flush_trace()
        return self._hash.hexdigest()

    def _flush_trace(self) -> None:
        text = "".join(self._trace_lines)
        self._trace_lines.clear()
        self._hash.update(text.encode())
        if self._trace_to is not None:
            self._trace_to.write(text)

    # --- the loop of loops -----------------------------------------------------------------------------------

    def _run(self, until_ms: float, stop: Callable[[], bool]) -> None:
        # The garbage collector would run finalizers at times that depend on memory, not on the seed.
        collecting = gc.isenabled()
        gc.disable()
        try:
            with guarded(self._guard):
                self._run_events(until_ms, stop)
        finally:
            if collecting:
                gc.enable()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _run_events(self, until_ms: float, stop: Callable[[], bool]) -> None:
        heap, runnable, chance = self._heap, self._runnable, self.rng.random
        batches = 0
        while self._failure is None and not stop():
            if runnable:
                count = len(runnable)
                if count > 1:
                    chosen = int(chance() * count)
                    runnable[chosen], runnable[-1] = runnable[-1], runnable[chosen]
                loop = runnable.pop()
                loop.is_queued = False
                batches += 1
                if batches > BATCHES_WITHOUT_TIME_MAX:
                    raise Livelock(f"{loop.name} keeps running and time stands still:\n{self.describe_waiting()}")
                self._run_batch(loop)
                continue
            if not heap or heap[0][0] > until_ms:
                return
            when_ms, _, sequence, event = heappop(heap)
            if event.is_cancelled:
                continue
            if when_ms > self.now_ms:
                self.now_ms = when_ms
                batches = 0
            self.events += 1
            if event.loop is not None:
                event.loop.enqueue(event)
            else:
                self._trace(f"{self.now_ms!r} kernel {sequence}\n")
                assert event.callback is not None
                event.callback(*event.args)

    def _run_batch(self, loop: SimLoop) -> None:
        if loop.is_dead or loop.is_paused:
            return
        ready, run_event = loop.ready, loop.run_event
        ran = 0
        events._set_running_loop(loop.as_asyncio)
        try:
            for _ in range(len(ready)):
                event = ready.popleft()
                if event.is_cancelled:
                    continue
                ran += 1
                run_event(event)
                if loop.is_dead:
                    break
            else:
                if loop.unflushed:
                    loop.end_of_batch()
        finally:
            events._set_running_loop(None)
        self.events += ran
        self._trace(f"{self.now_ms!r} batch {loop.name} {ran} {len(ready)}\n")
        if ready:
            loop.wake()


def _never() -> bool:
    return False

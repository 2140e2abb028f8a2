"""The event loop of one simulated process: the part of a loop that asyncio's tasks and futures use, in virtual time.

A loop belongs to one incarnation of a process. When the process dies, its loop is marked dead: none of its callbacks
ever runs again, not even a `finally`, just as after `kill -9`. Its tasks are kept until `World.close` and then closed
one by one, so that no finalizer runs at a moment chosen by the garbage collector.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar, cast

from penstock.sim.disk import SimulatedCrash
from penstock.sim.world import Event, UnhandledError, World

if TYPE_CHECKING:
    from penstock.sim.transport import SimTransport

__all__ = ["ProcessExit", "SimLoop"]

TASKS_BEFORE_SWEEP = 256

T = TypeVar("T")


class ProcessExit(BaseException):
    """Unwinds the stack of a process that ended itself (`Runtime.fatal`). The process is already dead."""


class SimTask(asyncio.Task[T]):
    """Hashes by its number, so that sets of tasks (asyncio keeps some) iterate in the same order in every run."""

    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimFuture(asyncio.Future[T]):
    """Hashes by its number, like `SimTask`."""

    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop:
    """One process's queue of callbacks: the part of `asyncio.AbstractEventLoop` that tasks and futures call."""

    def __init__(self, world: World, name: str, *, clock_offset_ms: float = 0.0, clock_rate: float = 1.0) -> None:
        self.world = world
        self.name = name
        self.ready: deque[Event] = deque()
        self.is_dead = False
        self.is_paused = False
        self.is_queued = False
        self.errors = 0
        self._clock_offset_ms = clock_offset_ms
        self._clock_rate = clock_rate
        self._tasks: list[SimTask[Any]] = []
        self.unflushed: list[SimTransport] = []
        self.as_asyncio = cast(asyncio.AbstractEventLoop, self)
        world.loops.append(self)

    # --- time and callbacks ----------------------------------------------------------------------------------

    def now_ms(self) -> float:
        return self._clock_offset_ms + self.world.now_ms * self._clock_rate

    def time(self) -> float:
        return self.now_ms() / 1000

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        event = Event(self, callback, args)
        event.context = context or copy_context()
        self.enqueue(event)
        return event

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        event = Event(self, callback, args)
        event.context = context or copy_context()
        event.when_s = self.time() + delay
        if not self.is_dead:
            # A time in the past is due now.
            self.world.push(self.world.now_ms + delay * 1000 / self._clock_rate, event)
        return event

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def enqueue(self, event: Event) -> None:
        if not self.is_dead:
            self.ready.append(event)
            if not self.is_queued:
                self.wake()

    def deliver(self, callback: Callable[..., object], *args: object) -> None:
        """Runs a kernel notification in this process."""
        self.enqueue(Event(self, callback, args))

    def wake(self) -> None:
        if not self.is_queued and not self.is_paused:
            self.is_queued = True
            self.world.make_runnable(self)

    def run_event(self, event: Event) -> None:
        callback, args = event.callback, event.args
        assert callback is not None
        try:
            if event.context is None:
                callback(*args)
            else:
                event.context.run(callback, *args)
        except (SimulatedCrash, ProcessExit):
            assert self.is_dead
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if not self.is_dead:
                self.call_exception_handler({"message": f"exception in {callback!r}", "exception": error})

    # --- writes that wait for the end of the batch -------------------------------------------------------------

    def flush_later(self, transport: SimTransport) -> None:
        self.unflushed.append(transport)

    def end_of_batch(self) -> None:
        while self.unflushed:
            transports, self.unflushed = self.unflushed, []
            for transport in transports:
                self.run_event(Event(self, transport.flush, ()))
                if self.is_dead:
                    return

    # --- tasks and futures ---------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        future: SimFuture[Any] = SimFuture.__new__(SimFuture)
        future.number = self.world.next_object_number()
        # asyncio puts it into sets, so its hash must be known before it is initialized.
        future.__init__(loop=self.as_asyncio)  # type: ignore[misc]
        return future

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task: SimTask[T] = SimTask.__new__(SimTask)
        task.number = self.world.next_object_number()
        task.__init__(coro, loop=self.as_asyncio, name=name or f"task-{task.number}", context=context)  # type: ignore[misc]
        if len(self._tasks) >= TASKS_BEFORE_SWEEP:
            self._tasks = self.waiting_tasks()
        self._tasks.append(task)
        return task

    def waiting_tasks(self) -> list[SimTask[Any]]:
        return [task for task in self._tasks if not task.done()]

    # --- errors --------------------------------------------------------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_dead:
            return
        message = str(context.get("message"))
        cause = context.get("exception")
        self.errors += 1
        self.world.trace("error", self.name, message if cause is None else type(cause).__name__)
        error = UnhandledError(f"{self.name}: {message}: {cause!r}")
        error.__cause__ = cause
        self.world.errors.append(error)

    default_exception_handler = call_exception_handler

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    async def shutdown_asyncgens(self) -> None:
        pass

    # --- faults --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self.is_dead = True
        self.ready.clear()

    def pause(self) -> None:
        self.is_paused = True

    def run_at(self, rate: float) -> None:
        """Changes the clock's rate from now on, without a jump. Timers that are set keep their time."""
        now_ms = self.now_ms()
        self._clock_rate = rate
        self._clock_offset_ms = now_ms - self.world.now_ms * rate

    def resume(self) -> None:
        self.is_paused = False
        if self.ready and not self.is_dead:
            self.wake()

    def close_leftovers(self) -> None:
        """Closes what the process left behind. Nothing that its `finally` blocks do has an effect any more."""
        self.kill()
        self.unflushed.clear()
        with warnings.catch_warnings():
            # Coroutines that were created but not started yet.
            warnings.simplefilter("ignore", RuntimeWarning)
            # A `finally` may start new tasks.
            while tasks := self.waiting_tasks():
                self._tasks.clear()
                for task in tasks:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    coroutine = task.get_coro()
                    with suppress(BaseException):
                        coroutine.close()

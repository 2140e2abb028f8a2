"""CPU work in a subprocess: one low-priority worker, started on first use.

A thread would not do: a computing Python thread takes the interpreter from the loop for milliseconds at a time.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future as ConcurrentFuture
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import wait
from types import FrameType
from typing import Any

__all__ = ["JobRunner"]

WORKERS = 1
NICENESS = 10
GIVE_WAY_INTERVAL_S = 0.0005
"""How often the worker yields the processor. Low priority alone is not enough: when the broker wakes up, the
scheduler first lets the running process finish a slice of some milliseconds, and requests wait for it."""


class JobRunner:
    """Runs "package.module:function" with picklable arguments in the subprocess. Thread-safe."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._starting = threading.Lock()

    def submit(self, function: str, *args: object) -> ConcurrentFuture[Any]:
        with self._starting:
            try:
                return self._submit(function, *args)
            except BrokenProcessPool:
                # The worker died in an earlier job, which has failed; start a new worker for this one.
                self._pool = None
                return self._submit(function, *args)

    def stop(self) -> None:
        """Ends the worker after its current job. The next job starts a new one."""
        with self._starting:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, function: str, *args: object) -> ConcurrentFuture[Any]:
        if self._pool is not None:
            return self._pool.submit(_call, function, *args)
        # Not fork: forking a process that has threads and a running loop can deadlock the child.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(WORKERS, mp_context=context, initializer=_begin)
        running = self._pool.submit(_call, function, *args)
        for worker in multiprocessing.active_children():
            # The worker sets its priority itself too, but only after half a second of imports.
            if worker.pid is not None:
                _be_nice(worker.pid)
        return running


def _call(function: str, *args: object) -> Any:
    module, _, name = function.partition(":")
    signal.setitimer(signal.ITIMER_REAL, GIVE_WAY_INTERVAL_S, GIVE_WAY_INTERVAL_S)
    try:
        return getattr(importlib.import_module(module), name)(*args)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _give_way(_number: int, _frame: FrameType | None) -> None:
    os.sched_yield()


def _begin() -> None:
    """Runs in the worker: lowers its priority, leaves signals to the broker, and ends with the broker."""
    _be_nice(os.getpid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _give_way)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _be_nice(process: int) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, NICENESS)


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(0)

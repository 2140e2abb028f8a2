"""CPU work in a subprocess: one worker of low priority, started when it is first needed.

A thread would not do: a Python thread that computes takes the interpreter from the loop for milliseconds at a time.
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
from multiprocessing.connection import wait
from typing import Any

__all__ = ["JobRunner"]

WORKERS = 1
NICENESS = 10


class JobRunner:
    """Runs "package.module:function" with picklable arguments elsewhere."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, function: str, *args: object) -> ConcurrentFuture[Any]:
        try:
            return self._living_pool().submit(_call, function, *args)
        except BrokenProcessPool:
            # The worker died in an earlier job, which has failed; this one gets a new worker.
            self._pool = None
            return self._living_pool().submit(_call, function, *args)

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _living_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Forking a process that has threads and a running loop can deadlock the child.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(WORKERS, mp_context=context, initializer=_begin)
        return self._pool


def _call(function: str, *args: object) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(*args)


def _begin() -> None:
    """In the worker: be nice, leave signals to the broker, and never outlive it."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(0)

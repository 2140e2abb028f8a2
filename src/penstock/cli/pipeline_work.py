"""Work with Spark in a thread, so that Ctrl-C ends a command at once and in silence.

In the main thread, Ctrl-C interrupts whatever call to the JVM is under way. py4j and pyspark then print their
tracebacks, and every later call fails on the half-read answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.cli.output import note

T = TypeVar("T")

LOOK_EVERY_S = 0.1


class Worker(Generic[T]):
    """A function in a thread, with its result or its error."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None
        # Nobody waits for it when the process ends: nothing is half written, and Spark's JVM ends with this process.
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ended(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._error = error


def with_spark(work: Callable[[], T]) -> T:
    """Runs a function that starts Spark, and says so. Raises its error, or KeyboardInterrupt at Ctrl-C."""
    from penstock.spark.slow_start import EXPECTED, notice_now

    note(f"starting Spark, which {EXPECTED}")
    worker = Worker(work)
    started_s = time.monotonic()
    worker.start()
    told = ""
    while not worker.ended(LOOK_EVERY_S):
        if not told and (told := notice_now(time.monotonic() - started_s)):
            note(told)
    return worker.result()

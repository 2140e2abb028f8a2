"""Group commit: one thread that makes files, names and small replacements durable.

A caller asks for durability and gets a future. While the thread waits for the device, further requests queue up. Then
it takes all of them as one round, syncs each file once however often it was requested, and wakes the loop once. So a
thousand waiting producers cost only as many syncs as there are dirty files, and the loop never waits for a device.

A failed sync is final. Linux marks the pages clean when it reports the error, so a second `fdatasync` of the same file
would succeed although the bytes are lost. Therefore the thread remembers failed files and fails every later request for
them, including requests queued before the failure was reported.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread

__all__ = ["SyncThread"]

THREAD_STOP_TIMEOUT_S = 30.0


@dataclass(slots=True, eq=False)
class _Ask:
    subject: Hashable
    work: Callable[[], None]
    shared: bool
    finished: Callable[[], None] | None
    future: Future[None]
    error: Exception | None = None


class SyncThread:
    """Runs sync work in the order requested, grouped into rounds."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.rounds = 0
        self._loop = loop
        self._asked: SimpleQueue[_Ask | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._failed: dict[Hashable, Exception] = {}

    def ask(
        self,
        subject: Hashable,
        work: Callable[[], None],
        *,
        shared: bool,
        finished: Callable[[], None] | None = None,
    ) -> Future[None]:
        """Runs `work` in the thread, then `finished` on the loop, then resolves the future.

        `subject` identifies what is broken for good by a failure. If `shared`, one run of `work` in a round serves
        every request of that round for the same subject.
        """
        if self._thread is None:
            self._thread = Thread(target=self._run, name="penstock-sync", daemon=True)
            self._thread.start()
        future: Future[None] = self._loop.create_future()
        self._asked.put(_Ask(subject, work, shared, finished, future))
        return future

    def stop(self) -> None:
        """Finishes the requested work, then ends the thread."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join(THREAD_STOP_TIMEOUT_S)
            self._thread = None

    def _run(self) -> None:
        while True:
            gathered = [self._asked.get()]
            while not self._asked.empty():
                gathered.append(self._asked.get_nowait())
            asks = [ask for ask in gathered if ask is not None]
            is_over = len(asks) < len(gathered)
            gathered.clear()
            self._run_round(asks)
            # The loop may already be closed if a process stops without waiting for its last syncs.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._resolve, asks)
            if is_over:
                return

    def _run_round(self, asks: list[_Ask]) -> None:
        self.rounds += 1
        done: set[Hashable] = set()
        for ask in asks:
            ask.error = self._failed.get(ask.subject)
            if ask.error is not None or (ask.shared and ask.subject in done):
                continue
            try:
                ask.work()
            except Exception as error:
                self._failed[ask.subject] = ask.error = error
            else:
                if ask.shared:
                    done.add(ask.subject)

    @staticmethod
    def _resolve(asks: list[_Ask]) -> None:
        # The thread must not hold the last reference to a file: it would be collected here while the loop reopens it.
        mine = asks.copy()
        asks.clear()
        for ask in mine:
            if ask.finished is not None:
                ask.finished()
        for ask in mine:
            if ask.future.done():
                continue
            if ask.error is not None:
                ask.future.set_exception(ask.error)
            else:
                ask.future.set_result(None)

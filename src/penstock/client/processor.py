"""Processes a consumer's records with several threads, in parallel, preserving per-key order.

    with Consumer("localhost:9092", "orders", group="shipping") as consumer:
        Processor(consumer, ship, workers=16).run()

The thread that calls `run` polls and commits; the workers call the handler. When `queue_limit` records wait, all
partitions are paused until half of them are done, so the member stays in its group and memory stays bounded. An offset
is committed when every record before it is finished. When partitions are revoked, their waiting records are dropped,
those being processed are waited for, and finished ones are committed before the next member takes over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Message

from penstock.client.cluster import TopicPartition
from penstock.client.consumer import Consumer
from penstock.client.errors import ClientError, CommitFailed, ProcessingFailed
from penstock.client.failures import STOP, Backoff, DeadLetters, Then
from penstock.client.producer import Producer
from penstock.client.workload import Item, Order, Workload
from penstock.stop_flag import StopFlag

log = logging.getLogger("penstock.client")

POLL_S: Final = 0.1
COMMIT_INTERVAL_MS: Final = 1000.0
DRAIN_S: Final = 30.0

Handler = Callable[[Message], object]


class Processor:
    """Runs `handler` for every record of `consumer`, and takes over its commits.

    - `order`: `Order.KEY`, `Order.PARTITION` or `Order.NONE`.
    - `attempts`, `backoff`: how often a record is tried, and the wait in between, during which its key waits too.
    - `on_failure`: what to do after the last attempt: `STOP` (the default: `run` raises ProcessingFailed), `SKIP`, or a
      `DeadLetters`.
    - `drain_s`: how long to wait for running handlers when partitions are revoked, and at the end.
    """

    def __init__(
        self,
        consumer: Consumer,
        handler: Handler,
        *,
        workers: int = 8,
        queue_limit: int = 1000,
        order: Order = Order.KEY,
        attempts: int = 1,
        backoff: Backoff | None = None,
        on_failure: Then | DeadLetters[Producer] = STOP,
        commit_interval_ms: float = COMMIT_INTERVAL_MS,
        drain_s: float = DRAIN_S,
    ) -> None:
        if workers < 1 or queue_limit < 1 or attempts < 1:
            raise ValueError("workers, queue_limit and attempts must be at least 1")
        self._consumer = consumer
        self._handler = handler
        self._workers = workers
        self._attempts = attempts
        self._backoff = backoff or Backoff()
        self._on_failure = on_failure
        self._commit_interval_s = commit_interval_ms / 1000
        self._drain_s = drain_s
        self._work: Workload[Message] = Workload(queue_limit, order)
        self._changed = threading.Condition()
        self._stopping = StopFlag()
        self._ended = False
        self._paused = False
        self._failure: ProcessingFailed | None = None
        self.finished = 0
        self.skipped = 0
        consumer.auto_commit = False
        consumer.listen(self._assigned, self._revoked, self._lost)

    @property
    def queued(self) -> int:
        """The number of records that wait to be processed."""
        with self._changed:
            return self._work.queued

    @property
    def paused(self) -> bool:
        return self._paused

    def run(self) -> None:
        """Processes records until `stop`; if a record fails for good, commits what is finished and raises."""
        threads = [
            threading.Thread(target=self._worker, name=f"penstock-worker-{number}", daemon=True)
            for number in range(self._workers)
        ]
        for thread in threads:
            thread.start()
        try:
            self._loop()
        finally:
            self._stopping.set()
            with self._changed:
                self._work.drop_all()
                self._ended = True
                self._changed.notify_all()
            deadline_s = time.monotonic() + self._drain_s
            for thread in threads:
                thread.join(max(0.0, deadline_s - time.monotonic()))
            if any(thread.is_alive() for thread in threads):
                log.warning("records still unfinished after %g s are not committed and will be repeated", self._drain_s)
            self._commit()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Makes `run` return once running handlers are finished; call it from any thread or signal handler."""
        self._stopping.set()

    def _loop(self) -> None:
        due_s = time.monotonic() + self._commit_interval_s
        while not self._stopping.is_set():
            with self._changed:
                room = self._work.room()
            self._pause(room == 0)
            # Poll even while paused: a member that does not poll is evicted, and rebalances happen inside the poll.
            messages = self._consumer.poll(POLL_S, max_records=max(1, room))
            if messages:
                with self._changed:
                    self._work.accept(messages)
                    self._changed.notify(len(messages))
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + self._commit_interval_s
                self._commit()

    def _pause(self, wanted: bool) -> None:
        if wanted != self._paused:
            self._paused = wanted
            (self._consumer.pause if wanted else self._consumer.resume)()

    def _commit(self) -> None:
        with self._changed:
            positions = self._work.to_commit()
        if not positions:
            return
        try:
            self._consumer.commit(positions)
        except CommitFailed as problem:
            log.warning("%s; will retry", problem)
            return
        with self._changed:
            self._work.committed(positions)

    # The workers

    def _worker(self) -> None:
        while True:
            with self._changed:
                while (item := self._work.take()) is None:
                    if self._ended:
                        return
                    self._changed.wait()
            done = self._handled(item)
            with self._changed:
                if done:
                    self._work.finish(item)
                    self.finished += 1
                else:
                    self._work.give_up(item)
                self._changed.notify_all()

    def _handled(self, item: Item[Message]) -> bool:
        reason: BaseException | None = None
        for attempt in range(1, self._attempts + 1):
            if attempt > 1 and self._stopping.wait(self._backoff.before(attempt) / 1000):
                return False
            try:
                self._handler(item.message)
                return True
            except Exception as problem:
                reason = problem
        assert reason is not None
        return self._failed(item, reason)

    def _failed(self, item: Item[Message], reason: BaseException) -> bool:
        topic, partition = item.where
        if isinstance(self._on_failure, DeadLetters):
            letters = self._on_failure
            try:
                letters.producer.send(**letters.letter(item.message, reason, self._attempts)).result()
            except ClientError as problem:
                reason = problem
            else:
                self.skipped += 1
                return True
        elif self._on_failure is not STOP:
            log.error("skipped %s[%d]@%d: %r", topic, partition, item.offset, reason)
            self.skipped += 1
            return True
        failure = ProcessingFailed(topic, partition, item.offset, self._attempts, reason)
        failure.__cause__ = reason
        with self._changed:
            self._failure = self._failure or failure
        self._stopping.set()
        return False

    # Rebalance listeners, called in the thread of `run`

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        if self._paused:
            self._consumer.pause(partitions)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self._work.drop(partitions)
            if not self._changed.wait_for(lambda: not self._work.busy(partitions), self._drain_s):
                log.warning("records of %s are still being processed; their next owner will repeat them", partitions)
        self._commit()
        self._lost(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self._work.drop(partitions)
            self._work.forget(partitions)

"""Processes the records of an `AsyncConsumer` with coroutines, in parallel, preserving per-key order.

    async with AsyncConsumer("localhost:9092", "orders", group="shipping") as consumer:
        await AsyncProcessor(consumer, ship, concurrency=100).run()

It gives the same guarantees as `penstock.client.Processor`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from confluent_kafka import Message

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.async_producer import AsyncProducer
from penstock.client.cluster import TopicPartition
from penstock.client.errors import ClientError, CommitFailed, ProcessingFailed
from penstock.client.failures import STOP, Backoff, DeadLetters, Then
from penstock.client.processor import COMMIT_INTERVAL_MS, DRAIN_S, POLL_S
from penstock.client.workload import Item, Order, Workload

log = logging.getLogger("penstock.client")

AsyncHandler = Callable[[Message], Awaitable[object]]


class AsyncProcessor:
    """Runs the coroutine function `handler` for every record of `consumer`; options are those of `Processor`."""

    def __init__(
        self,
        consumer: AsyncConsumer,
        handler: AsyncHandler,
        *,
        concurrency: int = 100,
        queue_limit: int = 1000,
        order: Order = Order.KEY,
        attempts: int = 1,
        backoff: Backoff | None = None,
        on_failure: Then | DeadLetters[AsyncProducer] = STOP,
        commit_interval_ms: float = COMMIT_INTERVAL_MS,
        drain_s: float = DRAIN_S,
    ) -> None:
        if concurrency < 1 or queue_limit < 1 or attempts < 1:
            raise ValueError("concurrency, queue_limit and attempts must be at least 1")
        self._consumer = consumer
        self._handler = handler
        self._concurrency = concurrency
        self._attempts = attempts
        self._backoff = backoff or Backoff()
        self._on_failure = on_failure
        self._commit_interval_s = commit_interval_ms / 1000
        self._drain_s = drain_s
        self._work: Workload[Message] = Workload(queue_limit, order)
        self._changed = asyncio.Condition()
        self._stopping = asyncio.Event()
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
        return self._work.queued

    @property
    def paused(self) -> bool:
        return self._paused

    async def run(self) -> None:
        """Processes records until `stop`, or until a record fails for good; then commits what is finished and raises.

        If it is cancelled, the handlers that are running are cancelled too, and their records are delivered again.
        """
        workers = [asyncio.create_task(self._worker()) for _ in range(self._concurrency)]
        try:
            await self._loop(workers)
        except BaseException:
            for worker in workers:
                worker.cancel()
            raise
        finally:
            self._stopping.set()
            self._work.drop_all()
            self._ended = True
            async with self._changed:
                self._changed.notify_all()
            await asyncio.gather(*workers, return_exceptions=True)
            await self._commit()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Makes `run` return once the records being processed are finished."""
        self._stopping.set()

    async def _loop(self, workers: list[asyncio.Task[None]]) -> None:
        due_s = time.monotonic() + self._commit_interval_s
        while not self._stopping.is_set():
            room = self._work.room()
            await self._pause(room == 0)
            messages = await self._consumer.poll(POLL_S, max_records=max(1, room))
            if messages:
                self._work.accept(messages)
                async with self._changed:
                    self._changed.notify(len(messages))
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + self._commit_interval_s
                await self._commit()

    async def _pause(self, wanted: bool) -> None:
        if wanted != self._paused:
            self._paused = wanted
            await (self._consumer.pause if wanted else self._consumer.resume)()

    async def _commit(self) -> None:
        positions = self._work.to_commit()
        if not positions:
            return
        try:
            await self._consumer.commit(positions)
        except CommitFailed as problem:
            log.warning("%s; will retry", problem)
            return
        self._work.committed(positions)

    async def _worker(self) -> None:
        while True:
            async with self._changed:
                while (item := self._work.take()) is None:
                    if self._ended:
                        return
                    await self._changed.wait()
            done = False
            try:
                done = await self._handled(item)
            finally:
                if done:
                    self._work.finish(item)
                    self.finished += 1
                else:
                    self._work.give_up(item)
                async with self._changed:
                    self._changed.notify_all()

    async def _handled(self, item: Item[Message]) -> bool:
        reason: BaseException | None = None
        for attempt in range(1, self._attempts + 1):
            if attempt > 1 and await self._stops_within(self._backoff.before(attempt) / 1000):
                return False
            try:
                await self._handler(item.message)
                return True
            except Exception as problem:
                reason = problem
        assert reason is not None
        return await self._failed(item, reason)

    async def _failed(self, item: Item[Message], reason: BaseException) -> bool:
        topic, partition = item.where
        if isinstance(self._on_failure, DeadLetters):
            letters = self._on_failure
            try:
                await letters.producer.send_and_wait(**letters.letter(item.message, reason, self._attempts))
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
        self._failure = self._failure or failure
        self._stopping.set()
        return False

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _assigned(self, partitions: list[TopicPartition]) -> None:
        if self._paused:
            await self._consumer.pause(partitions)

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._work.drop(partitions)
        try:
            async with asyncio.timeout(self._drain_s), self._changed:
                await self._changed.wait_for(lambda: not self._work.busy(partitions))
        except TimeoutError:
            log.warning("records of %s are still being processed; their next owner will repeat them", partitions)
        await self._commit()
        await self._lost(partitions)

    async def _lost(self, partitions: list[TopicPartition]) -> None:
        self._work.drop(partitions)
        self._work.forget(partitions)

"""A consumer for asyncio.

async with AsyncConsumer("localhost:9092", "orders", group="shipping") as consumer:
    async for message in consumer:
        await ship(message.value())
"""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from confluent_kafka import Message

from penstock.client.cluster import TopicPartition
from penstock.client.consumer import POLL_STEP_S, Consumer, Offsets, OffsetSource, Rebalanced
from penstock.client.metrics import ConsumerMetrics

LOOP_LOOK_S = 1.0
"""How often a thread that waits for the event loop checks that the loop still runs."""

P = ParamSpec("P")
T = TypeVar("T")

Calls = queue.SimpleQueue[Callable[[], None] | None]
AsyncRebalanced = Callable[[list[TopicPartition]], Awaitable[object]]


class AsyncConsumer:
    """Like `penstock.client.Consumer`, for asyncio. Create and use it in one event loop.

    One dedicated thread runs the blocking calls, one at a time. `on_assign`, `on_revoke` and `on_lost` are coroutine
    functions that run in the event loop while the rebalance waits for them; they may call the consumer's methods.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        topics: str | Sequence[str] | None = None,
        group: str | None = None,
        properties: Mapping[str, object] | None = None,
        *,
        offset_store: OffsetSource | None = None,
        on_assign: AsyncRebalanced | None = None,
        on_revoke: AsyncRebalanced | None = None,
        on_lost: AsyncRebalanced | None = None,
        **settings: Any,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: Calls | None = None
        self._calls_lock = threading.Lock()
        self._sync = Consumer(
            bootstrap_servers, topics, group, properties, offset_store=offset_store,
            on_assign=self._in_loop(on_assign), on_revoke=self._in_loop(on_revoke), on_lost=self._in_loop(on_lost),
            **settings,
        )  # fmt: skip
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._sync.options.client_id)
        self._closed = False

    @property
    def metrics(self) -> ConsumerMetrics:
        return self._sync.metrics

    @property
    def auto_commit(self) -> bool:
        return self._sync.auto_commit

    @auto_commit.setter
    def auto_commit(self, wanted: bool) -> None:
        self._sync.auto_commit = wanted

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yields records until `stop`. Requesting the next record marks the previous one as done."""
        handed = self._sync._handed
        while not self._sync._stopped:
            limit = self._sync.max_poll_records
            batch = await self._call(self._sync._next_batch, POLL_STEP_S, limit, whole=False)
            for handed.current, message in enumerate(batch):
                yield message
                if self._sync._commit_is_due():
                    await self._call(self._sync._commit_if_due)
                if self._sync._stopped:
                    break
            handed.keep(handed.take_rest())

    async def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Message]:
        """Returns up to `max.poll.records` records, or none on timeout. Marks the previous poll's records as done."""
        return await self._call(self._sync.poll, timeout_s, max_records=max_records)

    def stop(self) -> None:
        """Ends the iteration soon."""
        self._sync.stop()

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self._call(self._sync.subscribe, topics)

    def listen(
        self,
        on_assign: AsyncRebalanced | None = None,
        on_revoke: AsyncRebalanced | None = None,
        on_lost: AsyncRebalanced | None = None,
    ) -> None:
        """Adds a rebalance listener; listeners are called in the order they were added."""
        self._sync.listen(self._in_loop(on_assign), self._in_loop(on_revoke), self._in_loop(on_lost))

    async def assign(self, partitions: Iterable[tuple[str, int]] | Offsets) -> None:
        await self._call(self._sync.assign, partitions)

    async def assignment(self) -> list[TopicPartition]:
        return await self._call(self._sync.assignment)

    async def pause(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        await self._call(self._sync.pause, partitions)

    async def resume(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        await self._call(self._sync.resume, partitions)

    async def seek(self, partition: tuple[str, int], offset: int) -> None:
        await self._call(self._sync.seek, partition, offset)

    async def seek_to_beginning(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        await self._call(self._sync.seek_to_beginning, partitions)

    async def seek_to_end(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        await self._call(self._sync.seek_to_end, partitions)

    async def seek_to_time(
        self, when: datetime | int, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, int | None]:
        return await self._call(self._sync.seek_to_time, when, partitions)

    async def position(self, partition: tuple[str, int]) -> int | None:
        return await self._call(self._sync.position, partition)

    async def end_offset(self, partition: tuple[str, int]) -> int:
        return await self._call(self._sync.end_offset, partition)

    async def lag(self) -> dict[TopicPartition, int]:
        return await self._call(self._sync.lag)

    async def commit(self, offsets: Offsets | Message | None = None) -> None:
        await self._call(self._sync.commit, offsets)

    async def commit_async(self, offsets: Offsets | Message | None = None) -> None:
        """Sends a commit without waiting for the response, which is passed to `on_commit`."""
        await self._call(self._sync.commit_async, offsets)

    async def committed(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        return await self._call(self._sync.committed, partitions)

    async def close(self) -> None:
        """Commits the records that are done (with auto-commit), and leaves the group."""
        await self._close(clean=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(clean=kind is None or not issubclass(kind, Exception))

    async def _close(self, *, clean: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._sync.stop()
        try:
            await self._call(self._sync._close, clean=clean)
        finally:
            self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        call = functools.partial(function, *arguments, **keywords)
        asked: Future[T] = Future()

        def run() -> None:
            if not asked.set_running_or_notify_cancel():
                return
            try:
                asked.set_result(call())
            except BaseException as problem:
                asked.set_exception(problem)

        with self._calls_lock:
            calls = self._calls
            if calls is not None:
                # The consumer's thread waits for a listener, and this call may come from that listener: run it there.
                calls.put(run)
        if calls is None:
            return await self._loop.run_in_executor(self._thread, call)
        return await asyncio.wrap_future(asked)

    def _in_loop(self, listener: AsyncRebalanced | None) -> Rebalanced | None:
        """Wraps a coroutine listener for the consumer's thread, which serves the listener's calls while it waits."""
        if listener is None:
            return None
        told = listener

        async def tell(partitions: list[TopicPartition]) -> None:
            await told(partitions)

        def wait(partitions: list[TopicPartition]) -> None:
            calls: Calls = queue.SimpleQueue()
            with self._calls_lock:
                self._calls = calls
            told = asyncio.run_coroutine_threadsafe(tell(partitions), self._loop)
            told.add_done_callback(lambda _: calls.put(None))
            self._serve(calls)
            with self._calls_lock:
                self._calls = None
            # Calls queued by other tasks after the listener ended still need an answer.
            calls.put(None)
            self._serve(calls)
            told.result(timeout=0)

        return wait

    def _serve(self, calls: Calls) -> None:
        """Runs queued calls until None is queued, or until the event loop is closed."""
        while True:
            try:
                call = calls.get(timeout=LOOP_LOOK_S)
            except queue.Empty:
                if self._loop.is_closed():
                    return
                continue
            if call is None:
                return
            call()

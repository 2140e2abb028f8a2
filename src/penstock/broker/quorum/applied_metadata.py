"""Replays the metadata log: committed batches update the image in order, and waiting requests are then answered.

A batch is recorded when it is appended and replayed once it is below the high watermark. Each new image is published to
one publisher after the other (the partition manager and others that follow the metadata). Only then are the requests
answered that caused the change. So a response means: decided, durable, and in force on this node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from penstock.metadata import MetadataDelta, MetadataImage, MetadataLoader, Step, difference
from penstock.raft import LogBatch
from penstock.runtime import Future, Runtime
from penstock.wire.errors import KafkaError

Publisher = Callable[[MetadataDelta, MetadataImage], Awaitable[None]]


class AppliedMetadata:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._publishers: list[Publisher] = []
        self._unapplied: deque[LogBatch] = deque()
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._image_watchers: list[tuple[Callable[[MetadataImage], bool], Future[bool]]] = []
        self.loader = MetadataLoader()
        self.features_logged = False
        """Whether the log states the feature levels in force."""

    @property
    def image(self) -> MetadataImage:
        return self.loader.image

    @property
    def in_transaction(self) -> bool:
        """Whether an unfinished metadata transaction is open: its batches take effect only when it is complete."""
        return self.loader.in_transaction

    def add_publisher(self, publisher: Publisher) -> None:
        self._publishers.append(publisher)

    # ---- batches

    def extend(self, batches: Iterable[LogBatch]) -> None:
        """Record batches that were appended to the log."""
        self._unapplied.extend(batches)

    def cut(self, offset: int) -> None:
        """The log was truncated at this offset."""
        while self._unapplied and self._unapplied[-1].base_offset >= offset:
            self._unapplied.pop()

    def upto(self, log_end: int) -> int:
        """The offset below which everything is replayed, in a log that ends at `log_end`."""
        return self._unapplied[0].base_offset if self._unapplied else log_end

    async def apply(self, high_watermark: Callable[[], int]) -> None:
        """Replay committed batches, publish each change, then answer the requests that waited for it."""
        while self._unapplied and self._unapplied[0].end_offset <= high_watermark():
            committed = []
            while self._unapplied and self._unapplied[0].end_offset <= high_watermark():
                committed.append(self._unapplied.popleft())
            step = self.loader.load(committed)
            self.features_logged = self.features_logged or bool(step.delta.features_changed)
            await self._publish(step)

    async def replace(self, loader: MetadataLoader) -> None:
        """A snapshot replaced the log: continue with the image that `loader` holds."""
        self._unapplied.clear()
        before, self.loader = self.image, loader
        await self._publish(Step(difference(before, loader.image), loader.image))

    async def _publish(self, step: Step) -> None:
        for publisher in self._publishers:
            await publisher(step.delta, step.image)
        while self._waiting and self._waiting[0][0] <= step.image.offset + 1:
            applied = self._waiting.popleft()[1]
            if not applied.done():
                applied.set_result(None)
        for condition, found in list(self._image_watchers):
            try:
                if condition(step.image):
                    _conclude(found, True)
            except Exception as error:
                # The failure belongs to the request that caused this change: fail that request, and keep applying.
                if not found.done():
                    found.set_exception(error)

    # ---- waiting requests

    @property
    def awaited_end(self) -> int:
        """The highest offset that a request waits for; 0 if none waits."""
        return self._waiting[-1][0] if self._waiting else 0

    async def until(self, end: int) -> None:
        """Wait until everything below this offset is in force. Raises the error passed to `give_up`."""
        if end > self.image.offset + 1:
            applied: Future[None] = self._runtime.future()
            self._waiting.append((end, applied))
            await applied

    def give_up(self, error: Callable[[], KafkaError]) -> None:
        """Fail all waiting requests: it is no longer known whether their records will be committed."""
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error())

    async def image_where(self, condition: Callable[[MetadataImage], bool], timeout_ms: float) -> bool:
        """Wait until the image satisfies the condition; False after the timeout."""
        if condition(self.image):
            return True
        found: Future[bool] = self._runtime.future()
        self._image_watchers.append((condition, found))
        timer = self._runtime.call_later(timeout_ms, _conclude, found, False)
        try:
            return await found
        finally:
            timer.cancel()
            self._image_watchers = [watcher for watcher in self._image_watchers if watcher[1] is not found]


def _conclude(future: Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)

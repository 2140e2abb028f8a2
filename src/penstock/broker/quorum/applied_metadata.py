"""The metadata log, replayed: what is committed becomes the image, in order, and everyone who waits for it is told.

A batch is taken in when it is appended and replayed once it is below the high watermark. Each step of the image is
published, to one publisher after the other (the partition manager, and whoever else follows the metadata), and only
then are those answered whose decision it was. So an answer means: decided, durable, and in force on this node.
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
        """The log itself says which feature levels are in force."""

    @property
    def image(self) -> MetadataImage:
        return self.loader.image

    @property
    def in_transaction(self) -> bool:
        """Some batches of a decision have come that counts only as a whole."""
        return self.loader.in_transaction

    def add_publisher(self, publisher: Publisher) -> None:
        self._publishers.append(publisher)

    # ---- batches

    def extend(self, batches: Iterable[LogBatch]) -> None:
        """They were appended to the log."""
        self._unapplied.extend(batches)

    def cut(self, offset: int) -> None:
        """The log ends here now."""
        while self._unapplied and self._unapplied[-1].base_offset >= offset:
            self._unapplied.pop()

    def upto(self, log_end: int) -> int:
        """The offset before which all is replayed, in a log that ends there."""
        return self._unapplied[0].base_offset if self._unapplied else log_end

    async def apply(self, high_watermark: Callable[[], int]) -> None:
        """Replay what is committed, publish the change, then answer those who waited for it."""
        while self._unapplied and self._unapplied[0].end_offset <= high_watermark():
            committed = []
            while self._unapplied and self._unapplied[0].end_offset <= high_watermark():
                committed.append(self._unapplied.popleft())
            step = self.loader.load(committed)
            self.features_logged = self.features_logged or bool(step.delta.features_changed)
            await self._publish(step)

    async def replace(self, loader: MetadataLoader) -> None:
        """A snapshot took the place of the log: go on from what it was loaded into."""
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
                # It was made from somebody's request: that one fails, and the image goes on.
                if not found.done():
                    found.set_exception(error)

    # ---- those who wait

    @property
    def awaited_end(self) -> int:
        """Up to where decisions are waited for; 0 if none is."""
        return self._waiting[-1][0] if self._waiting else 0

    async def until(self, end: int) -> None:
        """Until all before this offset is in force. Raises what those who wait are given up with."""
        if end > self.image.offset + 1:
            applied: Future[None] = self._runtime.future()
            self._waiting.append((end, applied))
            await applied

    def give_up(self, error: Callable[[], KafkaError]) -> None:
        """Nobody knows any longer whether what is waited for will be committed."""
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error())

    async def image_where(self, condition: Callable[[MetadataImage], bool], timeout_ms: float) -> bool:
        """Until the image is like this; False when time is up."""
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

"""A processor's waiting, running and finished records. Pure: both processors drive it, each with its own workers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import Enum
from typing import Generic, Protocol, TypeVar

from penstock.client.commit_tracker import CommitTracker, PartitionTracker
from penstock.client.handed_out import Located
from penstock.client.lanes import KeyLanes, QueueGate

Where = tuple[str, int]


class Order(Enum):
    """Which records are processed strictly one after another."""

    KEY = "key"
    """Records with the same key, within a partition; records without a key are independent."""
    PARTITION = "partition"
    NONE = "none"


class Keyed(Located, Protocol):
    def key(self) -> bytes | None: ...


M = TypeVar("M", bound=Keyed)


class Item(Generic[M]):
    """One record inside a processor."""

    __slots__ = ("lane", "message", "offset", "tracker", "where")

    def __init__(self, message: M, where: Where, offset: int, tracker: PartitionTracker, lane: Hashable | None) -> None:
        self.message = message
        self.where = where
        self.offset = offset
        self.tracker = tracker
        self.lane = lane


class Workload(Generic[M]):
    def __init__(self, queue_limit: int, order: Order) -> None:
        self._order = order
        self._lanes: KeyLanes[Item[M]] = KeyLanes()
        self._commits = CommitTracker()
        self._gate = QueueGate(queue_limit)
        self._in_work: dict[Where, int] = {}

    @property
    def queued(self) -> int:
        return self._lanes.queued

    @property
    def in_work(self) -> int:
        return self._lanes.taken

    def room(self) -> int:
        """How many more records to accept; 0 from when the queue is full until it is half empty."""
        return self._gate.limit - self.queued if self._gate.look(self.queued) else 0

    def accept(self, messages: Iterable[M]) -> None:
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            where = (topic, partition)
            tracker = self._commits.start(topic, partition, offset)
            lane = self._lane(where, message)
            self._lanes.add(lane, Item(message, where, offset, tracker, lane))

    def take(self) -> Item[M] | None:
        """A record that may be processed now; call `finish` or `give_up` for it."""
        taken = self._lanes.take()
        if taken is None:
            return None
        item = taken[1]
        self._in_work[item.where] = self._in_work.get(item.where, 0) + 1
        return item

    def finish(self, item: Item[M]) -> None:
        """Marks a record as done: it may be committed, and the next one in its lane may be processed."""
        item.tracker.finish(item.offset)
        self._leave(item)

    def give_up(self, item: Item[M]) -> None:
        """Marks a record as failed: its offset and later ones of its partition will not be committed."""
        self._leave(item)

    def busy(self, partitions: Iterable[Where]) -> int:
        """The number of records of these partitions being processed."""
        return sum(self._in_work.get(where, 0) for where in partitions)

    def to_commit(self) -> dict[Where, int]:
        return self._commits.to_commit()

    def committed(self, positions: dict[Where, int]) -> None:
        self._commits.committed(positions)

    def drop(self, partitions: Iterable[Where]) -> int:
        """Drops records of these partitions that are not being processed yet; returns how many."""
        unwanted = set(partitions)
        return len(self._lanes.drop(lambda item: item.where in unwanted))

    def drop_all(self) -> int:
        return len(self._lanes.drop(lambda _: True))

    def forget(self, partitions: Iterable[Where]) -> None:
        """Ignores records of these partitions that finish from now on."""
        for topic, partition in partitions:
            self._commits.forget(topic, partition)

    def _lane(self, where: Where, message: M) -> Hashable | None:
        if self._order is Order.NONE:
            return None
        if self._order is Order.PARTITION:
            return where
        key = message.key()
        return None if key is None else (*where, key)

    def _leave(self, item: Item[M]) -> None:
        left = self._in_work[item.where] - 1
        if left:
            self._in_work[item.where] = left
        else:
            del self._in_work[item.where]
        self._lanes.finish(item.lane)

"""What may be committed while records are worked on in any order. Pure.

A committed offset says "all before it is done". With several records in work that is the oldest that is not done yet:
never the newest that is. Offsets of a partition may have holes (compaction, transaction markers), so the tracker goes
by the records that it was given, in their order, and never by arithmetic on offsets.
"""

from __future__ import annotations

from collections import deque


class PartitionTracker:
    """One partition: records start in the order of their offsets and finish in any."""

    __slots__ = ("_finished", "_started", "position")

    def __init__(self) -> None:
        self._started: deque[int] = deque()
        self._finished: set[int] = set()
        self.position: int | None = None
        """The offset to commit: all records before it are finished. None until one is."""

    @property
    def unfinished(self) -> int:
        return len(self._started) - len(self._finished)

    def start(self, offset: int) -> None:
        assert not self._started or offset > self._started[-1], "records of a partition start in order"
        self._started.append(offset)

    def finish(self, offset: int) -> None:
        self._finished.add(offset)
        while self._started and self._started[0] in self._finished:
            done = self._started.popleft()
            self._finished.remove(done)
            self.position = done + 1


class CommitTracker:
    """All partitions of a consumer, by (topic, partition)."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], PartitionTracker] = {}
        self._committed: dict[tuple[str, int], int] = {}

    def start(self, topic: str, partition: int, offset: int) -> PartitionTracker:
        """A record is about to be worked on; it is to be finished with the tracker that this returns.

        Not by name: a partition may be taken away and come back while somebody still works on a record of before.
        """
        tracker = self._partitions.get((topic, partition))
        if tracker is None:
            tracker = self._partitions[topic, partition] = PartitionTracker()
        tracker.start(offset)
        return tracker

    def unfinished(self, topic: str, partition: int) -> int:
        tracker = self._partitions.get((topic, partition))
        return 0 if tracker is None else tracker.unfinished

    def to_commit(self) -> dict[tuple[str, int], int]:
        """Positions that moved since they were last committed."""
        return {
            where: tracker.position
            for where, tracker in self._partitions.items()
            if tracker.position is not None and self._committed.get(where) != tracker.position
        }

    def committed(self, positions: dict[tuple[str, int], int]) -> None:
        for where, position in positions.items():
            if where in self._partitions:
                self._committed[where] = position

    def forget(self, topic: str, partition: int) -> None:
        """The partition is another member's now."""
        self._partitions.pop((topic, partition), None)
        self._committed.pop((topic, partition), None)

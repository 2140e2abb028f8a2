"""Which offsets may be committed while records are processed in any order. Pure.

A committed offset means that every record before it is done. With several records in progress it is the offset of the
oldest unfinished record, never of the newest finished one. Offsets may have gaps (compaction, transaction markers), so
the tracker goes by the sequence of records it was given and never by arithmetic on offsets.
"""

from __future__ import annotations

from collections import deque


class PartitionTracker:
    """One partition: records start in offset order and finish in any order."""

    __slots__ = ("_finished", "_started", "position")

    def __init__(self) -> None:
        self._started: deque[int] = deque()
        self._finished: set[int] = set()
        self.position: int | None = None
        """The offset to commit: every record before it is finished. None until a record has finished."""

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
        """Registers a record that is about to be processed; finish it through the tracker returned.

        The caller keeps the tracker rather than the partition's name: the partition may be revoked and assigned again
        while a record of the earlier assignment is still being processed.
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
        """The offsets that advanced since they were last committed."""
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
        """Drops a partition that now belongs to another member."""
        self._partitions.pop((topic, partition), None)
        self._committed.pop((topic, partition), None)

"""The core's view of the log: start and end offsets, epochs and voter sets, but not the records.

The shell builds it at start from the log and the newest snapshot, after syncing them. From then on the core updates it
with every change it orders.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from penstock.raft.messages import LogBatch, Voters
from penstock.raft.types import OffsetAndEpoch, VoterSet

# The offset of a voter set that is in a snapshot and not in the log: no truncation can remove it.
IN_SNAPSHOT = -1


class LogView:
    """Mutable, owned by one core."""

    __slots__ = ("_epoch_starts", "_epochs", "_voter_sets", "end_offset", "snapshot", "start_offset")

    def __init__(
        self, start_offset: int = 0, snapshot: OffsetAndEpoch | None = None, voter_set: VoterSet | None = None
    ) -> None:
        """An empty log that starts at `start_offset`, with the newest snapshot and its voters."""
        assert snapshot is not None or start_offset == 0, "a log without its beginning needs a snapshot"
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.snapshot = snapshot
        self._epochs: list[int] = []
        self._epoch_starts: list[int] = []
        self._voter_sets = [(IN_SNAPSHOT, voter_set or VoterSet())]
        if snapshot is not None and snapshot.offset == start_offset:
            self._add_epoch(snapshot.epoch, snapshot.offset)

    @classmethod
    def recover(
        cls, start_offset: int, batches: Iterable[LogBatch], snapshot: OffsetAndEpoch | None, voter_set: VoterSet
    ) -> LogView:
        """Builds the view from disk: the newest snapshot with its voters, and the log's batches from its start.

        A log that ends before the snapshot adds nothing to it. The view then starts at the snapshot's end, and the
        shell must make the log start there too (compare `start_offset`).
        """
        view = cls(start_offset, snapshot, voter_set)
        for batch in batches:
            view.append(batch)
        if snapshot is not None and view.end_offset < snapshot.offset:
            view.snapshot_installed(snapshot, voter_set)
        return view

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else 0

    @property
    def voter_set(self) -> VoterSet:
        """The newest voter set in the log, committed or not: it is the one in force (KIP-853)."""
        return self._voter_sets[-1][1]

    @property
    def voter_set_offset(self) -> int:
        """The offset of the newest voter set; `IN_SNAPSHOT` if the log has none."""
        return self._voter_sets[-1][0]

    def voter_set_at(self, offset: int) -> VoterSet:
        """The voter set in force just before `offset`."""
        return next(voters for at, voters in reversed(self._voter_sets) if at < offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The newest epoch in the log up to `epoch`, and its end offset."""
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            return OffsetAndEpoch(self.start_offset, 0)
        ends = self._epoch_starts[index + 1] if index + 1 < len(self._epochs) else self.end_offset
        return OffsetAndEpoch(ends, self._epochs[index])

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record before `offset`, which names a snapshot that ends there."""
        if self.snapshot is not None and offset == self.snapshot.offset:
            return self.snapshot.epoch
        index = bisect_right(self._epoch_starts, offset - 1) - 1
        return self._epochs[index] if index >= 0 else 0

    def needs_snapshot(self, offset: int, last_epoch: int) -> bool:
        """Whether the log no longer holds what a replica at (offset, last_epoch) needs next."""
        if self.snapshot is None or self.start_offset == 0:
            return False
        return offset < self.start_offset or last_epoch < self._epochs[0]

    def diverging(self, offset: int, last_epoch: int) -> OffsetAndEpoch | None:
        """Where the log of a replica at (offset, last_epoch) diverged from this one; None if it is a prefix of it."""
        if offset == 0:
            return None
        common = self.end_offset_for_epoch(last_epoch)
        if common.epoch == last_epoch and offset <= common.offset:
            return None
        return common

    # -- changes -----------------------------------------------------------------------------------------------------

    def append(self, batch: LogBatch) -> None:
        assert batch.base_offset == self.end_offset, f"a gap: {batch.base_offset} after {self.end_offset}"
        assert batch.count > 0
        if batch.epoch != self.last_epoch or not self._epochs:
            self._add_epoch(batch.epoch, batch.base_offset)
        for index, record in enumerate(batch.control):
            if isinstance(record, Voters):
                self._voter_sets.append((batch.base_offset + index, record.voter_set))
        self.end_offset = batch.end_offset

    def truncate_to(self, offset: int) -> None:
        assert self.start_offset <= offset < self.end_offset
        self.end_offset = offset
        # Keep the first epoch if it is the snapshot's: an emptied log still follows its snapshot.
        keep = 1 if self.snapshot is not None and self._epochs[0] <= self.snapshot.epoch else 0
        while len(self._epochs) > keep and self._epoch_starts[-1] >= offset:
            self._epoch_starts.pop()
            self._epochs.pop()
        while self._voter_sets[-1][0] >= offset:
            self._voter_sets.pop()

    def snapshot_taken(self, snapshot: OffsetAndEpoch, log_start_offset: int) -> None:
        assert self.start_offset <= log_start_offset <= snapshot.offset <= self.end_offset
        covered = self.voter_set_at(snapshot.offset)
        self._voter_sets = [(IN_SNAPSHOT, covered), *(v for v in self._voter_sets if v[0] >= snapshot.offset)]
        self.snapshot = snapshot
        self.start_offset = log_start_offset
        # Keep the epoch of the last record before the start: a replica that ends exactly there can continue.
        first = bisect_left(self._epoch_starts, log_start_offset) - 1
        if first >= 0:
            del self._epochs[:first], self._epoch_starts[:first]
            self._epoch_starts[0] = log_start_offset

    def snapshot_installed(self, snapshot: OffsetAndEpoch, voter_set: VoterSet) -> None:
        self.snapshot = snapshot
        self.start_offset = self.end_offset = snapshot.offset
        self._epochs = [snapshot.epoch]
        self._epoch_starts = [snapshot.offset]
        self._voter_sets = [(IN_SNAPSHOT, voter_set)]

    def _add_epoch(self, epoch: int, start: int) -> None:
        assert not self._epochs or (epoch > self._epochs[-1] and start >= self._epoch_starts[-1])
        self._epochs.append(epoch)
        self._epoch_starts.append(start)

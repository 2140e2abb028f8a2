"""Bugs that others really had, to be switched on one at a time in whole clusters: the trials must find each of them.

Those of the quorum are planted into the pure core (`tests/raft/planted.py`).
"""

from __future__ import annotations

import pytest

from penstock.broker.apis import replica_fetch
from penstock.broker.apis.fetch import PendingFetch
from penstock.broker.fetch.sessions import FetchItem
from penstock.broker.quorum import metadata_evidence
from penstock.broker.replicas.partition import CommitWaiter, Partition
from penstock.broker.replicas.partition_directories import PartitionDirectories
from penstock.broker.replicas.partitions import PartitionManager
from penstock.log import Appended, Log, Strays
from penstock.log.recovery import Recovery
from penstock.log.segment import Segment
from penstock.metadata import PartitionState, partition_control
from penstock.metadata.elections import Rules, elect, without
from penstock.replication import Leader


def damage_is_believed(patch: pytest.MonkeyPatch) -> None:
    """A damaged metadata log is cut and trusted, and directories of topics that it lost are deleted."""

    async def delete(self: Strays, directory: str, reason: str) -> str:
        self._runtime.disk.rmtree(directory)
        return ""

    patch.setattr(metadata_evidence, "_judge", lambda *args: iter(()))
    patch.setattr(PartitionManager, "unknown_directories", lambda self, image: {})
    patch.setattr(Strays, "set_aside", delete)


def lost_log_is_served_empty(patch: pytest.MonkeyPatch) -> None:
    """A partition without a directory is taken for a new one."""
    patch.setattr(PartitionDirectories, "is_lost", lambda self, partition: False)


def cut_end_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A recovery cuts a log at the first batch that is not whole, and throws away what follows."""

    async def cut(self: Recovery, segment: Segment, position: int, size: int, expected: int) -> None:
        self._cut_bytes += size - position

    async def remove(self: Recovery, segments: list[Segment], expected: int) -> None:
        for segment in reversed(segments):
            self._unlink_segment(segment)

    patch.setattr(Recovery, "_look_at_end", cut)
    patch.setattr(Recovery, "_set_segments_aside", remove)


def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """A follower's log is taken for a prefix of the leader's if it is not longer (KIP-101)."""

    def compare(log: Log, item: FetchItem) -> tuple[int, int] | None:
        return (log.latest_epoch, log.end_offset) if item.fetch_offset > log.end_offset else None

    patch.setattr(replica_fetch, "compare", compare)


def high_watermark_moves_back(patch: pytest.MonkeyPatch) -> None:
    """It is what the ISR has now, even if that is less than before."""

    def advance(self: Leader) -> int:
        if not self.under_min_isr:
            self.high_watermark = min([self.stable_end, *(follower.end for follower in self._counted)])
            self.high_watermark = max(0, self.high_watermark)
        return self.high_watermark

    patch.setattr(Leader, "_advance", advance)


def unclean_replica_kept_in_the_isr(patch: pytest.MonkeyPatch) -> None:
    """A broker that comes back without proof of a clean stop is taken for one that only was away."""

    def kept(
        state: PartitionState, broker_id: int, rules: Rules, *, lost: bool, emptied: bool = False
    ) -> PartitionState:
        return elect(state, state.isr, rules) if lost else without(state, broker_id, rules, lost=False)

    patch.setattr(partition_control, "without", kept)


def duplicate_acknowledged_early(patch: pytest.MonkeyPatch) -> None:
    """The answer to a batch that is there already does not wait until it is committed."""
    append, await_commit = Partition.append, Partition.await_commit
    duplicates: dict[Partition, int] = {}

    def remembering(self: Partition, records: memoryview, acks: int, wall_ms: int) -> Appended:
        appended = append(self, records, acks, wall_ms)
        if appended.duplicate:
            duplicates[self] = appended.last_offset + 1
        return appended

    def hasty(self: Partition, offset: int, acks: int, waiter: CommitWaiter, token: int) -> bool:
        return duplicates.get(self) == offset or await_commit(self, offset, acks, waiter, token)

    patch.setattr(Partition, "append", remembering)
    patch.setattr(Partition, "await_commit", hasty)


def read_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Readers are shown the whole log of the leader."""
    read = PendingFetch._read

    def eager(self: PendingFetch, *args: object) -> object:
        leaders: list[tuple[Leader, int]] = []
        for item in self._items.values():
            partition = item.resolve(self._fetch.table, self._by_id)
            if partition is not None and partition.leader is not None and partition.log is not None:
                leaders.append((partition.leader, partition.leader.high_watermark))
                partition.leader.high_watermark = partition.log.end_offset
        try:
            return read(self, *args)  # type: ignore[arg-type]
        finally:
            for leader, high_watermark in leaders:
                leader.high_watermark = high_watermark

    patch.setattr(PendingFetch, "_read", eager)

"""The state of a group: figures, trend and verdict per partition, and for the whole group."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.lag.history import History
from penstock.lag.trend import UNKNOWN_TREND, Trend, trend_of
from penstock.lag.verdicts import GroupVerdict, Verdict, group_verdict, judge


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A group's position in one partition, as reported by the cluster; None for unknown values."""

    topic: str
    partition: int
    committed: int | None
    """The offset of the next record to read."""
    start: int | None = None
    end: int | None = None
    """The high watermark: the offset of the next record to be written."""
    unread_timestamp_ms: int | None = None
    """The timestamp of the first unread record."""
    is_owned: bool = True
    """Whether a member of the group owns the partition."""

    @property
    def lag_records(self) -> int | None:
        """The number of unread records; 0 if the end was read before the commit and is smaller."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    def lag_ms(self, now_ms: int) -> int | None:
        """The age of the oldest unread record."""
        if self.lag_records == 0:
            return 0
        if self.lag_records is None or self.unread_timestamp_ms is None or self.unread_timestamp_ms < 0:
            return None
        return max(0, now_ms - self.unread_timestamp_ms)

    @property
    def deleted_unread(self) -> int:
        """The number of records that retention deleted before the group read them."""
        if self.committed is None or self.start is None:
            return 0
        return max(0, self.start - self.committed)


class PartitionLag(msgspec.Struct, frozen=True, kw_only=True):
    """The report for one partition."""

    position: Position
    lag_records: int | None
    lag_ms: int | None
    trend: Trend
    verdict: Verdict
    reason: str
    complete: float


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """The report for a group."""

    group: str
    verdict: GroupVerdict
    partitions: Sequence[PartitionLag]
    total_lag: int
    """The sum over the partitions whose lag is known."""
    lag_ms_max: int | None
    """The age of the oldest unread record of all partitions; None if no age is known."""
    complete: float
    """The share of partitions whose window is full."""

    @property
    def worst(self) -> PartitionLag | None:
        """The partition to look at first: the one with the worst verdict, then the largest lag."""
        return max(self.partitions, key=lambda one: (one.verdict, one.lag_records or 0), default=None)


def assess_partition(position: Position, history: History | None, now_ms: int) -> PartitionLag:
    """Figures, trend and verdict for one partition; without a history, only the current figures."""
    lag = position.lag_records
    known = history if history is not None else History()
    judgement = judge(known, position.committed, lag, now_ms, owned=position.is_owned)
    return PartitionLag(
        position=position,
        lag_records=lag,
        lag_ms=position.lag_ms(now_ms),
        trend=trend_of(known.observations, lag, now_ms, known.source) if lag is not None else UNKNOWN_TREND,
        verdict=judgement.verdict,
        reason=judgement.reason,
        complete=judgement.complete,
    )


def assess_group(group: str, partitions: Sequence[PartitionLag]) -> GroupLag:
    """The report for the whole group."""
    ages = [one.lag_ms for one in partitions if one.lag_ms is not None]
    return GroupLag(
        group=group,
        verdict=group_verdict([one.verdict for one in partitions]),
        partitions=partitions,
        total_lag=sum(one.lag_records or 0 for one in partitions),
        lag_ms_max=max(ages, default=None),
        complete=sum(one.complete >= 1 for one in partitions) / len(partitions) if partitions else 0.0,
    )

"""Where a group stands: figures, trend and verdict per partition, and for the whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.lag.history import History
from penstock.lag.trend import UNKNOWN_TREND, Trend, trend_of
from penstock.lag.verdicts import GroupVerdict, Verdict, group_verdict, judge


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group stands in one partition, as the cluster tells it; None is what it could not tell."""

    topic: str
    partition: int
    committed: int | None
    """The offset that is read next."""
    start: int | None = None
    end: int | None = None
    """The high watermark: the offset of the next record that is written."""
    unread_timestamp_ms: int | None = None
    """The timestamp of the first unread record."""
    is_owned: bool = True
    """Whether a member of the group has the partition."""

    @property
    def lag_records(self) -> int | None:
        """How many records are unread. An end that was asked for before the commit may be the smaller one."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    def lag_ms(self, now_ms: int) -> int | None:
        """How old the oldest unread record is."""
        if self.lag_records == 0:
            return 0
        if self.lag_records is None or self.unread_timestamp_ms is None or self.unread_timestamp_ms < 0:
            return None
        return max(0, now_ms - self.unread_timestamp_ms)

    @property
    def deleted_unread(self) -> int:
        """How many records retention took before the group read them."""
        if self.committed is None or self.start is None:
            return 0
        return max(0, self.start - self.committed)


class PartitionLag(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to say about one partition."""

    position: Position
    lag_records: int | None
    lag_ms: int | None
    trend: Trend
    verdict: Verdict
    reason: str
    complete: float


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to say about a group."""

    group: str
    verdict: GroupVerdict
    partitions: Sequence[PartitionLag]
    total_lag: int
    """Over the partitions whose lag is known."""
    lag_ms_max: int | None
    """The oldest unread record of all partitions; None if no age is known."""
    complete: float
    """The share of partitions whose window is full."""

    @property
    def worst(self) -> PartitionLag | None:
        """The partition to look at first: the worst verdict, and among equals the largest lag."""
        return max(self.partitions, key=lambda one: (one.verdict, one.lag_records or 0), default=None)


def assess_partition(position: Position, history: History | None, now_ms: int) -> PartitionLag:
    """Figures, trend and verdict for one partition; without a history there is no trend, and what is told is now."""
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
    """The group as a whole."""
    ages = [one.lag_ms for one in partitions if one.lag_ms is not None]
    return GroupLag(
        group=group,
        verdict=group_verdict([one.verdict for one in partitions]),
        partitions=partitions,
        total_lag=sum(one.lag_records or 0 for one in partitions),
        lag_ms_max=max(ages, default=None),
        complete=sum(one.complete >= 1 for one in partitions) / len(partitions) if partitions else 0.0,
    )

"""The leader's state of one partition. `on_append` runs for every produced batch, so it allocates nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class IsrProposal(NamedTuple):
    """An ISR that the leader asks the controller to record (AlterPartition)."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class FollowerProgress:
    """What the leader knows about one follower, all from its fetches."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end", "fetched_ms", "leader_end_at_fetch", "log_start")

    def __init__(self, now_ms: float) -> None:
        self.end = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        """The epoch of the fetching broker's incarnation: after a restart it may hold less than before (KIP-903)."""
        self.fetched_ms = now_ms
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        # A new leader grants every follower a full lag time before it judges them.
        self.caught_up_ms = now_ms


class Leader:
    """Replication state of a partition on its leader, for one leader epoch."""

    __slots__ = (
        "_alone",
        "_counted",
        "_quiet_until_ms",
        "end",
        "epoch_start",
        "followers",
        "high_watermark",
        "isr",
        "lag_time_max_ms",
        "leader_epoch",
        "min_isr",
        "node_id",
        "partition_epoch",
        "proposed",
        "refuses_acks_all",
        "replicas",
        "stable_end",
        "stranded",
        "under_min_isr",
    )

    def __init__(
        self,
        node_id: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        *,
        leader_epoch: int,
        partition_epoch: int,
        end: int,
        stable_end: int,
        high_watermark: int = 0,
        min_isr: int = 1,
        lag_time_max_ms: float = 30_000,
        now_ms: float = 0,
    ) -> None:
        assert high_watermark <= stable_end <= end
        self.node_id = node_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.end = end
        self.stable_end = stable_end
        self.high_watermark = high_watermark
        self.epoch_start = end
        self.min_isr = min_isr
        self.lag_time_max_ms = lag_time_max_ms
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.proposed: tuple[int, ...] | None = None
        self.followers = {replica: FollowerProgress(now_ms) for replica in self.replicas if replica != node_id}
        assert node_id in self.replicas
        self._check_isr()
        self._quiet_until_ms = float("-inf")
        """No proposals before this time, because the controller refused one and would refuse the same again."""
        self.under_min_isr = False
        """Too few in-sync replicas for acks=all. A topic with fewer replicas than the minimum needs all of them."""
        self.stranded = False
        """Cut off from both the controller and a replica that every commit must wait for."""
        self.refuses_acks_all = False
        """One of the two conditions above holds: records appended now cannot be committed soon."""
        self._alone = False
        self._counted: tuple[FollowerProgress, ...] = ()
        """The members of the maximal ISR other than the leader."""
        self._recount()

    # -- log growth --------------------------------------------------------------------------------------------------

    def on_append(self, end: int, stable_end: int) -> int:
        """The log now ends at `end`, and is stable up to `stable_end`. Returns the high watermark."""
        self.end = end
        self.stable_end = stable_end
        if not self._alone:
            return self._advance()
        # Enabling `flush.*` at run time lowers the stable end; records that were readable stay readable.
        if stable_end > self.high_watermark:
            self.high_watermark = stable_end
        return self.high_watermark

    def on_durable(self, stable_end: int) -> int:
        """A sync made more of the log stable. Returns the high watermark."""
        return self.on_append(self.end, stable_end)

    # -- followers ---------------------------------------------------------------------------------------------------

    def on_fetch(
        self, replica: int, offset: int, now_ms: float, *, broker_epoch: int = UNKNOWN_EPOCH, eligible: bool = True
    ) -> IsrProposal | None:
        """A follower fetches from `offset`, so it holds everything before it. May move the high watermark.

        `eligible` is false for a broker that is fenced, shutting down or not the registered incarnation: it may follow
        but not join the ISR (KIP-841, KIP-903). Fetches that an earlier incarnation had in flight are ignored.
        """
        follower = self.followers[replica]
        if broker_epoch < follower.broker_epoch:
            return None
        if broker_epoch > follower.broker_epoch:
            follower.broker_epoch = broker_epoch
            # The progress of its previous incarnation says nothing about this one.
            follower.leader_end_at_fetch = UNKNOWN_OFFSET
        if offset >= self.end:
            follower.caught_up_ms = now_ms
        elif offset >= follower.leader_end_at_fetch >= 0:
            # It has everything the leader had at its last fetch, so it was caught up then, however fast the log grows.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end = offset
        follower.fetched_ms = now_ms
        follower.leader_end_at_fetch = self.end
        self._advance()
        if self.proposed is not None or not eligible or replica in self.isr or not self._may_join(follower):
            return None
        return None if now_ms < self._quiet_until_ms else self._propose((*self.isr, replica))

    def tick(self, now_ms: float) -> IsrProposal | None:
        """Proposes to drop ISR members that have not been caught up for `replica.lag.time.max.ms`.

        A follower at the end of the log need not fetch, so this method also notes that it is caught up: call it several
        times within that span.
        """
        for follower in self.followers.values():
            if follower.end >= self.end:
                follower.caught_up_ms = now_ms
        return self.drop(now_ms, self.lag_time_max_ms, self.isr)

    def drop(self, now_ms: float, lag_time_max_ms: float, suspects: Iterable[int]) -> IsrProposal | None:
        """Proposes an ISR without those suspects that have been behind for longer than `lag_time_max_ms`."""
        if self.proposed is not None or now_ms < self._quiet_until_ms:
            return None
        lagging = [one for one in suspects if one in self.isr and self._lags(one, now_ms, lag_time_max_ms)]
        if not lagging:
            return None
        return self._propose(tuple(replica for replica in self.isr if replica not in lagging))

    def expand(self, now_ms: float, eligible: Callable[[int, int], bool]) -> IsrProposal | None:
        """Proposes followers that have everything but were not eligible, or not proposed, at their last fetch.

        They need not fetch again while nothing is appended. Call as `eligible(replica, broker epoch)`.
        """
        if self.proposed is not None or now_ms < self._quiet_until_ms or len(self.isr) == len(self.replicas):
            return None
        joining = tuple(
            replica
            for replica, follower in self.followers.items()
            if replica not in self.isr
            and self._may_join(follower)
            and not self._lags(replica, now_ms, self.lag_time_max_ms)
            and eligible(replica, follower.broker_epoch)
        )
        return self._propose((*self.isr, *joining)) if joining else None

    def give_up(self, now_ms: float) -> IsrProposal | None:
        """Proposes an ISR without this leader, because its own log is damaged: another member should lead."""
        others = tuple(replica for replica in self.isr if replica != self.node_id)
        if not others or self.proposed is not None or now_ms < self._quiet_until_ms:
            return None
        return self._propose(others)

    # -- the controller ----------------------------------------------------------------------------------------------

    def on_isr(self, replicas: Iterable[int], isr: Iterable[int], partition_epoch: int, now_ms: float) -> int:
        """The controller recorded this ISR, proposed or not; older updates are ignored. Returns the high watermark."""
        if partition_epoch <= self.partition_epoch:
            return self.high_watermark
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.proposed = None
        self._check_isr()
        self.followers = {
            replica: self.followers.get(replica) or FollowerProgress(now_ms)
            for replica in self.replicas
            if replica != self.node_id
        }
        return self._recount()

    def on_refused(self, quiet_until_ms: float = float("-inf")) -> int:
        """The controller refused the proposal. Do not call it on a timeout: the proposal may have been recorded.

        Nothing is proposed before `quiet_until_ms`.
        """
        self.proposed = None
        self._quiet_until_ms = quiet_until_ms
        return self._recount()

    def on_min_isr(self, min_isr: int) -> int:
        """`min.insync.replicas` of the topic changed. Returns the high watermark."""
        self.min_isr = min_isr
        return self._recount()

    def on_stranded(self, stranded: bool) -> None:
        self.stranded = stranded
        self.refuses_acks_all = stranded or self.under_min_isr

    @property
    def low_watermark(self) -> int:
        """The smallest log start of the in-sync followers; records before it are gone. -1 if one is unknown."""
        starts = [self.followers[replica].log_start for replica in self.isr if replica != self.node_id]
        return min(starts, default=self.end)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every replica that may be in the controller's ISR by now."""
        if self.proposed is None:
            return self.isr
        return self.isr + tuple(replica for replica in self.proposed if replica not in self.isr)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _advance(self) -> int:
        if self.under_min_isr:
            return self.high_watermark
        lowest = self.stable_end
        for follower in self._counted:
            if follower.end < lowest:
                lowest = follower.end
        if lowest > self.high_watermark:
            self.high_watermark = lowest
        return self.high_watermark

    def _recount(self) -> int:
        self.under_min_isr = len(self.isr) < min(self.min_isr, len(self.replicas))
        self.refuses_acks_all = self.stranded or self.under_min_isr
        self._counted = tuple(self.followers[replica] for replica in self.maximal_isr if replica != self.node_id)
        self._alone = not self._counted and not self.under_min_isr
        return self._advance()

    def _may_join(self, follower: FollowerProgress) -> bool:
        # It must also have reached the epoch's start, where it has truncated what only an older leader had
        # (KAFKA-7128).
        return follower.end >= self.high_watermark and follower.end >= self.epoch_start

    def _lags(self, replica: int, now_ms: float, lag_time_max_ms: float) -> bool:
        if replica == self.node_id:
            return False
        follower = self.followers[replica]
        return follower.end < self.end and now_ms - follower.caught_up_ms > lag_time_max_ms

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        self.proposed = isr
        self._recount()
        return IsrProposal(isr, self.leader_epoch, self.partition_epoch)

    def _check_isr(self) -> None:
        assert self.node_id in self.isr, f"leader {self.node_id} is not in its ISR {self.isr}"
        assert all(replica in self.replicas for replica in self.isr)

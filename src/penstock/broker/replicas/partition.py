"""A partition as this broker serves it: its log, its leader or follower state, and the requests that wait for it.

Appends go to the log, and the leader state computes the high watermark. When it advances, two kinds of requests are
woken: produce requests that wait for their commit, and fetches that wait for data. Produce requests are answered
immediately; fetches are woken later, by `Wakes`, after the acknowledgement was sent. Fetches of followers
(`FollowerFetch`) wait for the append itself, because the commit depends on them. Fetches of committed records only
(`read_committed`) wait for the last stable offset, which moves with the high watermark, but not beyond the first
transaction that is open or whose end is not committed.

A partition leads (`leader` is set), follows (`follower` is set), or does neither: then its log is not open or is being
truncated, or the partition has no leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.broker import limits
from penstock.coordinators.host import marker_batch
from penstock.coordinators.shard import EndMarker
from penstock.log import Appended, AppendOrigin, Log, Verification
from penstock.metadata import PartitionState
from penstock.replication import Follower, IsrProposal, Leader, LogEnds
from penstock.runtime import Future
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.broker.produce.preparing import PartitionQueue

NO_LEADER = -1


class FetchWaiter(Protocol):
    """A parked fetch."""

    def advanced(self) -> None:
        """One of its partitions has advanced: respond if there is enough data."""


class FollowerFetch(Protocol):
    """A follower's outstanding fetch of one partition (`penstock.broker.fetch.replica_sessions`)."""

    def on_append(self) -> FetchWaiter | None:
        """Records were appended. Returns the parked fetch that waits for them, if any."""

    def on_high_watermark(self) -> FetchWaiter | None:
        """The high watermark advanced. It is sent with the next response; if a parked fetch is returned, that is
        now."""

    def on_resign(self) -> FetchWaiter | None:
        """This broker no longer leads the partition."""


class CommitWaiter(Protocol):
    """A produce request that waits until its records are committed (or stable, with acks=1)."""

    def reached(self, token: int, error: ErrorCode) -> None: ...


class PartitionListener(Protocol):
    """A component that keeps its state in the partitions of an internal topic."""

    def on_leader(self, partition: InternalPartition) -> None:
        """This broker now leads the partition, possibly again under a new epoch."""

    def on_resign(self, partition: InternalPartition) -> None:
        """This broker no longer leads the partition."""

    def on_high_watermark(self, partition: InternalPartition) -> None:
        """The high watermark advanced."""


NOBODY: deque[tuple[int, CommitWaiter, int]] = deque(maxlen=0)


class Wakes:
    """Partitions whose waiting fetches are woken after the responses of this turn were sent.

    The number of wakes per turn is limited, so that a write for which thousands wait does not block the loop.
    """

    __slots__ = ("_call_soon", "_dirty", "_grown", "_queued", "_stable", "_waking")

    def __init__(self, call_soon: Callable[..., object]) -> None:
        self._call_soon = call_soon
        self._dirty: dict[Partition, None] = {}
        self._stable: dict[Partition, None] = {}
        self._grown: dict[Partition, None] = {}
        self._waking: deque[FetchWaiter] = deque()
        self._queued = False

    def mark(self, partition: Partition) -> None:
        self._dirty[partition] = None

    def mark_stable(self, partition: Partition) -> None:
        """The last stable offset moved, for which fetches of committed records wait."""
        self._stable[partition] = None

    def grown(self, partition: Partition) -> None:
        """Records were appended, for which followers wait."""
        self._grown[partition] = None

    def run(self) -> None:
        if self._grown:
            self._run_followers()
        if self._dirty:
            for partition in self._dirty:
                self._waking.extend(partition.fetch_waiters)
            self._dirty.clear()
        if self._stable:
            for partition in self._stable:
                self._waking.extend(partition.committed_waiters or ())
            self._stable.clear()
        waking = self._waking
        if not waking or self._queued:
            return
        for _ in range(min(len(waking), limits.WAKES_PER_TICK_MAX)):
            waking.popleft().advanced()
        if waking:
            self._queued = True
            self._call_soon(self._rest)

    def wake(self, waiter: FetchWaiter) -> None:
        """Wake a fetch in the next turn."""
        self._waking.append(waiter)

    def _run_followers(self) -> None:
        """Wake followers first, because commits wait for them. Each broker has one fetch for many partitions."""
        grown, self._grown = self._grown, {}
        waiting: dict[FetchWaiter, None] = {}
        for partition in grown:
            for follower_fetch in partition.follower_fetches or ():
                waiter = follower_fetch.on_append()
                if waiter is not None:
                    waiting[waiter] = None
        for waiter in waiting:
            waiter.advanced()

    def run_soon(self) -> None:
        """Schedule a run for marks made outside a connection's turn (a finished sync, a deleted topic)."""
        if not self._queued:
            self._queued = True
            self._call_soon(self._rest)

    def _rest(self) -> None:
        self._queued = False
        self.run()


class Partition:
    __slots__ = (
        "_commit_waiters",
        "_known_high_watermark",
        "_stable_offset",
        "_stable_waiters",
        "_wakes",
        "committed_waiters",
        "cutting",
        "damaged_at",
        "fetch_waiters",
        "follower",
        "follower_fetches",
        "index",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "min_insync_replicas",
        "on_follower_durable",
        "preparing",
        "refusal",
        "repairs",
        "retired",
        "state",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, wakes: Wakes) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.state: PartitionState | None = None
        """The state in the metadata."""
        self.min_insync_replicas = 1
        self.leader: Leader | None = None
        """Set while this broker leads the partition and its log is open."""
        self.follower: Follower | None = None
        """Set while this broker follows another and its log is open."""
        self.cutting: Future[None] | None = None
        """Set while a truncation runs: until it ends, the log must not be written, led or deleted."""
        self.damaged_at: int | None = None
        """The offset at which this broker's copy is damaged; None if no damage is known."""
        self.repairs = 0
        """How often its log was truncated because of damage and copied again."""
        self.follower_fetches: dict[FollowerFetch, None] | None = None
        """The outstanding fetches of followers."""
        self.on_follower_durable: Callable[[Partition], None] | None = None
        """Called when a sync made more of a follower's log stable."""
        self._known_high_watermark = 0
        """The last known value while this broker neither leads nor follows."""
        self.log: Log | None = None
        self.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        """The error for requests while this broker does not lead the partition."""
        self.retired = False
        """The topic was deleted: holders of this object must look the partition up again."""
        self.preparing: PartitionQueue | None = None
        """Set while batches wait to be prepared, or if the topic has a codec of its own: appends may have to queue."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self.committed_waiters: dict[FetchWaiter, None] | None = None
        """Parked fetches of committed records only."""
        self._stable_offset = 0
        """The last stable offset when it was last looked at."""
        # Shared by ten thousand partitions until a request waits: an empty deque takes 600 bytes.
        self._commit_waiters = NOBODY
        self._stable_waiters = NOBODY
        self._wakes = wakes

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # ---- leading

    def follow_state(self, state: PartitionState) -> None:
        self.state = state
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch

    @property
    def is_copied(self) -> bool:
        """Whether this broker leads or follows the partition, so that its committed part is current and may be cleaned
        up."""
        return self.leader is not None or self.follower is not None

    @property
    def high_watermark(self) -> int:
        """The high watermark as far as this broker knows it."""
        if self.leader is not None:
            return self.leader.high_watermark
        return self._known_high_watermark if self.follower is None else self.follower.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Set a value from a checkpoint."""
        assert self.leader is None
        assert self.follower is None
        self._known_high_watermark = offset

    def lead(self, leader: Leader) -> None:
        assert self.log is not None
        assert self.follower is None
        self.leader = leader
        self.log.on_durable = self._durable
        self.log.snapshots.void_verifications()
        if self.follower_fetches:
            # Followers may have learned of this leadership, and fetched, before this broker did.
            self._wakes.grown(self)
        self._wake_fetches()
        self._wakes.run_soon()

    def resign(self, error: ErrorCode) -> None:
        """Stop leading: all waiting requests are told to look for another leader."""
        if self.leader is not None:
            self._known_high_watermark = self.leader.high_watermark
        self.leader = None
        if self.log is not None:
            self.log.snapshots.void_verifications()
        self._refuse_waiters(self._commit_waiters, error)
        self._refuse_waiters(self._stable_waiters, error)
        for follower_fetch in list(self.follower_fetches or ()):
            waiter = follower_fetch.on_resign()
            if waiter is not None:
                self._wakes.wake(waiter)
        self._wake_fetches()
        self._wakes.run_soon()

    def isr_recorded(self, state: PartitionState, now_ms: float) -> None:
        """The controller recorded other replicas or another ISR in the current leader epoch."""
        self._after(self._leads().on_isr, state.replicas, state.isr, state.partition_epoch, now_ms)

    def isr_refused(self, quiet_until_ms: float) -> None:
        self._after(self._leads().on_refused, quiet_until_ms)

    def strand(self, stranded: bool) -> None:
        """This broker lost contact to the cluster and most likely no longer leads, or it regained contact."""
        self._leads().on_stranded(stranded)
        if stranded:
            self._refuse_waiters(self._commit_waiters, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._wake_fetches()
            self._wakes.run_soon()

    def configure_min_isr(self, min_insync_replicas: int) -> None:
        self.min_insync_replicas = min_insync_replicas
        if self.leader is not None and self.leader.min_isr != min_insync_replicas:
            self._after(self.leader.on_min_isr, min_insync_replicas)

    def fetched_by(
        self, replica: int, offset: int, now_ms: float, broker_epoch: int, eligible: bool
    ) -> IsrProposal | None:
        """A follower has everything below `offset`, equal to this log."""
        leader = self._leads()
        before = leader.high_watermark
        proposal = leader.on_fetch(replica, offset, now_ms, broker_epoch=broker_epoch, eligible=eligible)
        if leader.high_watermark != before:
            self._advanced(leader.high_watermark)
            if self._has_readers:
                # A follower's fetch may be processed outside a connection's turn.
                self._wakes.run_soon()
        return proposal

    def _leads(self) -> Leader:
        assert self.leader is not None, f"{self} is not led here"
        return self.leader

    def _after(self, change: Callable[..., int], *args: object) -> None:
        """Apply a change to the leader state, and notify the requests that waited for its effects."""
        leader = self._leads()
        before = leader.high_watermark
        if change(*args) != before:
            self._advanced(leader.high_watermark)
            self._wakes.run_soon()
        if leader.under_min_isr:
            # The records may still be committed, but it is unknown when, so waiting requests get this error now.
            self._refuse_waiters(self._commit_waiters, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def _refuse_waiters(self, waiters: deque[tuple[int, CommitWaiter, int]], error: ErrorCode) -> None:
        while waiters:
            _, waiter, token = waiters.popleft()
            waiter.reached(token, error)

    # ---- following

    def follow(self, follower: Follower) -> None:
        """Start to copy the partition from its leader."""
        assert self.log is not None
        assert self.leader is None
        self.follower = follower
        self.log.on_durable = self._follower_durable

    def unfollow(self) -> None:
        if self.follower is not None:
            self._known_high_watermark = self.follower.high_watermark
            self.follower = None
            if self._has_readers:
                self._wake_fetches()
                self._wakes.run_soon()

    def ends(self) -> LogEnds:
        log = self.log
        assert log is not None
        return LogEnds(log.start_offset, log.end_offset, log.stable_end, log.last_record_epoch)

    def grown(self) -> None:
        """The content of the follower's log has changed."""
        follower = self.follower
        if follower is not None:
            before = follower.high_watermark
            if follower.on_grown(self.ends()) != before:
                # For consumers that read from this follower.
                self._readers_advanced(follower.high_watermark)
                if self._has_readers:
                    self._wakes.run_soon()

    def _follower_durable(self, log: Log) -> None:
        if self.follower is not None and not self.follower.is_cutting:
            self.grown()
            if self.on_follower_durable is not None:
                self.on_follower_durable(self)

    def led(self) -> tuple[Log, Leader]:
        """The log and the leader state. Raises the KafkaError that sends the client to another broker or makes it
        retry."""
        log, leader = self.log, self.leader
        if leader is None or log is None:
            raise KafkaError(self.refusal)
        return log, leader

    def readable(self, from_follower: bool) -> Log:
        """The log for a consumer, which may read from followers (KIP-392) if `from_follower`. Raises KafkaError."""
        log = self.log
        if log is None or (self.leader is None and not (from_follower and self._is_following)):
            raise KafkaError(self.refusal)
        return log

    @property
    def _is_following(self) -> bool:
        return self.follower is not None and self.cutting is None

    def check_epoch(self, client_epoch: int) -> None:
        """Raises KafkaError if a client that knows leader epochs uses an outdated one (KIP-320)."""
        if client_epoch < 0 or client_epoch == self.leader_epoch:
            return
        if client_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # ---- writing

    def append(
        self,
        records: memoryview,
        acks: int,
        wall_ms: int,
        *,
        checked: bool = False,
        verification: Verification | None = None,
    ) -> Appended:
        """Append a client's batches. Raises the errors of `Writer.append_leader`."""
        leader = self.leader
        if leader is None:
            raise KafkaError(self.refusal)
        log = self.log
        assert log is not None
        if acks == -1 and leader.refuses_acks_all:
            raise _refusal_of_acks_all(leader)
        if checked or verification is not None:
            appended = log.writer.append_leader(
                records, self.leader_epoch, wall_ms, checked=checked, verification=verification
            )
        else:
            appended = log.writer.append_leader(records, self.leader_epoch, wall_ms)
        if not appended.duplicate:
            before = leader.high_watermark
            if leader.on_append(log.end_offset, log.stable_end) != before:
                self._advanced(leader.high_watermark)
            if self.follower_fetches:
                self._wakes.grown(self)
        return appended

    def append_marker(self, marker: EndMarker, wall_ms: int) -> Appended:
        """Append the control record that ends a transaction. Raises KafkaError if the marker is outdated, or could not
        be committed soon."""
        _, leader = self.led()
        if leader.refuses_acks_all:
            raise _refusal_of_acks_all(leader)
        return self._append_coordinated(marker_batch(marker, wall_ms), wall_ms, marker.transaction_version)

    def _append_coordinated(self, records: bytearray | memoryview, wall_ms: int, version: int = 0) -> Appended:
        """Append what a coordinator has decided."""
        log, leader = self.led()
        appended = log.writer.append_leader(
            memoryview(records),
            self.leader_epoch,
            wall_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=version,
        )
        before = leader.high_watermark
        if leader.on_append(log.end_offset, log.stable_end) != before:
            self._advanced(leader.high_watermark)
            if self._has_readers:
                self._wakes.run_soon()
        if self.follower_fetches:
            self._wakes.grown(self)
            self._wakes.run_soon()
        return appended

    def check_append(self, acks: int) -> None:
        """Raises KafkaError if an append is certain to be refused."""
        _, leader = self.led()
        if acks == -1 and leader.refuses_acks_all:
            raise _refusal_of_acks_all(leader)

    def await_commit(self, offset: int, acks: int, waiter: CommitWaiter, token: int) -> bool:
        """True if everything below `offset` is committed (acks=all) or stable (acks=1); otherwise the waiter is called
        later."""
        log, leader = self.led()
        if acks == -1:
            if leader.high_watermark >= offset:
                return True
            if self._commit_waiters is NOBODY:
                self._commit_waiters = deque()
            self._commit_waiters.append((offset, waiter, token))
            return False
        if log.stable_end >= offset:
            return True
        if self._stable_waiters is NOBODY:
            self._stable_waiters = deque()
        self._stable_waiters.append((offset, waiter, token))
        return False

    def forget(self, waiter: CommitWaiter, token: int) -> bool:
        """Remove a waiter that gave up (a timeout). Returns False if it was already called."""
        for waiters in (self._commit_waiters, self._stable_waiters):
            kept = [entry for entry in waiters if entry[1] is not waiter or entry[2] != token]
            if len(kept) < len(waiters):
                waiters.clear()
                waiters.extend(kept)
                return True
        return False

    def _durable(self, log: Log) -> None:
        stable = self._stable_waiters
        if stable:
            end = log.stable_end
            while stable and stable[0][0] <= end:
                _, waiter, token = stable.popleft()
                waiter.reached(token, ErrorCode.NONE)
        leader = self.leader
        if leader is not None:
            before = leader.high_watermark
            if leader.on_durable(log.stable_end) != before:
                self._advanced(leader.high_watermark)
                self._wakes.run_soon()

    def _advanced(self, high_watermark: int) -> None:
        commits = self._commit_waiters
        while commits and commits[0][0] <= high_watermark:
            _, waiter, token = commits.popleft()
            waiter.reached(token, ErrorCode.NONE)
        if self.follower_fetches:
            for follower_fetch in self.follower_fetches:
                fetch = follower_fetch.on_high_watermark()
                if fetch is not None:
                    self._wakes.wake(fetch)
                    self._wakes.run_soon()
        if self.fetch_waiters:
            self._wakes.mark(self)
        if self.committed_waiters is not None or self.log.transactions is not None:  # type: ignore[union-attr]
            self._stable_advanced(high_watermark)

    # ---- readers

    @property
    def last_stable_offset(self) -> int:
        """The end of what readers of committed records may see, as far as this broker knows it."""
        assert self.log is not None
        return self.log.last_stable_offset(self.high_watermark)

    def park(self, waiter: FetchWaiter, committed: bool) -> None:
        """Wake a fetch when the high watermark advances, or with `committed` the last stable offset."""
        if not committed:
            self.fetch_waiters[waiter] = None
            return
        if self.committed_waiters is None:
            self.committed_waiters = {}
        self.committed_waiters[waiter] = None
        if self.log is not None:
            self._stable_offset = self.last_stable_offset

    def unpark(self, waiter: FetchWaiter) -> None:
        self.fetch_waiters.pop(waiter, None)
        if self.committed_waiters is not None:
            self.committed_waiters.pop(waiter, None)
            if not self.committed_waiters:
                self.committed_waiters = None

    @property
    def _has_readers(self) -> bool:
        return bool(self.fetch_waiters or self.committed_waiters)

    def _readers_advanced(self, high_watermark: int) -> None:
        if self.fetch_waiters:
            self._wakes.mark(self)
        self._stable_advanced(high_watermark)

    def _stable_advanced(self, high_watermark: int) -> None:
        """The high watermark advanced: does the last stable offset follow? This also lets go of transactions that are
        no longer of interest."""
        assert self.log is not None
        stable = self.log.last_stable_offset(high_watermark)
        if stable != self._stable_offset:
            self._stable_offset = stable
            if self.committed_waiters:
                self._wakes.mark_stable(self)

    def start_moved(self) -> None:
        """Records were deleted at the start: tell the followers."""
        if self.follower_fetches:
            self._wakes.grown(self)
            self._wakes.run_soon()

    def wake_soon(self) -> None:
        """Schedule wakes after an append outside a connection's turn."""
        self._wakes.run_soon()

    def _wake_fetches(self) -> None:
        if self.fetch_waiters:
            self._wakes.mark(self)
        if self.committed_waiters:
            self._wakes.mark_stable(self)


class InternalPartition(Partition):
    """A partition that holds a coordinator's state: clients may read it, but only the coordinator writes."""

    __slots__ = ("listener",)

    def __init__(
        self, topic: str, topic_id: bytes, index: int, wakes: Wakes, listener: PartitionListener | None
    ) -> None:
        super().__init__(topic, topic_id, index, wakes)
        self.listener = listener

    def append(
        self,
        records: memoryview,
        acks: int,
        wall_ms: int,
        *,
        checked: bool = False,
        verification: Verification | None = None,
    ) -> Appended:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {self.topic}")

    def check_append(self, acks: int) -> None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {self.topic}")

    def append_own(self, records: memoryview, wall_ms: int) -> Appended:
        """Append a coordinator's records, even below the minimum ISR: no response depends on them before they are
        committed."""
        return self._append_coordinated(records, wall_ms)

    def append_marker(self, marker: EndMarker, wall_ms: int) -> Appended:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"only its coordinator ends transactions in internal topic {self.topic}"
        )

    def lead(self, leader: Leader) -> None:
        super().lead(leader)
        if self.listener is not None:
            self.listener.on_leader(self)

    def resign(self, error: ErrorCode) -> None:
        super().resign(error)
        if self.listener is not None:
            self.listener.on_resign(self)

    def strand(self, stranded: bool) -> None:
        super().strand(stranded)
        if self.listener is not None:
            # Another broker may coordinate meanwhile. If this one does so again, it reloads its state from the log.
            (self.listener.on_resign if stranded else self.listener.on_leader)(self)

    def _advanced(self, high_watermark: int) -> None:
        super()._advanced(high_watermark)
        if self.listener is not None:
            self.listener.on_high_watermark(self)


def _refusal_of_acks_all(leader: Leader) -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if leader.stranded else ErrorCode.NOT_ENOUGH_REPLICAS)

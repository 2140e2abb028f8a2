"""A partition as this broker serves it: its log, its leader state, and who waits for it.

Appends go to the log, the leader state says how far the high watermark moves, and that wakes two kinds of waiters:
produce requests that wait for their commit, and fetches that wait for data. Commit waiters are answered as the high
watermark moves; fetches are woken later, by `Wakes`, after the acknowledgement has left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.broker import limits
from penstock.log import Appended, AppendOrigin, Log
from penstock.metadata import PartitionState
from penstock.replication import Leader
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.broker.recompressing import Recompressor

NO_LEADER = -1


class FetchWaiter(Protocol):
    """A parked fetch."""

    def advanced(self) -> None:
        """One of its partitions has moved: complete if there is enough."""


class CommitWaiter(Protocol):
    """A produce request that waits until its records are committed (or stable, for acks=1)."""

    def reached(self, token: int, error: ErrorCode) -> None: ...


class PartitionListener(Protocol):
    """Whoever keeps state in the partitions of an internal topic."""

    def on_leader(self, partition: InternalPartition) -> None:
        """This broker leads it now, perhaps again, under another epoch."""

    def on_resign(self, partition: InternalPartition) -> None:
        """This broker leads it no longer."""

    def on_high_watermark(self, partition: InternalPartition) -> None:
        """More of it is committed."""


NOBODY: deque[tuple[int, CommitWaiter, int]] = deque(maxlen=0)


class Wakes:
    """Partitions whose readers are to be woken, once the answers of this turn have left.

    Wakes per turn are capped, so that a write that thousands wait for does not hold the loop.
    """

    __slots__ = ("_call_soon", "_dirty", "_queued", "_waking")

    def __init__(self, call_soon: Callable[..., object]) -> None:
        self._call_soon = call_soon
        self._dirty: dict[Partition, None] = {}
        self._waking: deque[FetchWaiter] = deque()
        self._queued = False

    def mark(self, partition: Partition) -> None:
        self._dirty[partition] = None

    def run(self) -> None:
        if self._dirty:
            for partition in self._dirty:
                self._waking.extend(partition.fetch_waiters)
            self._dirty.clear()
        waking = self._waking
        if not waking or self._queued:
            return
        for _ in range(min(len(waking), limits.WAKES_PER_TICK_MAX)):
            waking.popleft().advanced()
        if waking:
            self._queued = True
            self._call_soon(self._rest)

    def run_soon(self) -> None:
        """For marks made outside a connection's turn (a sync that ended, a deleted topic)."""
        if not self._queued:
            self._queued = True
            self._call_soon(self._rest)

    def _rest(self) -> None:
        self._queued = False
        self.run()


class Partition:
    __slots__ = (
        "_commit_waiters",
        "_stable_waiters",
        "_wakes",
        "fetch_waiters",
        "index",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "min_insync_replicas",
        "recompressor",
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
        """As the metadata has it."""
        self.min_insync_replicas = 1
        self.leader: Leader | None = None
        """Set while this broker leads the partition and its log is open."""
        self.log: Log | None = None
        self.retired = False
        """The topic is gone: whoever still holds this object looks the partition up again."""
        self.recompressor: Recompressor | None = None
        """Stands before the log of a topic that chooses its own codec."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        # Ten thousand partitions share these until someone waits: an empty deque of its own takes 600 bytes.
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

    def lead(self, leader: Leader) -> None:
        assert self.log is not None
        self.leader = leader
        self.log.on_durable = self._durable
        self._wake_fetches()
        self._wakes.run_soon()

    def resign(self, error: ErrorCode) -> None:
        """This broker no longer leads: everyone who waits is told to look elsewhere."""
        self.leader = None
        for waiters in (self._commit_waiters, self._stable_waiters):
            while waiters:
                _, waiter, token = waiters.popleft()
                waiter.reached(token, error)
        self._wake_fetches()
        self._wakes.run_soon()

    def led(self) -> tuple[Log, Leader]:
        """The log and leader state, or the error that sends the client to another broker (or to wait for this one)."""
        log, leader = self.log, self.leader
        if leader is None or log is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log, leader

    def check_epoch(self, client_epoch: int) -> None:
        """What a client that knows leader epochs may not do with an outdated one (KIP-320)."""
        if client_epoch < 0 or client_epoch == self.leader_epoch:
            return
        if client_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # ---- writing

    def append(self, records: memoryview, acks: int, wall_ms: int) -> Appended:
        leader = self.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        assert log is not None
        if acks == -1 and len(leader.isr) < leader.min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        appended = log.append_leader(records, self.leader_epoch, wall_ms)
        if not appended.duplicate:
            before = leader.high_watermark
            if leader.on_append(log.end_offset, log.stable_end) != before:
                self._advanced(leader.high_watermark)
        return appended

    def await_commit(self, offset: int, acks: int, waiter: CommitWaiter, token: int) -> bool:
        """True if all below `offset` is committed (acks=all) or stable (acks=1); else the waiter is told later."""
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
        """The waiter gave up (a timeout). False: it was told already."""
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
        if self.fetch_waiters:
            self._wakes.mark(self)

    def _wake_fetches(self) -> None:
        if self.fetch_waiters:
            self._wakes.mark(self)


class InternalPartition(Partition):
    """A partition in which a coordinator keeps its state: clients read it, and only its coordinator writes to it."""

    __slots__ = ("listener",)

    def __init__(
        self, topic: str, topic_id: bytes, index: int, wakes: Wakes, listener: PartitionListener | None
    ) -> None:
        super().__init__(topic, topic_id, index, wakes)
        self.listener = listener

    def append(self, records: memoryview, acks: int, wall_ms: int) -> Appended:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {self.topic}")

    def append_own(self, records: memoryview, wall_ms: int) -> Appended:
        """What the coordinator writes."""
        log, leader = self.led()
        if len(leader.isr) < leader.min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        appended = log.append_leader(records, self.leader_epoch, wall_ms, origin=AppendOrigin.COORDINATOR)
        before = leader.high_watermark
        if leader.on_append(log.end_offset, log.stable_end) != before:
            self._advanced(leader.high_watermark)
            if self.fetch_waiters:
                self._wakes.run_soon()
        return appended

    def lead(self, leader: Leader) -> None:
        super().lead(leader)
        if self.listener is not None:
            self.listener.on_leader(self)

    def resign(self, error: ErrorCode) -> None:
        super().resign(error)
        if self.listener is not None:
            self.listener.on_resign(self)

    def _advanced(self, high_watermark: int) -> None:
        super()._advanced(high_watermark)
        if self.listener is not None:
            self.listener.on_high_watermark(self)

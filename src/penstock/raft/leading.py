"""A leading replica: it accepts proposals, answers fetches, tracks the replicas' progress and changes the voter set.

The high watermark is the largest offset that a majority of the voters holds durably, and advances only beyond the start
of this leader's epoch: records of older epochs are committed by the first record of the leader's own (Raft §5.4.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.raft import messages as m
from penstock.raft.log_view import IN_SNAPSHOT
from penstock.raft.types import KRAFT_VERSION, UNKNOWN_OFFSET, ReplicaKey, VoterSet
from penstock.wire.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.raft.core import RaftCore

FOREVER = float("inf")
REPLICAS_MAX = 1_000
"""The number of observers whose progress a leader tracks. There are far fewer voters."""


class Progress:
    """Another replica's progress."""

    __slots__ = ("caught_up_ms", "end", "fetched_ms", "heard_ms", "leader_end_at_fetch")

    def __init__(self, now_ms: float) -> None:
        self.end = UNKNOWN_OFFSET
        self.heard_ms = now_ms  # for check-quorum: a new leader grants every replica a full timeout
        self.fetched_ms = -1.0
        self.caught_up_ms = -1.0
        self.leader_end_at_fetch = UNKNOWN_OFFSET


class Leading:
    """The state of one epoch's leader; dropped when leadership ends."""

    def __init__(self, core: RaftCore, now_ms: float) -> None:
        self._core = core
        self._started_ms = now_ms
        self.epoch_start = core.log.end_offset
        self.replicas: dict[ReplicaKey, Progress] = {}
        self._parked: dict[ReplicaKey, tuple[m.FetchRequest, float]] = {}
        self._begin_at_ms = now_ms
        # The voter change in progress: its operation id and the offset of its record.
        self._change: tuple[int, int] | None = None

    @property
    def established(self) -> bool:
        """Whether a record of this epoch is committed, so that the high watermark covers every earlier commit."""
        return self._core.high_watermark > self.epoch_start

    def begin(self, granting_voters: tuple[int, ...]) -> None:
        """Starts the epoch with its control records."""
        core = self._core
        voters = core.voter_set
        records: list[m.ControlRecord] = [m.LeaderChange(core.id, voters.ids, granting_voters)]
        if core.log.voter_set_offset == IN_SNAPSHOT and core.log.end_offset == 0:
            # Other nodes never fetch the bootstrap snapshot: its voter set reaches them through the log.
            records += [m.KRaftVersion(KRAFT_VERSION), m.Voters(voters)]
        self._append_control(*records)

    def stop(self) -> None:
        """Ends leadership: answers parked fetches, and reports an unfinished voter change as undecided."""
        core = self._core
        for request, _ in self._parked.values():
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            core.send(m.FetchResponse(core.id, request.source, request.request_id, error, -1, core.epoch))
        if self._change is not None:
            core.result(
                self._change[0],
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "Leadership was lost before the change was committed: describe the quorum to see whether it happened.",
            )

    # -- the log -----------------------------------------------------------------------------------------------------

    def propose(self, values: tuple[bytes, ...]) -> None:
        core = self._core
        batch = m.LogBatch(core.log.end_offset, len(values), core.epoch, values=values)
        core.append(batch)
        core.ready.proposed = m.Proposed(batch.base_offset, batch.end_offset)

    def advance(self) -> None:
        """Advances the high watermark as far as a majority of synced end offsets allows."""
        core = self._core
        voters = core.voter_set.keys
        ends = sorted((self._end_of(key) for key in voters), reverse=True)
        offset = ends[len(voters) // 2]
        if offset > self.epoch_start:
            core.commit_to(offset)

    def _end_of(self, key: ReplicaKey) -> int:
        if key == self._core.key:
            return self._core.synced_end
        progress = self.replicas.get(key)
        return progress.end if progress else UNKNOWN_OFFSET

    def _append_control(self, *records: m.ControlRecord) -> m.LogBatch:
        core = self._core
        batch = m.LogBatch(core.log.end_offset, len(records), core.epoch, control=records)
        core.append(batch)
        return batch

    # -- fetches -----------------------------------------------------------------------------------------------------

    def on_fetch(self, request: m.FetchRequest, now_ms: float) -> None:
        core = self._core
        progress = self._heard(request.replica, now_ms)
        if core.log.needs_snapshot(request.offset, request.last_epoch):
            self._respond(request, snapshot=True)
            return
        diverging = core.log.diverging(request.offset, request.last_epoch)
        if diverging is not None:
            core.send(
                m.FetchResponse(
                    core.id,
                    request.source,
                    request.request_id,
                    ErrorCode.NONE,
                    core.id,
                    core.epoch,
                    self._known_high_watermark,
                    diverging=diverging,
                )
            )
            return
        if request.offset >= core.log.end_offset:
            progress.caught_up_ms = now_ms
        elif request.offset >= progress.leader_end_at_fetch >= 0:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        progress.end = request.offset
        progress.fetched_ms = now_ms
        progress.leader_end_at_fetch = core.log.end_offset
        if request.replica in core.voter_set:
            self.advance()
        self._unpark(request.replica)
        self._parked[request.replica] = (request, now_ms + request.max_wait_ms)

    def on_fetch_snapshot(self, request: m.FetchSnapshotRequest, now_ms: float) -> ErrorCode:
        self._heard(request.replica, now_ms)
        known = request.snapshot == self._core.log.snapshot
        return ErrorCode.NONE if known else ErrorCode.SNAPSHOT_NOT_FOUND

    def answer_parked(self, now_ms: float) -> None:
        """Answers every parked fetch that has news, or has waited long enough."""
        for replica, (request, deadline_ms) in list(self._parked.items()):
            news = request.offset < self._core.log.end_offset or request.high_watermark < self._known_high_watermark
            if news or now_ms >= deadline_ms:
                self._unpark(replica)
        self._finish_change(now_ms)

    def _unpark(self, replica: ReplicaKey) -> None:
        parked = self._parked.pop(replica, None)
        if parked is not None:
            self._respond(parked[0])

    def _respond(self, request: m.FetchRequest, *, snapshot: bool = False) -> None:
        core = self._core
        core.send(
            m.FetchResponse(
                core.id,
                request.source,
                request.request_id,
                ErrorCode.NONE,
                core.id,
                core.epoch,
                self._known_high_watermark,
                snapshot=core.log.snapshot if snapshot else None,
                read_from=UNKNOWN_OFFSET if snapshot else request.offset,
            )
        )

    @property
    def _known_high_watermark(self) -> int:
        return self._core.high_watermark if self.established else UNKNOWN_OFFSET

    def _heard(self, replica: ReplicaKey, now_ms: float) -> Progress:
        progress = self.replicas.get(replica)
        if progress is None:
            self._make_room()
            progress = self.replicas[replica] = Progress(now_ms)
        progress.heard_ms = now_ms
        return progress

    def _make_room(self) -> None:
        """Forgets the replica that was silent longest: any node id may fetch, so the number tracked is bounded."""
        if len(self.replicas) >= REPLICAS_MAX:
            others = [key for key in self.replicas if key not in self._core.voter_set]
            oldest = min(others, key=lambda key: self.replicas[key].heard_ms)
            self._unpark(oldest)
            del self.replicas[oldest]

    # -- changes of the voter set ------------------------------------------------------------------------------------

    def add_voter(self, event: m.AddVoter, now_ms: float) -> None:
        voters = self._core.voter_set
        if self._refuse_change(event.operation_id):
            return
        voter = event.voter
        if voters.get(voter.id) is not None:
            self._core.result(
                event.operation_id,
                ErrorCode.DUPLICATE_VOTER,
                f"Node {voter.id} is a voter already. If its disk was replaced, remove the old voter first.",
            )
        elif not self._keeps_up(voter.key, now_ms):
            # A lagging voter would count towards the majority and could stall every commit until it has caught up.
            self._core.result(
                event.operation_id,
                ErrorCode.REQUEST_TIMED_OUT,
                f"Node {voter.id} has not caught up with the leader: start it as an observer and retry.",
            )
        else:
            self._change_voters(event.operation_id, voters.with_voter(voter))

    def remove_voter(self, event: m.RemoveVoter) -> None:
        voters = self._core.voter_set
        if self._refuse_change(event.operation_id):
            return
        if event.key not in voters:
            self._core.result(
                event.operation_id, ErrorCode.VOTER_NOT_FOUND, f"Node {event.key.id} with this directory is no voter."
            )
        elif len(voters) == 1:
            self._core.result(
                event.operation_id, ErrorCode.INVALID_REQUEST, "The last voter cannot be removed: no node could lead."
            )
        else:
            self._change_voters(event.operation_id, voters.without(event.key))

    def _refuse_change(self, operation_id: int) -> bool:
        """Only one change at a time: majorities of sets that differ by more than one voter might not overlap."""
        pending = self._core.log.voter_set_offset >= self._core.high_watermark
        if self.established and not pending:
            return False
        self._core.result(
            operation_id,
            ErrorCode.REQUEST_TIMED_OUT,
            "The voter set is still changing: retry once that change is committed."
            if pending and self.established
            else "The leader has not yet committed a record of its own epoch: retry.",
        )
        return True

    def _change_voters(self, operation_id: int, voters: VoterSet) -> None:
        batch = self._append_control(m.Voters(voters))
        self._change = (operation_id, batch.base_offset)
        # The set is in force once it is in the log; a smaller majority may already be reached.
        self.advance()

    def _finish_change(self, now_ms: float) -> None:
        core = self._core
        if self._change is not None and core.high_watermark > self._change[1]:
            core.result(self._change[0], ErrorCode.NONE)
            self._change = None
        if core.key not in core.voter_set and core.log.voter_set_offset < core.high_watermark:
            # This node led until the record that removes it was committed; now the remaining voters elect.
            core.resign(now_ms)

    def _keeps_up(self, key: ReplicaKey, now_ms: float) -> bool:
        progress = self.replicas.get(key)
        return progress is not None and now_ms - progress.caught_up_ms <= self._core.config.fetch_timeout_ms

    # -- timers ------------------------------------------------------------------------------------------------------

    def check_timers(self, now_ms: float) -> None:
        if now_ms >= self._check_quorum_at_ms():
            # Without a majority it can commit nothing; clients should find the leader that the others elect.
            self._core.resign(now_ms)
            return
        if now_ms >= self._begin_at_ms:
            self._begin_quorum_epoch(now_ms)
        oldest_ms = now_ms - self._core.config.observer_session_timeout_ms
        for replica in [key for key, progress in self.replicas.items() if progress.heard_ms < oldest_ms]:
            if replica not in self._core.voter_set:
                del self.replicas[replica]

    def next_deadline_ms(self) -> float:
        parked_ms = min((deadline_ms for _, deadline_ms in self._parked.values()), default=FOREVER)
        begin_ms = FOREVER if self._core.voter_set.keys == (self._core.key,) else self._begin_at_ms
        return min(self._check_quorum_at_ms(), begin_ms, parked_ms)

    def grant_grace(self, until_ms: float) -> None:
        heard_ms = until_ms - self._core.config.check_quorum_timeout_ms
        self._started_ms = max(self._started_ms, heard_ms)
        for progress in self.replicas.values():
            progress.heard_ms = max(progress.heard_ms, heard_ms)

    def _check_quorum_at_ms(self) -> float:
        """The time at which a majority of the voters will have been silent for too long."""
        core = self._core
        needed = core.voter_set.majority - (1 if core.key in core.voter_set else 0)
        if needed == 0:
            return FOREVER
        heard_ms = sorted((self._heard_at_ms(key) for key in core.voter_set.keys if key != core.key), reverse=True)
        return heard_ms[needed - 1] + core.config.check_quorum_timeout_ms

    def _heard_at_ms(self, key: ReplicaKey) -> float:
        progress = self.replicas.get(key)
        return progress.heard_ms if progress else self._started_ms

    def _begin_quorum_epoch(self, now_ms: float) -> None:
        """Announces the leader to voters that do not fetch, repeatedly, since they may be starting up."""
        core = self._core
        self._begin_at_ms = now_ms + core.config.begin_epoch_interval_ms
        for key in core.voter_set.keys:
            progress = self.replicas.get(key)
            silent = progress is None or now_ms - progress.heard_ms >= core.config.begin_epoch_interval_ms
            if key != core.key and silent:
                core.send(m.BeginQuorumEpochRequest(core.id, key.id, core.next_request_id(), core.epoch, key))

    # -- for others --------------------------------------------------------------------------------------------------

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the most up-to-date first."""
        others = [key for key in self._core.voter_set.keys if key != self._core.key]
        return tuple(sorted(others, key=lambda key: (-self._end_of(key), key.id)))

    def describe(self) -> m.QuorumInfo:
        core = self._core
        observers = sorted(key for key in self.replicas if key not in core.voter_set)
        return m.QuorumInfo(
            core.id,
            core.epoch,
            self._known_high_watermark,
            tuple(self._describe(key) for key in core.voter_set.keys),
            tuple(self._describe(key) for key in observers),
        )

    def _describe(self, key: ReplicaKey) -> m.ReplicaInfo:
        if key == self._core.key:
            return m.ReplicaInfo(key, self._core.log.end_offset, -1.0, -1.0)
        progress = self.replicas.get(key) or Progress(-1.0)
        return m.ReplicaInfo(key, progress.end, progress.fetched_ms, progress.caught_up_ms)

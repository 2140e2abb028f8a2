"""One replica: its epoch, vote and role, and the elections that change them.

The leader's part is in `leading`, the part of other replicas in `following`.
"""

from __future__ import annotations

from typing import Final, assert_never

from msgspec.structs import replace

from penstock.raft import messages as m
from penstock.raft.following import Following
from penstock.raft.leading import Leading
from penstock.raft.log_view import LogView
from penstock.raft.types import (
    NO_NODE,
    HardState,
    RaftConfig,
    Randomness,
    ReplicaKey,
    Role,
    VoterSet,
)
from penstock.wire.errors import ErrorCode

FOREVER: Final = float("inf")
REQUEST_ID_START_MAX: Final = 1 << 40


class RaftCore:
    """One replica of the metadata log. Call `start` once, then `step` for every event; carry out each `Ready`."""

    def __init__(
        self,
        key: ReplicaKey,
        hard_state: HardState,
        log: LogView,
        rng: Randomness,
        config: RaftConfig | None = None,
    ) -> None:
        """`hard_state` is the last one persisted, or a new one; `log` describes the synced log on disk."""
        # The log may be ahead of a quorum-state file that was lost or restored; the epoch never goes back.
        if log.last_epoch > hard_state.epoch:
            hard_state = HardState(log.last_epoch, suspect=hard_state.suspect)
        self.key = key
        self.config = config or RaftConfig()
        self.role = Role.UNATTACHED
        self.hard = hard_state
        self.log = log
        self.synced_end = log.end_offset
        self.high_watermark = log.snapshot.offset if log.snapshot else 0
        self.leading: Leading | None = None
        self.following = Following(self)
        self._rng = rng
        # Start at a random id: a late response to a request from before a restart must not match a new request.
        self._requests = rng.randrange(REQUEST_ID_START_MAX)
        self._granted: list[ReplicaKey] = []
        self._rejected: list[int] = []
        self._round = self._requests  # the first request id of this election round: older responses do not count
        self._campaign_at_ms = FOREVER
        self._leader_gone = False
        self._leader_heard = False
        """Whether this replica has heard from its current leader directly."""
        self._announced_deadline_ms = FOREVER
        self._ready = m.Ready()

    @property
    def id(self) -> int:
        return self.key.id

    @property
    def epoch(self) -> int:
        return self.hard.epoch

    @property
    def leader_id(self) -> int:
        return self.hard.leader_id

    @property
    def voter_set(self) -> VoterSet:
        return self.log.voter_set

    def describe(self) -> m.QuorumInfo:
        """The result of DescribeQuorum. Only a leader knows the progress of the others."""
        if self.leading is None:
            return m.QuorumInfo(self.leader_id, self.epoch, self.high_watermark)
        return self.leading.describe()

    # -- events ------------------------------------------------------------------------------------------------------

    def start(self, now_ms: float) -> m.Ready:
        """Takes the role that the persisted state allows."""
        if self._alone and self._may_vote:
            self._become_candidate(now_ms)
        elif self.leader_id not in (NO_NODE, self.id):
            self._become_follower(self.epoch, self.leader_id, now_ms)
        else:
            # A restarted leader must not continue in its old epoch: others may hold records that it lost. Its vote for
            # itself stands, so no other node can win that epoch either.
            self._become_unattached(self.epoch, now_ms)
        return self._finish(now_ms)

    def step(self, event: m.Event, now_ms: float) -> m.Ready:
        """Handles one event. Equal events at equal times give equal results."""
        if now_ms - self._announced_deadline_ms > self.config.late_event_ms:
            self._grant_grace(now_ms)
        self._dispatch(event, now_ms)
        self._check_timers(now_ms)
        return self._finish(now_ms)

    def _dispatch(self, event: m.Event, now_ms: float) -> None:
        match event:
            case m.Tick():
                pass
            case m.Persisted():
                self._on_persisted(event.end_offset)
            case m.Propose():
                if self.leading is not None and event.epoch == self.epoch:
                    self.leading.propose(event.values)
            case m.FetchRequest():
                self._on_fetch_request(event, now_ms)
            case m.FetchResponse():
                self.following.on_fetch_response(event, now_ms)
            case m.VoteRequest():
                self._on_vote_request(event, now_ms)
            case m.VoteResponse():
                self._on_vote_response(event, now_ms)
            case m.BeginQuorumEpochRequest():
                self._on_begin_quorum_epoch(event, now_ms)
            case m.EndQuorumEpochRequest():
                self._on_end_quorum_epoch(event, now_ms)
            case m.BeginQuorumEpochResponse() | m.EndQuorumEpochResponse():
                self.learn(event.epoch, event.leader_id, now_ms)
            case m.FetchSnapshotRequest():
                self._on_fetch_snapshot_request(event, now_ms)
            case m.FetchSnapshotResponse():
                self.following.on_fetch_snapshot_response(event, now_ms)
            case m.SnapshotTaken():
                self._on_snapshot_taken(event)
            case m.SnapshotInstalled():
                self.following.on_installed(event, now_ms)
            case m.SnapshotRefused():
                self.following.on_refused(event, now_ms)
            case m.RequestFailed():
                self.following.on_request_failed(event.request_id, now_ms)
            case m.LeaderGone():
                self._on_leader_gone(event, now_ms)
            case m.AddVoter() | m.RemoveVoter():
                self._on_voter_change(event, now_ms)
            case m.Resign():
                if self.leading is not None and not self._alone:
                    self.resign(now_ms)
            case _:
                assert_never(event)

    def _finish(self, now_ms: float) -> m.Ready:
        if self.leading is not None:
            self.leading.answer_parked(now_ms)
        else:
            self.following.pump(now_ms)
        ready, self._ready = self._ready, m.Ready()
        ready.deadline_ms = self._announced_deadline_ms = self._next_deadline_ms()
        return ready

    def _on_persisted(self, end_offset: int) -> None:
        assert end_offset <= self.log.end_offset
        # The log is truncated only while no sync is running, so the highest report is always the true one.
        self.synced_end = max(self.synced_end, end_offset)
        if self.leading is not None:
            self.leading.advance()

    def _on_snapshot_taken(self, event: m.SnapshotTaken) -> None:
        assert event.snapshot.offset <= self.high_watermark, "a snapshot may contain only committed records"
        assert event.snapshot.epoch == self.log.epoch_at(event.snapshot.offset)
        self.log.snapshot_taken(event.snapshot, event.log_start_offset)

    def _on_fetch_request(self, request: m.FetchRequest, now_ms: float) -> None:
        error = self._leader_error(request.epoch)
        if error == ErrorCode.NONE:
            assert self.leading is not None
            self.leading.on_fetch(request, now_ms)
        else:
            self.send(m.FetchResponse(self.id, request.source, request.request_id, error, self.leader_id, self.epoch))

    def _on_fetch_snapshot_request(self, request: m.FetchSnapshotRequest, now_ms: float) -> None:
        error = self._leader_error(request.epoch)
        if error == ErrorCode.NONE:
            assert self.leading is not None
            error = self.leading.on_fetch_snapshot(request, now_ms)
        self.send(
            m.FetchSnapshotResponse(
                self.id,
                request.source,
                request.request_id,
                error,
                self.leader_id,
                self.epoch,
                request.snapshot,
                request.position,
                min(request.bytes_max, self.config.snapshot_chunk_bytes_max),
            )
        )

    def _leader_error(self, epoch: int) -> ErrorCode:
        """The error for a request made to the leader of `epoch`."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.leading is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _on_voter_change(self, event: m.AddVoter | m.RemoveVoter, now_ms: float) -> None:
        if self.leading is None:
            advice = f"ask node {self.leader_id}" if self.leader_id != NO_NODE else "no leader is known yet, retry"
            self.result(event.operation_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This node does not lead: {advice}.")
        elif isinstance(event, m.AddVoter):
            self.leading.add_voter(event, now_ms)
        else:
            self.leading.remove_voter(event)

    # -- elections: answering ----------------------------------------------------------------------------------------

    def _on_vote_request(self, request: m.VoteRequest, now_ms: float) -> None:
        error = ErrorCode.NONE
        granted = False
        if request.voter != self.key:
            # Addressed to an earlier replica with this node id: this replica must not vote in its name.
            error = ErrorCode.INVALID_VOTER_KEY
        elif request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            if request.epoch > self.epoch:
                self._become_unattached(request.epoch, now_ms)
            granted = self._grants(request, now_ms)
        self.send(
            m.VoteResponse(self.id, request.source, request.request_id, error, self.leader_id, self.epoch, granted)
        )

    def _grants(self, request: m.VoteRequest, now_ms: float) -> bool:
        up_to_date = (request.last_epoch, request.last_offset) >= (self.log.last_epoch, self.log.end_offset)
        if not up_to_date or not self._may_vote:
            return False
        if request.pre_vote:
            # A node that hears from a leader keeps it: a replica that was cut off must not depose a working leader. A
            # leader that is known only through other nodes may be gone (KIP-996): a voter that has just started would
            # trust it for a whole fetch timeout, and block the election by nodes that have missed the leader for long.
            hears = self._leader_heard and not self._leader_gone and now_ms < self._campaign_at_ms
            return self.role is not Role.LEADER and not (self.role is Role.FOLLOWER and hears)
        if self.hard.voted is not None:
            return self.hard.voted == request.candidate
        if self.leader_id != NO_NODE:
            return False
        self._persist(replace(self.hard, voted=request.candidate))
        self._become_unattached(self.epoch, now_ms)
        return True

    def _on_leader_gone(self, event: m.LeaderGone, now_ms: float) -> None:
        if (event.leader_id, event.epoch) == (self.leader_id, self.epoch):
            self.leader_left(now_ms)

    def leader_left(self, now_ms: float) -> None:
        """Starts an election soon, without waiting for the fetch timeout, but at a random time per replica."""
        if self.role is Role.FOLLOWER:
            if not self._leader_gone:
                self._campaign_at_ms = min(self._campaign_at_ms, now_ms + self._rng.randrange(self._hurry_ms()))
            self._leader_gone = True

    def _hurry_ms(self) -> int:
        return max(1, self.config.election_timeout_ms // 10)

    def _on_begin_quorum_epoch(self, request: m.BeginQuorumEpochRequest, now_ms: float) -> None:
        error = ErrorCode.NONE
        if request.voter != self.key:
            error = ErrorCode.INVALID_VOTER_KEY
        elif request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif not self.learn(request.epoch, request.source, now_ms):
            error = ErrorCode.INVALID_REQUEST
        else:
            self._leader_heard = True
        self.send(
            m.BeginQuorumEpochResponse(self.id, request.source, request.request_id, error, self.leader_id, self.epoch)
        )

    def _on_end_quorum_epoch(self, request: m.EndQuorumEpochRequest, now_ms: float) -> None:
        error = ErrorCode.NONE
        if request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif request.epoch > self.epoch or self.leader_id in (NO_NODE, request.source):
            self._become_unattached(request.epoch, now_ms)
            if self.key in request.preferred:
                # The best successor starts at once and the others later in turn, so that they do not split the vote.
                turn = request.preferred.index(self.key)
                slot_ms = self.config.election_timeout_ms // 2
                self._campaign_at_ms = now_ms + (turn * slot_ms + self._rng.randrange(slot_ms) if turn else 0)
        self.send(
            m.EndQuorumEpochResponse(self.id, request.source, request.request_id, error, self.leader_id, self.epoch)
        )

    # -- elections: asking -------------------------------------------------------------------------------------------

    def _ask_for_votes(self, now_ms: float, *, pre_vote: bool) -> None:
        self._granted = [self.key]
        self._rejected = []
        self._round = self._requests + 1
        self._campaign_at_ms = now_ms + self._random_election_timeout_ms()
        for voter in self.voter_set.voters:
            if voter.id != self.id:
                self.send(
                    m.VoteRequest(
                        self.id,
                        voter.id,
                        self.next_request_id(),
                        self.epoch,
                        self.key,
                        voter.key,
                        self.log.last_epoch,
                        self.log.end_offset,
                        pre_vote,
                    )
                )
        self._count_votes(now_ms)

    def _on_vote_response(self, response: m.VoteResponse, now_ms: float) -> None:
        self.learn(response.epoch, response.leader_id, now_ms)
        voter = self.voter_set.get(response.source)
        campaigning = self.role in (Role.PROSPECTIVE, Role.CANDIDATE) and response.request_id >= self._round
        if not campaigning or voter is None or response.error != ErrorCode.NONE or response.epoch != self.epoch:
            return
        if response.granted:
            if voter.key not in self._granted:
                self._granted.append(voter.key)
            self._count_votes(now_ms)
            return
        if voter.id not in self._rejected:
            self._rejected.append(voter.id)
        if self.role is Role.CANDIDATE and len(self._rejected) > len(self.voter_set) - self.voter_set.majority:
            # Lost: give other candidates a moment to win, then start with pre-votes again (KIP-996).
            backoff_ms = 1 + self._rng.randrange(self.config.election_backoff_max_ms)
            self._campaign_at_ms = min(self._campaign_at_ms, now_ms + backoff_ms)

    def _count_votes(self, now_ms: float) -> None:
        granted = sum(1 for key in self._granted if key in self.voter_set)
        if granted < self.voter_set.majority:
            return
        if self.role is Role.PROSPECTIVE:
            self._become_candidate(now_ms)
        else:
            self._become_leader(now_ms)

    # -- transitions -------------------------------------------------------------------------------------------------

    def learn(self, epoch: int, leader_id: int, now_ms: float) -> bool:
        """Learns from another node who leads `epoch` (NO_NODE: no one yet). Returns False if that is impossible."""
        if epoch < self.epoch:
            return True
        if leader_id == self.id:
            if epoch > self.epoch:
                # A replica that had our node id before the disk was wiped led that epoch: ignore it.
                self._become_unattached(epoch, now_ms)
                self._persist(replace(self.hard, voted=self.key))
        elif leader_id == NO_NODE:
            if epoch > self.epoch:
                self._become_unattached(epoch, now_ms)
        elif epoch > self.epoch or self.leader_id == NO_NODE:
            self._become_follower(epoch, leader_id, now_ms)
        elif leader_id != self.leader_id:
            self.contradiction(f"two leaders in epoch {epoch}: node {self.leader_id} and node {leader_id}")
            return False
        return True

    def heard_from_leader(self, now_ms: float) -> None:
        """Restarts the fetch timeout: the leader answered."""
        if self.role is not Role.FOLLOWER:
            self._enter(Role.FOLLOWER)
        self._leader_gone = False
        self._leader_heard = True
        self._campaign_at_ms = now_ms + self._fetch_timeout_ms()

    def resign(self, now_ms: float) -> None:
        """Stops leading and tells the voters, with the best successor first."""
        assert self.leading is not None
        preferred = self.leading.successors()
        for voter in self.voter_set.voters:
            if voter.id != self.id:
                self.send(m.EndQuorumEpochRequest(self.id, voter.id, self.next_request_id(), self.epoch, preferred))
        self._become_unattached(self.epoch, now_ms)

    def _become_unattached(self, epoch: int, now_ms: float) -> None:
        self._stop_leading()
        if epoch > self.epoch:
            self._persist(replace(self.hard, epoch=epoch, leader_id=NO_NODE, voted=None))
        else:
            # The vote of this epoch stays: a leader's for itself, a follower's for its candidate.
            self._persist(replace(self.hard, leader_id=NO_NODE))
        self._enter(Role.UNATTACHED)
        self._campaign_at_ms = now_ms + self._random_election_timeout_ms()
        self.following.restart(now_ms)

    def _become_follower(self, epoch: int, leader_id: int, now_ms: float) -> None:
        self._stop_leading()
        voted = self.hard.voted if epoch == self.epoch else None
        self._persist(replace(self.hard, epoch=epoch, leader_id=leader_id, voted=voted))
        self._enter(Role.FOLLOWER)
        self._leader_gone = self._leader_heard = False
        self._campaign_at_ms = now_ms + self._fetch_timeout_ms()
        self.following.restart(now_ms)

    def _become_prospective(self, now_ms: float) -> None:
        # Keep fetching from the last known leader: one successful response makes this replica a follower again.
        self._enter(Role.PROSPECTIVE)
        self._ask_for_votes(now_ms, pre_vote=True)

    def _become_candidate(self, now_ms: float) -> None:
        self._persist(replace(self.hard, epoch=self.epoch + 1, leader_id=NO_NODE, voted=self.key))
        self._enter(Role.CANDIDATE)
        self.following.restart(now_ms)
        self._ask_for_votes(now_ms, pre_vote=False)

    def _become_leader(self, now_ms: float) -> None:
        self._persist(replace(self.hard, leader_id=self.id))
        self._enter(Role.LEADER)
        self._campaign_at_ms = FOREVER
        self.leading = Leading(self, now_ms)
        self.leading.begin(tuple(sorted(key.id for key in self._granted if key in self.voter_set)))

    def _stop_leading(self) -> None:
        if self.leading is not None:
            self.leading.stop()
            self.leading = None

    def _enter(self, role: Role) -> None:
        self.role = role
        self._ready.leadership = m.Leadership(role, self.leader_id, self.epoch)

    def _persist(self, hard: HardState) -> None:
        assert hard.epoch >= self.hard.epoch
        if hard != self.hard:
            self.hard = self._ready.hard_state = hard

    # -- who may vote ------------------------------------------------------------------------------------------------

    @property
    def _alone(self) -> bool:
        return len(self.voter_set) == 1 and self.key in self.voter_set

    @property
    def _may_vote(self) -> bool:
        """Whether the log is complete: a replica that lost acknowledged records, or replaces its log, must not vote."""
        return not self.hard.suspect and self.following.installing is None

    @property
    def may_campaign(self) -> bool:
        """Whether this replica may stand for election.

        A replica that the newest voter set removes may, as long as that set might not be committed: it can be the only
        one whose log is long enough to win, and then leads to commit its own removal (Ongaro's thesis, §4.2.2).
        """
        if self.leading is not None or not self._may_vote:
            return False
        return self.key in self.voter_set or self.key in self.log.voter_set_at(self.high_watermark)

    # -- timers ------------------------------------------------------------------------------------------------------

    def _check_timers(self, now_ms: float) -> None:
        if self.leading is not None:
            self.leading.check_timers(now_ms)
            return
        self.following.check_timers(now_ms)
        if now_ms < self._campaign_at_ms:
            return
        if self.may_campaign:
            self._become_prospective(now_ms)
        elif self.role is Role.FOLLOWER and self.following.installing is None:
            self._become_unattached(self.epoch, now_ms)
        else:
            self._campaign_at_ms = now_ms + self._random_election_timeout_ms()

    def _next_deadline_ms(self) -> float:
        if self.leading is not None:
            return self.leading.next_deadline_ms()
        return min(self._campaign_at_ms, self.following.next_deadline_ms())

    def _grant_grace(self, now_ms: float) -> None:
        """Extends the timers after the process was suspended: messages that wait in the sockets must be read first."""
        until_ms = now_ms + 2 * self.config.late_event_ms
        self._campaign_at_ms = max(self._campaign_at_ms, until_ms)
        if self.leading is not None:
            self.leading.grant_grace(until_ms)
        else:
            self.following.grant_grace(until_ms)

    def _random_election_timeout_ms(self) -> int:
        return self.config.election_timeout_ms + self._rng.randrange(self.config.election_timeout_ms)

    def _fetch_timeout_ms(self) -> int:
        # Randomised: followers that lose their leader at the same moment should not all campaign at once.
        return self.config.fetch_timeout_ms + self._rng.randrange(self.config.election_timeout_ms // 4)

    # -- output of the current step ----------------------------------------------------------------------------------

    @property
    def ready(self) -> m.Ready:
        """The `Ready` of the current step."""
        return self._ready

    def send(self, message: m.Message) -> None:
        self._ready.messages.append(message)

    def next_request_id(self) -> int:
        self._requests += 1
        return self._requests

    def random_below(self, stop: int) -> int:
        return self._rng.randrange(stop)

    def append(self, batch: m.LogBatch) -> None:
        self.log.append(batch)
        self._ready.append.append(batch)

    def contradiction(self, what: str) -> None:
        self._ready.contradictions.append(what)

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.high_watermark, "committed records are never truncated"
        assert not self._ready.append, "a step truncates before it appends"
        self.log.truncate_to(offset)
        self.synced_end = -1  # until the shell reports that the truncation is durable
        self._ready.truncate_to = offset

    def commit_to(self, offset: int) -> None:
        """Marks everything below `offset` as committed."""
        assert offset <= self.log.end_offset
        if offset > self.high_watermark:
            self.high_watermark = self._ready.high_watermark = offset

    def trust_log(self) -> None:
        """Rejoins elections: the log holds everything committed again."""
        self._persist(replace(self.hard, suspect=False))

    def result(self, operation_id: int, error: ErrorCode, message: str = "") -> None:
        self._ready.results.append(m.VoterChangeResult(operation_id, error, message))

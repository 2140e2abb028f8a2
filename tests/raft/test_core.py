"""Rules of the core that are plainer as one event and its answer than as a scenario."""

from __future__ import annotations

from random import Random

import pytest

from penstock.raft import messages as m
from penstock.raft.core import RaftCore
from penstock.raft.log_view import LogView
from penstock.raft.types import (
    HardState,
    OffsetAndEpoch,
    RaftConfig,
    ReplicaKey,
    Role,
    Voter,
    VoterSet,
)
from penstock.sim.raft.cluster import directory
from penstock.wire.errors import ErrorCode

CONFIG = RaftConfig()


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory(node_id))


def voters(count: int) -> VoterSet:
    return VoterSet.of(Voter(i, directory(i)) for i in range(1, count + 1))


def batch(base_offset: int, epoch: int, value: bytes = b"x") -> m.LogBatch:
    return m.LogBatch(base_offset, 1, epoch, values=(value,))


def core(
    *batches: m.LogBatch, count: int = 3, node_id: int = 1, hard: HardState | None = None
) -> tuple[RaftCore, m.Ready]:
    log = LogView.recover(0, batches, OffsetAndEpoch(0, 0), voters(count))
    replica = RaftCore(key(node_id), hard or HardState(), log, Random(1), CONFIG)
    return replica, replica.start(0)


def elect(replica: RaftCore) -> m.Ready:
    """Let it win, before 5,000 ms, with the votes of node 2."""
    ready = m.Ready(deadline_ms=0)
    now_ms = 0.0
    while replica.role is not Role.LEADER:
        assert now_ms < 5_000
        asked = [message for message in ready.messages if isinstance(message, m.VoteRequest) and message.target == 2]
        if asked:
            granted = m.VoteResponse(2, 1, asked[0].request_id, ErrorCode.NONE, -1, replica.epoch, granted=True)
            ready = replica.step(granted, now_ms)
        else:
            now_ms = max(now_ms, ready.deadline_ms)
            ready = replica.step(m.Tick(), now_ms)
    return ready


def fetch(replica: RaftCore, node_id: int, offset: int, last_epoch: int, now_ms: float, request_id: int = 1) -> m.Ready:
    request = m.FetchRequest(node_id, 1, request_id, key(node_id), replica.epoch, offset, last_epoch, 0, 500)
    return replica.step(request, now_ms)


def test_one_voter_leads_at_start_without_a_message_and_commits_with_its_first_sync() -> None:
    replica, ready = core(count=1)
    assert ready.messages == []
    assert ready.hard_state == HardState(1, 1, key(1))
    assert ready.leadership == m.Leadership(Role.LEADER, 1, 1)
    (first,) = ready.append
    assert [type(record) for record in first.control] == [m.LeaderChange, m.KRaftVersion, m.Voters]
    assert ready.high_watermark is None
    assert ready.deadline_ms == float("inf")
    assert replica.step(m.Persisted(3), 1).high_watermark == 3


def test_one_voter_writes_its_voters_into_the_log_only_once() -> None:
    replica, ready = core(count=1)
    again, ready = core(*ready.append, count=1, hard=ready.hard_state)
    (second,) = ready.append
    assert second.control == (m.LeaderChange(1, (1,), (1,)),)
    assert (second.base_offset, second.epoch) == (3, 2)
    assert again.voter_set == replica.voter_set


def test_a_proposal_of_another_epoch_is_refused() -> None:
    replica, _ = core(count=1)
    assert replica.step(m.Propose(1, (b"a", b"b")), 1).proposed == m.Proposed(3, 5)
    assert replica.step(m.Propose(0, (b"c",)), 1).proposed is None
    assert replica.log.end_offset == 5


def test_the_epoch_never_falls_behind_the_log() -> None:
    replica, _ = core(batch(0, 7), count=1, hard=HardState(3, 2, key(2)))
    assert replica.epoch == 8


def test_records_of_older_epochs_are_committed_only_with_one_of_the_leaders_own() -> None:
    # Raft's figure 8: node 2 holds the record of epoch 1, so a majority does, but a later leader may lack it.
    replica, _ = core(batch(0, 1), hard=HardState(1))
    (opening,) = elect(replica).append
    assert opening.base_offset == 1
    assert replica.step(m.Persisted(2), 5_001).high_watermark is None
    ready = fetch(replica, 2, 1, 1, 5_002)
    assert ready.high_watermark is None
    (response,) = ready.messages
    assert isinstance(response, m.FetchResponse)
    assert response.high_watermark == -1
    assert fetch(replica, 2, 2, replica.epoch, 5_003).high_watermark == 2


def test_a_leader_counts_itself_only_when_its_log_is_synced() -> None:
    replica, _ = core()
    elect(replica)
    assert fetch(replica, 2, 3, replica.epoch, 5_001).high_watermark is None
    assert replica.step(m.Persisted(3), 5_002).high_watermark == 3


def test_observers_do_not_count() -> None:
    replica, _ = core()
    elect(replica)
    replica.step(m.Persisted(3), 5_001)
    assert fetch(replica, 9, 3, replica.epoch, 5_002).high_watermark is None
    # Neither does a replica that has a voter's id, but not its disk.
    impostor = m.FetchRequest(2, 1, 1, ReplicaKey(2, directory(2, 9)), replica.epoch, 3, replica.epoch, 0, 500)
    assert replica.step(impostor, 5_003).high_watermark is None


def test_a_parked_fetch_is_answered_when_the_high_watermark_moves() -> None:
    replica, _ = core()
    elect(replica)
    replica.step(m.Persisted(3), 5_001)
    parked = m.FetchRequest(3, 1, 77, key(3), replica.epoch, 3, replica.epoch, 0, 500)
    assert replica.step(parked, 5_002).high_watermark == 3
    ready = replica.step(m.FetchRequest(3, 1, 78, key(3), replica.epoch, 3, replica.epoch, 3, 500), 5_003)
    assert ready.messages == []
    ready = replica.step(m.Propose(replica.epoch, (b"a",)), 5_004)
    assert [message.request_id for message in ready.messages] == [78]


def test_a_parked_fetch_is_answered_at_its_deadline() -> None:
    replica, _ = core()
    elect(replica)
    replica.step(m.Persisted(3), 5_001)
    fetch(replica, 2, 3, replica.epoch, 5_002)
    ready = replica.step(m.FetchRequest(3, 1, 78, key(3), replica.epoch, 3, replica.epoch, 3, 500), 5_003)
    assert ready.deadline_ms == 5_503
    ready = replica.step(m.Tick(), ready.deadline_ms)
    assert [message.request_id for message in ready.messages if isinstance(message, m.FetchResponse)] == [78]


def test_a_follower_refuses_pre_votes_while_it_hears_from_its_leader() -> None:
    replica, _ = core(hard=HardState(1, 2))
    assert replica.role is Role.FOLLOWER
    replica.step(m.BeginQuorumEpochRequest(2, 1, 5, 1, key(1)), 50)
    ask = m.VoteRequest(3, 1, 1, 1, key(3), key(1), 1, 100, pre_vote=True)
    (response,) = replica.step(ask, 100).messages
    assert isinstance(response, m.VoteResponse)
    assert not response.granted
    assert replica.hard == HardState(1, 2)


def test_a_vote_is_written_before_it_leaves_and_given_once() -> None:
    replica, _ = core(hard=HardState(1))
    ready = replica.step(m.VoteRequest(2, 1, 1, 2, key(2), key(1), 1, 0, pre_vote=False), 100)
    assert ready.hard_state == HardState(2, -1, key(2))
    assert any(isinstance(message, m.VoteResponse) and message.granted for message in ready.messages)
    ready = replica.step(m.VoteRequest(3, 1, 1, 2, key(3), key(1), 9, 99, pre_vote=False), 101)
    assert not any(isinstance(message, m.VoteResponse) and message.granted for message in ready.messages)
    # The same candidate may ask again: its first answer may have been lost.
    ready = replica.step(m.VoteRequest(2, 1, 2, 2, key(2), key(1), 1, 0, pre_vote=False), 102)
    assert any(isinstance(message, m.VoteResponse) and message.granted for message in ready.messages)


def test_a_shorter_log_gets_no_vote() -> None:
    replica, _ = core(batch(0, 1), batch(1, 2), hard=HardState(2))
    for last_epoch, last_offset in ((2, 1), (1, 50)):
        ask = m.VoteRequest(2, 1, 1, 3, key(2), key(1), last_epoch, last_offset, pre_vote=False)
        messages = replica.step(ask, 100).messages
        assert not any(isinstance(message, m.VoteResponse) and message.granted for message in messages)


def test_a_follower_fetches_only_when_its_log_is_durable() -> None:
    replica, ready = core(hard=HardState(1, 2))
    (request,) = ready.messages
    assert isinstance(request, m.FetchRequest)
    response = m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, -1, batches=(batch(0, 1),))
    ready = replica.step(response, 10)
    assert len(ready.append) == 1
    assert ready.messages == []
    (request,) = replica.step(m.Persisted(1), 12).messages
    assert isinstance(request, m.FetchRequest)
    assert (request.offset, request.last_epoch) == (1, 1)


def test_a_truncation_must_be_durable_before_the_next_fetch() -> None:
    replica, ready = core(batch(0, 1), batch(1, 1), hard=HardState(2, 2))
    (request,) = ready.messages
    diverging = OffsetAndEpoch(1, 1)
    ready = replica.step(m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 2, diverging=diverging), 10)
    assert ready.truncate_to == 1
    assert ready.messages == []
    assert isinstance(replica.step(m.Persisted(1), 11).messages[0], m.FetchRequest)


def test_committed_records_are_never_truncated() -> None:
    replica, ready = core(batch(0, 1), batch(1, 1), hard=HardState(1, 2))
    (request,) = ready.messages
    ready = replica.step(m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, 2, read_from=2), 10)
    assert ready.high_watermark == 2
    (request,) = ready.messages
    ready = replica.step(
        m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, diverging=OffsetAndEpoch(1, 1)), 13
    )
    assert "below its high watermark" in only(ready.contradictions)
    assert ready.truncate_to is None
    assert replica.log.end_offset == 2
    # It asks again, but not at once: the leader may be another one soon.
    assert ready.deadline_ms == 13 + CONFIG.retry_backoff_ms


def test_a_second_leader_of_one_epoch_is_refused_and_the_first_is_kept() -> None:
    replica, _ = core(hard=HardState(1, 2))
    ready = replica.step(m.BeginQuorumEpochRequest(3, 1, 1, 1, key(1)), 10)
    assert "two leaders in epoch 1" in only(ready.contradictions)
    answer = ready.messages[0]
    assert isinstance(answer, m.BeginQuorumEpochResponse)
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.INVALID_REQUEST, 2, 1)
    assert replica.leader_id == 2
    assert ready.hard_state is None


def test_a_gap_in_an_answer_is_left_aside() -> None:
    replica, ready = core(hard=HardState(1, 2))
    (request,) = ready.messages
    response = m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, -1, batches=(batch(4, 1),))
    ready = replica.step(response, 10)
    assert "answered a fetch from 0 with a batch at 4" in only(ready.contradictions)
    assert ready.append == []


def test_a_snapshot_older_than_what_is_committed_is_left_aside() -> None:
    replica, ready = core(batch(0, 1), batch(1, 1), hard=HardState(1, 2))
    (request,) = ready.messages
    (request,) = replica.step(
        m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, 2, read_from=2), 10
    ).messages
    old = OffsetAndEpoch(1, 1)
    ready = replica.step(m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, 2, snapshot=old), 50)
    assert "offers a snapshot that ends at 1, but the log is committed up to 2" in only(ready.contradictions)
    assert ready.messages == []


@pytest.mark.parametrize(("size", "data"), [(10, b""), (1 << 40, b"x")])
def test_a_snapshot_that_never_ends_is_not_fetched_on(size: int, data: bytes) -> None:
    replica, ready = core(hard=HardState(1, 2))
    (request,) = ready.messages
    snapshot = OffsetAndEpoch(7, 1)
    ready = replica.step(m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, 7, snapshot=snapshot), 10)
    (request,) = ready.messages
    assert isinstance(request, m.FetchSnapshotRequest)
    piece = m.FetchSnapshotResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, snapshot, 0, size=size, data=data)
    ready = replica.step(piece, 20)
    assert "of a snapshot of" in only(ready.contradictions)
    assert ready.snapshot_chunk is None
    assert ready.install is None


def test_a_snapshot_that_is_none_is_asked_for_again_and_its_replica_votes_meanwhile() -> None:
    replica, ready = core(hard=HardState(1, 2))
    (request,) = ready.messages
    snapshot = OffsetAndEpoch(7, 1)
    (request,) = replica.step(
        m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, 7, snapshot=snapshot), 10
    ).messages
    piece = m.FetchSnapshotResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, snapshot, 0, size=1, data=b"x")
    assert replica.step(piece, 20).install == snapshot
    ready = replica.step(m.SnapshotRefused(snapshot), 30)
    assert "not a valid snapshot" in only(ready.contradictions)
    (request,) = replica.step(m.Tick(), 30 + CONFIG.retry_backoff_ms).messages
    assert isinstance(request, m.FetchRequest)
    assert replica.may_campaign


def only(contradictions: list[str]) -> str:
    (one,) = contradictions
    return one


def test_an_answer_to_an_older_request_is_ignored() -> None:
    replica, ready = core(hard=HardState(1, 2))
    (request,) = ready.messages
    ready = replica.step(m.RequestFailed(request.request_id), 10)
    assert ready.deadline_ms == 10 + CONFIG.retry_backoff_ms
    late = m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, -1, batches=(batch(0, 1),))
    assert replica.step(late, 11).append == []


def test_a_request_without_an_answer_is_repeated() -> None:
    replica, ready = core(hard=HardState(1, 2))
    (request,) = ready.messages
    ready = replica.step(m.Tick(), CONFIG.request_timeout_ms)
    ready = replica.step(m.Tick(), ready.deadline_ms)
    assert isinstance(ready.messages[-1], m.FetchRequest)
    assert ready.messages[-1].request_id > request.request_id


def test_a_snapshot_that_the_leader_no_longer_has_is_asked_for_anew() -> None:
    replica, ready = core(hard=HardState(1, 2))
    (request,) = ready.messages
    snapshot = OffsetAndEpoch(50, 1)
    ready = replica.step(m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 1, snapshot=snapshot), 10)
    (request,) = ready.messages
    assert isinstance(request, m.FetchSnapshotRequest)
    refusal = m.FetchSnapshotResponse(
        2, 1, request.request_id, ErrorCode.SNAPSHOT_NOT_FOUND, 2, 1, snapshot, request.position
    )
    ready = replica.step(refusal, 11)
    assert isinstance(replica.step(m.Tick(), ready.deadline_ms).messages[0], m.FetchRequest)


def test_a_leader_serves_only_its_newest_snapshot() -> None:
    replica, _ = core()
    elect(replica)
    ask = m.FetchSnapshotRequest(2, 1, 5, key(2), replica.epoch, OffsetAndEpoch(9, 1), 0, 1 << 30)
    response = replica.step(ask, 5_001).messages[0]
    assert isinstance(response, m.FetchSnapshotResponse)
    assert response.error == ErrorCode.SNAPSHOT_NOT_FOUND
    ask = m.FetchSnapshotRequest(2, 1, 6, key(2), replica.epoch, OffsetAndEpoch(0, 0), 0, 1 << 30)
    response = replica.step(ask, 5_002).messages[0]
    assert isinstance(response, m.FetchSnapshotResponse)
    assert response.error == ErrorCode.NONE
    assert response.bytes_max == CONFIG.snapshot_chunk_bytes_max


def test_an_observer_never_stands_for_election() -> None:
    replica, ready = core(node_id=9)
    now_ms = 0.0
    for _ in range(50):
        now_ms = max(now_ms + 1, ready.deadline_ms)
        ready = replica.step(m.Tick(), now_ms)
        assert not any(isinstance(message, m.VoteRequest) for message in ready.messages)
    assert replica.role is Role.UNATTACHED


def test_a_suspect_log_stays_out_of_elections_even_alone() -> None:
    replica, _ = core(count=1, hard=HardState(suspect=True))
    assert replica.role is Role.UNATTACHED
    replica.step(m.Tick(), 60_000)
    assert replica.role is Role.UNATTACHED


def test_the_only_voter_does_not_resign() -> None:
    replica, _ = core(count=1)
    replica.step(m.Persisted(3), 1)
    assert replica.step(m.Resign(), 2).leadership is None
    assert replica.role is Role.LEADER


def test_describe_tells_how_far_everybody_is() -> None:
    replica, _ = core()
    elect(replica)
    replica.step(m.Persisted(3), 5_001)
    fetch(replica, 2, 3, replica.epoch, 5_002)
    fetch(replica, 9, 0, 0, 5_003)
    info = replica.describe()
    assert (info.leader_id, info.epoch, info.high_watermark) == (1, 1, 3)
    assert [(voter.key.id, voter.log_end_offset) for voter in info.voters] == [(1, 3), (2, 3), (3, -1)]
    assert info.voters[1].last_fetch_ms == info.voters[1].last_caught_up_ms == 5_002
    assert [(observer.key.id, observer.log_end_offset) for observer in info.observers] == [(9, 0)]
    follower, _ = core(hard=HardState(4, 2))
    assert follower.describe() == m.QuorumInfo(2, 4, 0)


def test_an_observer_that_left_is_forgotten() -> None:
    replica, _ = core(count=1)
    replica.step(m.Persisted(3), 1)
    fetch(replica, 9, 3, 1, 10)
    assert len(replica.describe().observers) == 1
    replica.step(m.Tick(), 11 + CONFIG.observer_session_timeout_ms)
    assert replica.describe().observers == ()


def test_equal_events_at_equal_times_give_equal_answers() -> None:
    def run() -> list[m.Ready]:
        replica, ready = core(hard=HardState(1))
        readies = [ready]
        for now_ms in range(0, 20_000, 130):
            readies.append(replica.step(m.Tick(), now_ms))
            readies.append(replica.step(m.VoteRequest(2, 1, now_ms, replica.epoch, key(2), key(1), 0, 0, True), now_ms))
        return readies

    assert run() == run()


# -- a leader whose process has ended --------------------------------------------------------------------------------


def following(node_id: int = 1) -> RaftCore:
    """A replica that has heard from its leader."""
    replica = core(hard=HardState(3, 2), node_id=node_id)[0]
    replica.step(m.BeginQuorumEpochRequest(2, node_id, 5, 3, replica.key), 0)
    return replica


def pre_vote(replica: RaftCore, *, source: int = 3) -> m.VoteRequest:
    return m.VoteRequest(source, replica.id, 77, replica.epoch, key(source), replica.key, 3, 0, True)


def granted(ready: m.Ready) -> bool:
    (answer,) = [message for message in ready.messages if isinstance(message, m.VoteResponse)]
    return answer.granted


def test_whoever_knows_that_the_leader_is_gone_stands_soon_and_grants_pre_votes_at_once() -> None:
    replica = following()
    assert not granted(replica.step(pre_vote(replica), 10))
    ready = replica.step(m.LeaderGone(2, 3), 20)
    assert 20 <= ready.deadline_ms <= 20 + CONFIG.election_timeout_ms // 10
    assert granted(replica.step(pre_vote(replica), 21))
    replica.step(m.Tick(), 20 + CONFIG.election_timeout_ms // 10)
    assert replica.role is Role.PROSPECTIVE


def test_a_voter_that_was_just_started_does_not_hold_on_to_a_leader_that_it_has_not_heard() -> None:
    replica = core(hard=HardState(3, 2))[0]
    assert replica.role is Role.FOLLOWER
    assert granted(replica.step(pre_vote(replica), 10))
    replica.step(m.BeginQuorumEpochRequest(2, 1, 5, 3, replica.key), 11)
    assert not granted(replica.step(pre_vote(replica), 12))


@pytest.mark.parametrize("event", [m.LeaderGone(3, 3), m.LeaderGone(2, 2)])
def test_a_hint_about_another_leader_or_epoch_changes_nothing(event: m.LeaderGone) -> None:
    replica = following()
    replica.step(event, 10)
    assert not granted(replica.step(pre_vote(replica), 11))
    replica.step(m.Tick(), CONFIG.fetch_timeout_ms / 2)
    assert replica.role is Role.FOLLOWER


def test_a_leader_that_answers_after_all_is_followed_on() -> None:
    replica, ready = core(hard=HardState(3, 2))
    (request,) = [message for message in ready.messages if isinstance(message, m.FetchRequest)]
    replica.step(m.LeaderGone(2, 3), 10)
    replica.step(m.FetchResponse(2, 1, request.request_id, ErrorCode.NONE, 2, 3, 0), 11)
    assert not granted(replica.step(pre_vote(replica), 12))
    replica.step(m.Tick(), 500)
    assert replica.role is Role.FOLLOWER

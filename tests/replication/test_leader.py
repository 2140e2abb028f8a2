"""The high watermark: what it waits for, and what it never does."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replication import IsrProposal, Leader

LAG_MS = 1000


def leader(
    replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] | None = None, *, end: int = 0, min_isr: int = 1
) -> Leader:
    return Leader(
        1,
        replicas,
        replicas if isr is None else isr,
        leader_epoch=5,
        partition_epoch=7,
        end=end,
        stable_end=end,
        min_isr=min_isr,
        lag_time_max_ms=LAG_MS,
    )


def test_a_single_replica_commits_what_it_appends() -> None:
    state = leader((1,))
    assert state.on_append(10, 10) == 10
    assert state.on_append(15, 15) == 15
    assert state.high_watermark == 15


def test_with_flush_on_the_high_watermark_waits_for_the_sync() -> None:
    state = leader((1,))
    assert state.on_append(10, 0) == 0
    assert state.on_append(20, 0) == 0
    assert state.on_durable(10) == 10
    assert state.on_durable(20) == 20


def test_turning_flush_on_does_not_take_back_what_readers_saw() -> None:
    state = leader((1,))
    assert state.on_append(10, 10) == 10
    assert state.on_append(20, 3) == 10
    assert state.on_durable(20) == 20


def test_the_slowest_in_sync_replica_decides() -> None:
    state = leader()
    state.on_append(10, 10)
    state.on_fetch(2, 10, 0)
    assert state.high_watermark == 0
    state.on_fetch(3, 4, 0)
    assert state.high_watermark == 4
    state.on_fetch(3, 10, 0)
    assert state.high_watermark == 10


def test_a_follower_outside_the_isr_does_not_hold_it_back() -> None:
    state = leader(isr=(1, 2))
    state.on_append(10, 10)
    state.on_fetch(2, 10, 0)
    assert state.high_watermark == 10


def test_a_follower_that_caught_up_is_proposed_and_counts_from_then_on() -> None:
    state = leader(isr=(1, 2))
    state.on_append(10, 10)
    state.on_fetch(2, 10, 0)
    assert state.on_fetch(3, 9, 1) is None
    assert state.on_fetch(3, 10, 2) == IsrProposal((1, 2, 3), 5, 7)
    # The controller may have recorded it already: node 3 could be the next leader, so it must have everything.
    state.on_append(20, 20)
    state.on_fetch(2, 20, 3)
    assert state.high_watermark == 10
    assert state.on_fetch(3, 20, 4) is None
    assert state.high_watermark == 20


def test_a_follower_must_reach_the_leaders_epoch_to_be_proposed() -> None:
    state = leader(isr=(1,), replicas=(1, 2), end=50)
    assert state.on_fetch(2, 49, 0) is None
    assert state.on_fetch(2, 50, 0) is not None


def test_a_fenced_follower_is_not_proposed() -> None:
    state = leader(isr=(1,), replicas=(1, 2))
    assert state.on_fetch(2, 0, 0, eligible=False) is None
    assert state.on_fetch(2, 0, 0) == IsrProposal((1, 2), 5, 7)


def test_a_follower_that_lags_is_dropped_only_when_the_controller_agrees() -> None:
    state = leader()
    state.on_append(10, 10)
    state.on_fetch(2, 10, 10)
    assert state.tick(LAG_MS) is None
    assert state.tick(LAG_MS + 5) == IsrProposal((1, 2), 5, 7)
    assert state.high_watermark == 0
    assert state.tick(LAG_MS + 6) is None
    assert state.on_isr((1, 2, 3), (1, 2), 8, LAG_MS + 7) == 10


def test_a_follower_that_keeps_up_with_a_fast_leader_stays() -> None:
    state = leader((1, 2))
    for now_ms in range(0, 5 * LAG_MS, 100):
        # It always has what the leader had a fetch ago, and never what the leader has now.
        state.on_append(now_ms + 100, now_ms + 100)
        state.on_fetch(2, now_ms, now_ms)
        assert state.tick(now_ms) is None


def test_a_follower_at_the_end_never_lags() -> None:
    state = leader((1, 2))
    state.on_fetch(2, 0, 0)
    assert state.tick(100 * LAG_MS) is None


def test_a_follower_that_was_at_the_end_has_its_full_time_from_then_on() -> None:
    """It asks for nothing while there is nothing, so its last fetch may be long ago."""
    state = leader((1, 2))
    state.on_fetch(2, 0, 0)
    assert state.tick(100 * LAG_MS) is None
    state.on_append(10, 10)
    assert state.tick(100 * LAG_MS + LAG_MS / 2) is None
    assert state.tick(101 * LAG_MS + 1) == IsrProposal((1,), 5, 7)


def test_what_an_earlier_incarnation_had_under_way_does_not_count() -> None:
    state = leader((1, 2))
    state.on_append(10, 10)
    state.on_fetch(2, 4, 0, broker_epoch=31)
    state.on_fetch(2, 10, 1, broker_epoch=30)
    assert state.high_watermark == 4
    assert state.followers[2].end == 4


def test_a_broker_that_restarted_is_not_taken_for_caught_up_by_what_it_had_before() -> None:
    state = leader((1, 2))
    state.on_append(10, 10)
    state.on_fetch(2, 5, 0, broker_epoch=30)
    state.on_append(20, 20)
    # It now has what the leader had when the other incarnation asked; the other one did, too.
    state.on_fetch(2, 10, 10, broker_epoch=31)
    assert state.followers[2].caught_up_ms == 0


def test_a_refused_proposal_is_not_made_again_at_once() -> None:
    state = leader(isr=(1,), replicas=(1, 2))
    assert state.on_fetch(2, 0, 0) is not None
    state.on_refused(quiet_until_ms=500)
    assert state.on_fetch(2, 0, 499) is None
    assert state.on_fetch(2, 0, 500) is not None


def anyone(replica: int, broker_epoch: int) -> bool:
    return True


def test_a_follower_that_was_not_eligible_when_it_asked_last_is_proposed_later() -> None:
    state = leader(isr=(1,), replicas=(1, 2, 3))
    state.on_fetch(2, 0, 0, broker_epoch=30, eligible=False)
    assert state.expand(1, lambda replica, broker_epoch: broker_epoch == 31) is None
    assert state.expand(1, lambda replica, broker_epoch: broker_epoch == 30) == IsrProposal((1, 2), 5, 7)
    assert state.expand(2, anyone) is None


def test_a_follower_that_was_dropped_is_not_proposed_before_it_asks_again() -> None:
    """Below the minimum the high watermark stands where it is, and it has all that is committed."""
    state = leader((1, 2), min_isr=2)
    state.on_fetch(2, 0, 0)
    state.on_append(10, 10)
    assert state.tick(LAG_MS + 1) == IsrProposal((1,), 5, 7)
    state.on_isr((1, 2), (1,), 8, LAG_MS + 2)
    assert state.expand(LAG_MS + 3, anyone) is None
    assert state.on_fetch(2, 10, LAG_MS + 4) == IsrProposal((1, 2), 5, 8)


def test_below_the_minimum_the_high_watermark_stands_still() -> None:
    state = leader(min_isr=2)
    state.on_append(10, 10)
    state.on_fetch(2, 10, 0)
    state.on_fetch(3, 10, 0)
    assert state.on_isr((1, 2, 3), (1,), 8, 1) == 10
    assert state.under_min_isr
    assert state.on_append(20, 20) == 10
    assert state.on_min_isr(1) == 20
    assert not state.under_min_isr


def test_a_topic_with_fewer_replicas_than_the_minimum_needs_only_those() -> None:
    state = leader((1,), min_isr=2)
    assert not state.under_min_isr
    assert state.on_append(10, 10) == 10


def test_a_refused_proposal_frees_the_high_watermark() -> None:
    state = leader(isr=(1,), replicas=(1, 2))
    state.on_append(10, 10)
    state.on_fetch(2, 10, 0)
    state.on_append(20, 20)
    assert state.high_watermark == 10
    assert state.on_refused() == 20
    assert state.isr == (1,)


def test_older_news_from_the_controller_is_ignored() -> None:
    state = leader()
    state.on_isr((1, 2, 3), (1, 2), 9, 0)
    state.on_isr((1, 2, 3), (1, 2, 3), 8, 0)
    assert state.isr == (1, 2)


def test_a_reassignment_keeps_what_is_known_of_the_followers_that_stay() -> None:
    state = leader()
    state.on_append(10, 10)
    state.on_fetch(2, 10, 0)
    state.on_isr((1, 2, 4), (1, 2), 8, 1)
    assert state.followers[2].end == 10
    assert sorted(state.followers) == [2, 4]


def test_the_hot_path_allocates_nothing() -> None:
    state = leader((1,))
    for end in range(1000, 1100):
        state.on_append(end, end)
    before = sys.getallocatedblocks()
    for _ in range(1000):
        state.on_append(1100, 1100)
    assert sys.getallocatedblocks() - before < 20


events = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("durable"), st.integers(0, 10), st.just(0)),
        st.tuples(st.just("fetch"), st.integers(2, 4), st.integers(-3, 20)),
        st.tuples(st.just("tick"), st.integers(0, 2 * LAG_MS), st.just(0)),
        st.tuples(st.just("accept"), st.just(0), st.just(0)),
        st.tuples(st.just("refuse"), st.just(0), st.just(0)),
        st.tuples(st.just("shrink"), st.integers(2, 4), st.just(0)),
        st.tuples(st.just("min"), st.integers(1, 4), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(events, st.sampled_from([(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]))
def test_the_high_watermark_only_rises_and_never_above_a_possible_leader(
    steps: list[tuple[str, int, int]], isr: tuple[int, ...]
) -> None:
    state = leader((1, 2, 3, 4), isr)
    now_ms = 0.0
    stable = {2: 0, 3: 0, 4: 0}  # the most that each follower ever said it has
    previous = 0
    for name, a, b in steps:
        before = state.high_watermark
        frozen = state.under_min_isr
        if name == "append":
            state.on_append(state.end + a, min(state.end + a, state.stable_end + b))
        elif name == "durable":
            state.on_durable(min(state.end, state.stable_end + a))
        elif name == "fetch":
            offset = max(0, min(state.end, state.high_watermark + b))
            stable[a] = max(stable[a], offset)
            state.on_fetch(a, offset, now_ms)
        elif name == "tick":
            now_ms += a
            state.tick(now_ms)
        elif name == "accept" and state.proposed is not None:
            state.on_isr(state.replicas, state.proposed, state.partition_epoch + 1, now_ms)
        elif name == "refuse":
            state.on_refused()
        elif name == "shrink":
            # The controller fenced a broker.
            left = tuple(replica for replica in state.isr if replica != a)
            state.on_isr(state.replicas, left, state.partition_epoch + 1, now_ms)
        elif name == "min":
            state.on_min_isr(a)
        assert state.high_watermark >= previous
        previous = state.high_watermark
        if state.high_watermark > before:
            assert state.high_watermark <= state.stable_end
            assert all(state.high_watermark <= stable[replica] for replica in state.maximal_isr if replica != 1)
            assert not (frozen and state.under_min_isr)
        assert state.under_min_isr == (len(state.isr) < min(state.min_isr, len(state.replicas)))


# -- a leader that should not lead ------------------------------------------------------------------------------------


def test_a_leader_gives_up_its_place_only_to_members_of_the_isr() -> None:
    state = leader((1, 2, 3), isr=(1, 3))
    assert state.give_up(0) == IsrProposal((3,), 5, 7)
    assert state.give_up(0) is None  # it has been proposed
    assert leader((1, 2), isr=(1,)).give_up(0) is None


def test_a_leader_that_gives_up_still_counts_everyone() -> None:
    state = leader((1, 2))
    state.give_up(0)
    state.on_append(10, 10)
    state.on_fetch(2, 4, 0)
    assert state.high_watermark == 4


def test_a_stranded_leader_refuses_acks_all_and_says_so_until_it_is_not() -> None:
    state = leader((1, 2), min_isr=1)
    state.on_stranded(True)
    assert state.refuses_acks_all
    assert not state.under_min_isr
    state.on_isr((1, 2), (1,), 8, 0)
    assert state.refuses_acks_all, "another ISR does not bring the controller back"
    state.on_stranded(False)
    assert not state.refuses_acks_all


def test_suspects_that_have_everything_are_not_dropped() -> None:
    state = leader((1, 2, 3))
    state.on_append(10, 10)
    state.on_fetch(2, 10, 100)
    assert state.drop(20_000, 9_000, [2, 3]) == IsrProposal((1, 2), 5, 7)

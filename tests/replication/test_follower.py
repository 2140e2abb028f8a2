"""What a follower asks for, and what it does with what it is told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.epochs import EpochCache
from penstock.replication import Append, Fetched, Follower, Ignore, Later, LogEnds, Position, StartAt, Truncate

OUT_OF_RANGE, NOT_LEADER = 1, 6


def ends(end: int = 100, stable_end: int | None = None, *, start: int = 0, last_epoch: int = 3) -> LogEnds:
    return LogEnds(start, end, end if stable_end is None else stable_end, last_epoch)


def follower(end: int = 100, high_watermark: int = 0) -> Follower:
    state = Follower(2, 5, high_watermark)
    position = state.position(ends(end))
    assert position is not None
    state.on_asked(position, 1)
    return state


def epochs(*entries: tuple[int, int], end: int = 100) -> EpochLookup:
    return EpochLookup(EpochCache(list(entries)), end)


class EpochLookup:
    def __init__(self, cache: EpochCache, end: int) -> None:
        self.cache = cache
        self.end = end

    def __call__(self, epoch: int) -> tuple[int, int]:
        return self.cache.end_offset(epoch, self.end)


SOME = epochs((1, 0), (3, 50))


def test_it_asks_from_its_end_and_tells_the_epoch_of_its_last_record() -> None:
    assert Follower(2, 5, 0).position(ends(100)) == Position(100, 3, 5)


def test_it_does_not_vouch_for_what_is_not_stable() -> None:
    state = Follower(2, 5, 0)
    assert state.position(ends(100, 90)) is None
    assert state.position(ends(100, 100)) is not None


def test_its_high_watermark_is_the_leaders_as_far_as_it_has_the_records() -> None:
    state = follower()
    assert state.on_fetched(1, Fetched(0, 120, 0, None, 100, 5), ends(), SOME) == Append(0)
    assert state.on_grown(ends(110)) == 110
    assert state.on_grown(ends(130)) == 120


def test_with_flush_on_its_high_watermark_waits_for_the_sync() -> None:
    state = follower()
    state.on_fetched(1, Fetched(0, 120, 0, None, 100, 5), ends(), SOME)
    assert state.on_grown(ends(130, 100)) == 100
    assert state.on_grown(ends(130, 130)) == 120


def test_its_high_watermark_does_not_follow_a_new_leaders_back() -> None:
    state = follower(high_watermark=90)
    state.on_fetched(1, Fetched(0, 60, 0), ends(), SOME)
    assert state.on_grown(ends()) == 90


def test_an_answer_to_an_older_question_is_ignored() -> None:
    state = follower()
    assert state.on_fetched(0, Fetched(0, 120, 0, None, 100, 5), ends(), SOME) == Ignore()
    assert state.on_fetched(1, Fetched(0, 120, 0, None, 100, 5), ends(99), SOME) == Ignore()
    # Of a session: the leader answers with a later request what an earlier one asked.
    assert state.on_fetched(7, Fetched(0, 120, 0, None, 100, 5), ends(), SOME) == Append(0)
    assert state.on_fetched(7, Fetched(0, 120, 0, None, 100, 5), ends(110), SOME) == Ignore()


def test_a_leader_without_the_next_record_makes_it_start_over() -> None:
    state = follower()
    assert state.on_fetched(1, Fetched(OUT_OF_RANGE, 900, 500), ends(), SOME) == StartAt(500)
    assert state.position(ends()) is None
    state.on_grown(ends(500, start=500, last_epoch=-1))
    assert state.position(ends(500, start=500, last_epoch=-1)) == Position(500, -1, 5)


def test_any_other_error_is_waited_out() -> None:
    state = follower()
    assert state.on_fetched(1, Fetched(NOT_LEADER), ends(), SOME) == Later(NOT_LEADER)
    assert state.on_fetched(1, Fetched(NOT_LEADER), ends(), SOME) == Ignore()


def test_records_of_an_epoch_beyond_the_leaders_are_not_its_answer() -> None:
    state = follower()
    outcome = state.on_fetched(1, Fetched(0, 120, 0, None, 100, 6), ends(), SOME)
    assert isinstance(outcome, Later)


def test_it_cuts_where_the_leaders_epoch_ended() -> None:
    state = follower()
    assert state.on_fetched(1, Fetched(0, 60, 0, (3, 70)), ends(), SOME) == Truncate(70, False)
    assert state.position(ends()) is None
    state.on_grown(ends(70))
    assert state.position(ends(70)) == Position(70, 3, 5)


def test_it_cuts_where_its_own_epoch_ended_if_the_leaders_went_on() -> None:
    state = follower()
    assert state.on_fetched(1, Fetched(0, 60, 0, (1, 70)), ends(), SOME) == Truncate(50, False)


def test_an_epoch_it_never_had_is_compared_again() -> None:
    """KIP-279: the leader's epoch 2 says nothing about where epoch 1 ended."""
    state = follower()
    assert state.on_fetched(1, Fetched(0, 60, 0, (2, 90)), ends(), SOME) == Truncate(50, False)


def test_cutting_below_the_high_watermark_is_noticed() -> None:
    state = follower(high_watermark=80)
    assert state.on_fetched(1, Fetched(0, 60, 0, (3, 70)), ends(), SOME) == Truncate(70, True)
    assert state.on_grown(ends(70)) == 70


def test_a_divergence_that_would_cut_nothing_does_not_spin() -> None:
    state = follower()
    assert isinstance(state.on_fetched(1, Fetched(0, 60, 0, (7, 200)), ends(), SOME), Later)
    assert state.position(ends()) is not None


# ---- two histories


Log = list[int]
"""The epoch of each record; that of a leader is what it wrote in its epoch, after what it had."""

histories = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=5)


def grown(base: Log, growth: list[tuple[int, int]], own: int) -> Log:
    """What a node has after leading in some epochs that nobody else led in."""
    log = list(base)
    epoch = log[-1] if log else 0
    for step, count in growth:
        epoch += 2 * step + (epoch + own) % 2
        log += [epoch] * count
    return log


def cache_of(log: Log, latest: int | None = None) -> EpochCache:
    cache = EpochCache()
    for offset, epoch in enumerate(log):
        if epoch > cache.latest_epoch:
            cache.assign(epoch, offset)
    if latest is not None:
        cache.assign(latest, len(log))
    return cache


@settings(max_examples=500)
@given(histories, histories, histories)
def test_cutting_ends_where_the_histories_part(
    common: list[tuple[int, int]], ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    base = grown([], common, 0)
    mine, leaders = grown(base, ours, 0), grown(base, theirs, 1)
    latest = max([0, *mine, *leaders]) + 1
    leader = cache_of(leaders, latest)
    state = Follower(2, latest, 0)
    for number in range(1, len(mine) + 3):
        own = cache_of(mine)
        known = LogEnds(0, len(mine), len(mine), mine[-1] if mine else -1)
        position = state.position(known)
        assert position is not None
        state.on_asked(position, number)
        answer = Fetched(0, 0, 0, None, position.offset, latest)
        if position.last_epoch >= 0:
            epoch, end = leader.end_offset(position.last_epoch, len(leaders))
            if epoch < position.last_epoch or end < position.offset:
                answer = Fetched(0, 0, 0, (epoch, end))
        outcome = state.on_fetched(number, answer, known, EpochLookup(own, len(mine)))
        if isinstance(outcome, Append):
            break
        assert isinstance(outcome, Truncate), outcome
        del mine[outcome.offset :]
        state.on_grown(LogEnds(0, len(mine), len(mine), mine[-1] if mine else -1))
    assert mine == leaders[: len(mine)]
    assert len(mine) >= len(base)


def test_epochs_that_nobody_has_led_yet_are_cut_off() -> None:
    """A bit flipped in the epoch of a batch, which no checksum covers: the leader cannot tell where that epoch ends."""
    state = Follower(2, 5, 0)
    rotten = ends(last_epoch=900)
    position = state.position(rotten)
    assert position is not None
    state.on_asked(position, 1)
    answer = Fetched(OUT_OF_RANGE, -1, -1)
    assert state.on_fetched(1, answer, rotten, epochs((1, 0), (3, 50), (900, 70))) == Truncate(70, False)
    state = Follower(2, 5, 0)
    state.on_asked(position, 1)
    assert state.on_fetched(1, answer, rotten, epochs((900, 0))) == Truncate(0, False)

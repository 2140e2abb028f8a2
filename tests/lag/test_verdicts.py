"""Burrow's rules, one by one, and in their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lag import GroupVerdict, History, Judgement, Observation, Rules, Source, Verdict, judge
from penstock.lag.history import RECENT_MS
from penstock.lag.verdicts import duration_text, group_verdict

MINUTE_MS = 60_000
NOW_MS = 1_700_000_000_000


def commits(*pairs: tuple[int, int | None], every_ms: int = MINUTE_MS, last_ms: int = NOW_MS) -> History:
    """A history of (offset, lag), at equal distances, the last one at `last_ms`."""
    start_ms = last_ms - every_ms * (len(pairs) - 1)
    return History([Observation(offset, start_ms + every_ms * n, lag) for n, (offset, lag) in enumerate(pairs)])


def verdict(history: History, lag: int, *, now_ms: int = NOW_MS) -> Verdict:
    return judge(history, history.observations[-1].offset, lag, now_ms).verdict


# --- now is what counts first ---------------------------------------------------------------------------------------


def test_a_partition_without_lag_is_ok_whatever_happened() -> None:
    rewound_long_ago = commits((100, 5), (50, 55), last_ms=NOW_MS - 1_000 * MINUTE_MS)
    assert verdict(rewound_long_ago, 0) is Verdict.OK


def test_allowed_lag_counts_as_none() -> None:
    history = History([Observation(10, NOW_MS - MINUTE_MS, 5), Observation(10, NOW_MS, 5)], rules=Rules(allowed_lag=5))
    assert judge(history, 10, 5, NOW_MS).verdict is Verdict.OK
    # At the limit in the window, above it now: was "up to date".
    assert judge(history, 10, 6, NOW_MS).verdict is Verdict.OK
    tighter = History(history.observations, rules=Rules(allowed_lag=4))
    assert judge(tighter, 10, 6, NOW_MS).verdict is Verdict.STALL


# --- STOP -----------------------------------------------------------------------------------------------------------


def test_silence_longer_than_the_window_is_a_stop() -> None:
    history = commits((10, 5), (20, 5), (30, 4))
    assert verdict(history, 9, now_ms=NOW_MS + 2 * MINUTE_MS) is Verdict.OK
    assert verdict(history, 9, now_ms=NOW_MS + 2 * MINUTE_MS + 1) is Verdict.STOP


def test_a_stop_is_told_though_there_was_no_lag_in_the_window() -> None:
    history = commits((10, 0), (20, 0), (30, 0))
    assert verdict(history, 9, now_ms=NOW_MS + 5 * MINUTE_MS) is Verdict.STOP


def test_who_was_up_to_date_a_moment_ago_has_not_stopped_yet() -> None:
    history = commits((10, 0), (20, 0), (30, 0))
    history.recent_end = 30
    assert verdict(history, 9, now_ms=NOW_MS + 500 * MINUTE_MS) is Verdict.OK
    history.recent_end = 31
    assert verdict(history, 9, now_ms=NOW_MS + 500 * MINUTE_MS) is Verdict.STOP


def test_a_single_old_commit_with_records_after_it_is_a_stop() -> None:
    assert verdict(commits((10, 5)), 9, now_ms=NOW_MS + 1) is Verdict.STOP


def test_no_commit_within_what_was_searched_is_a_stop() -> None:
    history = History()
    assert judge(history, 10, 5, NOW_MS).verdict is Verdict.OK
    history.silent_since_ms = NOW_MS - 60 * MINUTE_MS
    told = judge(history, 10, 5, NOW_MS)
    assert told == Judgement(Verdict.STOP, "no commit for 1h or longer; 5 records wait", 0.0)
    history.recent_end = 10
    assert judge(history, 10, 5, NOW_MS).verdict is Verdict.OK


# --- REWIND ---------------------------------------------------------------------------------------------------------


def test_a_commit_that_goes_back_is_a_rewind() -> None:
    history = commits((100, 5), (110, 5), (40, 85), (50, 80))
    told = judge(history, 50, 80, NOW_MS)
    assert told.verdict is Verdict.REWIND
    assert "from offset 110 to 40" in told.reason


def test_a_rewind_counts_though_there_was_no_lag_before_it() -> None:
    assert verdict(commits((100, 0), (110, 0), (0, 120)), 120) is Verdict.REWIND


def test_a_rewind_that_was_made_good_is_none() -> None:
    assert verdict(commits((100, 9), (110, 9), (105, 20), (110, 18)), 18) is Verdict.OK


def test_standing_still_is_no_step_back() -> None:
    assert verdict(commits((100, 5), (100, 6), (40, 85)), 85) is Verdict.REWIND
    assert verdict(commits((100, 5), (100, 6), (110, 4)), 4) is Verdict.OK


def test_only_the_first_step_back_is_looked_at() -> None:
    """As Burrow does: the first was made good, the second is not seen until the first leaves the window."""
    history = commits((100, 9), (90, 20), (110, 8), (105, 14))
    assert verdict(history, 14) is Verdict.OK


def reset_history(*later: tuple[int, int], since_ms: int = 5_000) -> History:
    """Commits up to offset 100, then a reset to 0 from outside, then `later` ones of members."""
    reset_ms = NOW_MS - since_ms
    before = [Observation(offset, reset_ms - 60_000 + offset, 0) for offset in (80, 90, 100)]
    reset = Observation(0, reset_ms, 100, is_from_outside=True)
    after = [Observation(offset, reset_ms + 1_000 * (n + 1), lag) for n, (offset, lag) in enumerate(later)]
    return History([*before, reset, *after])


def test_a_deliberate_reset_is_no_rewind() -> None:
    told = judge(reset_history(), 0, 100, NOW_MS)
    assert told.verdict is Verdict.OK
    assert told.reason == ("its offset was set back to 0 5s ago, and no consumer has committed since; 100 records wait")
    assert verdict(reset_history((10, 90), (20, 80)), 80) is Verdict.OK


def test_a_group_that_nobody_starts_after_a_reset_has_stopped() -> None:
    told = judge(reset_history(since_ms=RECENT_MS + 1), 0, 100, NOW_MS)
    assert told.verdict is Verdict.STOP
    assert "no consumer has committed since" in told.reason


def test_what_comes_after_a_reset_is_judged_by_itself() -> None:
    assert verdict(reset_history((10, 110), (20, 120), (30, 130)), 130) is Verdict.WARN
    assert verdict(reset_history((50, 50), (20, 80)), 80) is Verdict.REWIND


def test_a_consumer_outside_its_group_that_goes_back_and_on_is_a_rewind() -> None:
    history = reset_history()
    history.add(Observation(10, NOW_MS, 90, is_from_outside=True))
    assert verdict(history, 90) is Verdict.REWIND


def test_a_reset_is_seen_though_a_commit_was_made_the_moment_before() -> None:
    history = History([Observation(100, NOW_MS - 500, 0), Observation(0, NOW_MS - 100, is_from_outside=True)])
    history.set_lag(1, 0)
    # The log was at least as long as what had been committed.
    assert [(one.offset, one.lag) for one in history.observations] == [(100, 0), (0, 100)]
    assert verdict(history, 100) is Verdict.OK


def test_samples_tell_a_reset_by_a_group_without_members() -> None:
    offsets = [100, 0, 0, 0]
    seen = [Observation(o, NOW_MS - 3_000 + 1_000 * n, 100 - o, is_from_outside=True) for n, o in enumerate(offsets)]
    assert judge(History(seen, source=Source.SAMPLES), 0, 100, NOW_MS).verdict is Verdict.OK


def test_a_stop_is_told_before_a_rewind() -> None:
    assert verdict(commits((100, 5), (40, 85)), 90, now_ms=NOW_MS + 2 * MINUTE_MS) is Verdict.STOP


# --- was there a moment without lag? --------------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(4))
def test_one_moment_without_lag_makes_the_window_good(index: int) -> None:
    lags: list[int | None] = [5, 6, 7, 8]
    lags[index] = 0
    assert verdict(commits(*((10 * n, lag) for n, lag in enumerate(lags))), 9) is Verdict.OK


# --- STALL ----------------------------------------------------------------------------------------------------------


def test_commits_that_do_not_move_are_a_stall() -> None:
    history = commits((10, 5), (10, 6), (10, 7))
    told = judge(history, 10, 7, NOW_MS)
    assert told.verdict is Verdict.STALL
    assert told.reason == "it keeps committing offset 10; 7 records wait"


def test_a_stall_is_told_though_lag_does_not_grow() -> None:
    assert verdict(commits((10, 5), (10, 5)), 5) is Verdict.STALL


# --- WARN -----------------------------------------------------------------------------------------------------------


def test_lag_that_never_fell_is_a_warning() -> None:
    history = commits((10, 5), (20, 5), (30, 9))
    told = judge(history, 30, 9, NOW_MS)
    assert told.verdict is Verdict.WARN
    assert told.reason == "offsets advance, but lag did not fall in 3 commits; 9 records wait"


def test_lag_that_fell_once_is_ok() -> None:
    assert verdict(commits((10, 5), (20, 4), (30, 900)), 900) is Verdict.OK


def test_commits_whose_lag_is_not_known_are_passed_over() -> None:
    assert verdict(commits((10, 9), (20, None), (30, 8)), 8) is Verdict.OK
    assert verdict(commits((10, 8), (20, None), (30, 8)), 8) is Verdict.WARN
    assert verdict(commits((10, None), (20, None)), 8) is Verdict.WARN


# --- what the window must hold --------------------------------------------------------------------------------------


def test_a_window_that_is_not_filled_enough_is_ok() -> None:
    seen = [Observation(10, NOW_MS - MINUTE_MS, 5), Observation(10, NOW_MS, 5)]
    assert judge(History(seen, rules=Rules(minimum_complete=0.2)), 10, 5, NOW_MS).verdict is Verdict.STALL
    assert judge(History(seen, rules=Rules(minimum_complete=0.3)), 10, 5, NOW_MS).verdict is Verdict.OK


def test_the_window_slides() -> None:
    history = commits((1, 0), *((1 + n, 10 + n) for n in range(1, 10)))
    assert verdict(history, 20) is Verdict.OK
    history.add(Observation(12, NOW_MS + MINUTE_MS, 20))
    assert len(history.observations) == 10
    assert verdict(history, 20, now_ms=NOW_MS + MINUTE_MS) is Verdict.WARN


def test_fast_commits_count_as_one_and_keep_its_time() -> None:
    history = History([Observation(10, 0, 3), Observation(11, 400, 2), Observation(12, 999, 1)])
    assert history.observations == (Observation(12, 0, 1, 999),)
    history.add(Observation(13, 1_000, 0))
    assert [one.timestamp_ms for one in history.observations] == [0, 1_000]
    assert history.complete == pytest.approx(0.2)


def test_a_deleted_offset_empties_the_window() -> None:
    history = commits((10, 5), (5, 10))
    history.clear()
    assert history.observations == ()


def test_lag_that_is_found_out_later() -> None:
    history = History([Observation(10, 0), Observation(50, 5_000)])
    history.set_lag(0, 25)
    history.set_lag(1, 40)
    assert [one.lag for one in history.observations] == [15, 0]


def test_nothing_committed_and_unknown_ends_say_so() -> None:
    assert "nothing is committed" in judge(History(), None, None, NOW_MS).reason
    assert "end of the log" in judge(History(), 5, None, NOW_MS).reason


# --- samples --------------------------------------------------------------------------------------------------------


def samples(*pairs: tuple[int, int]) -> History:
    return History(
        [Observation(offset, NOW_MS + 10 * n, lag) for n, (offset, lag) in enumerate(pairs)],
        source=Source.SAMPLES,
        rules=Rules(intervals=len(pairs)),
    )


def test_samples_do_not_know_when_a_commit_was_made_so_the_owner_decides() -> None:
    history = samples((10, 5), (10, 6), (10, 7))
    assert judge(history, 10, 7, NOW_MS + 10_000, owned=True).verdict is Verdict.STALL
    assert judge(history, 10, 7, NOW_MS + 10_000, owned=False).verdict is Verdict.STOP


def test_samples_that_move_are_judged_like_commits() -> None:
    assert judge(samples((10, 5), (20, 6)), 20, 6, NOW_MS).verdict is Verdict.WARN
    assert judge(samples((10, 5), (20, 4)), 20, 4, NOW_MS).verdict is Verdict.OK
    assert judge(samples((10, 5), (2, 14)), 2, 14, NOW_MS).verdict is Verdict.REWIND
    assert judge(samples((10, 5)), 10, 5, NOW_MS).verdict is Verdict.OK


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "whole"),
    [
        ([], GroupVerdict.OK),
        ([Verdict.OK, Verdict.OK], GroupVerdict.OK),
        ([Verdict.OK, Verdict.WARN], GroupVerdict.WARN),
        ([Verdict.WARN, Verdict.STOP], GroupVerdict.ERR),
        ([Verdict.STALL], GroupVerdict.ERR),
        ([Verdict.REWIND, Verdict.OK], GroupVerdict.ERR),
    ],
)
def test_a_group_is_as_bad_as_its_worst_partition(partitions: list[Verdict], whole: GroupVerdict) -> None:
    assert group_verdict(partitions) is whole


# --- properties -----------------------------------------------------------------------------------------------------

observations = st.lists(
    st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 5_000)), min_size=1
)


@given(observations, st.integers(0, 50), st.integers(0, 100_000))
def test_every_history_has_a_verdict_and_a_reason(
    seen: list[tuple[int, int | None, int]], lag: int, wait_ms: int
) -> None:
    history, now_ms = History(), 0
    for offset, known_lag, gap_ms in seen:
        now_ms += gap_ms
        history.add(Observation(offset, now_ms, known_lag))
        assert len(history.observations) <= history.rules.intervals
    times = [one.timestamp_ms for one in history.observations]
    assert times == sorted(times)
    told = judge(history, seen[-1][0], lag, now_ms + wait_ms)
    assert told.reason
    assert 0 < told.complete <= 1
    if lag == 0:
        assert told.verdict is Verdict.OK
    if any(one.lag == 0 for one in history.observations):
        assert told.verdict in (Verdict.OK, Verdict.STOP, Verdict.REWIND)


@given(st.lists(st.integers(1, 100), min_size=2, max_size=10), st.integers(0, 1_000))
def test_a_consumer_that_only_goes_forward_never_rewinds_or_stalls(steps: list[int], lag: int) -> None:
    offsets = [sum(steps[: n + 1]) for n in range(len(steps))]
    assert verdict(commits(*((offset, lag) for offset in offsets)), lag) in (Verdict.OK, Verdict.WARN)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0ms"), (0, "0ms"), (999, "999ms"), (1_000, "1s"), (59_999, "59s"), (60_000, "1m"), (200_000, "3m 20s"),
        (3_600_000, "1h"), (3_605_000, "1h"), (3_660_000, "1h 1m"), (187_200_000, "2d 4h"), (86_400_000, "1d"),
    ],
)  # fmt: skip
def test_spans_of_time_in_words(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text

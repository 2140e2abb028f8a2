"""Burrow's rules, which judge a consumer by its last commits, without thresholds.

They are checked in this order, for a partition whose lag is now more than `allowed_lag` (one that is up to date is OK
whatever happened before):

1. STOP, if the last commit is longer ago than the time from the first to the last commit of the window; unless the
   consumer had read everything a short while ago (its last commit is at or past the end of the log then): it may only
   be waiting for the first records after a pause. This comes first, because the window of a consumer that is gone
   may be old and contain only good times.
2. REWIND, if a commit went back behind its predecessor (the first that did), and no later one reached that again.
   It comes before rule 3, because a consumer that falls back to the beginning usually had no lag just before.
3. OK, if lag was zero (at most `allowed_lag`) at any commit of the window.
4. STALL, if all commits of the window have the same offset.
5. WARN, if lag never fell from one commit to the next. Commits with unknown lag are skipped.
6. OK.

A deliberate reset of offsets is not a REWIND: it is a step back that was committed from outside the group, and after
which only members of the group committed (`reset_in`). Earlier commits no longer count. Until a member commits, the
partition is OK for `RECENT_MS`, and then a STOP.

A window that is filled less than `minimum_complete`, or empty, is OK: there is too little data for a verdict. One
exception: if there was certainly no commit for some time, the committed offset is older than that time; if it is also
behind the end of the log a while ago, the consumer has stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

import msgspec

from penstock.lag.history import RECENT_MS, History, Observation, Source


class Verdict(IntEnum):
    """The verdict on a partition; a higher one is worse. Numbers as in Burrow."""

    OK = 1
    WARN = 2
    STOP = 4
    STALL = 5
    REWIND = 6


class GroupVerdict(IntEnum):
    """The verdict on a whole group: ERR if any partition has STOP, STALL or REWIND. Numbers as in Burrow."""

    OK = 1
    WARN = 2
    ERR = 3


class Judgement(msgspec.Struct, frozen=True):
    verdict: Verdict
    reason: str
    """The verdict in words, with its figures."""
    complete: float
    """The filled share of the window it is based on, 0 to 1."""


def judge(
    history: History, committed: int | None, lag_now: int | None, now_ms: int, *, owned: bool = True
) -> Judgement:
    """The verdict on one partition. `owned`: whether a group member owns it, used with samples."""
    verdict, reason = _judge(history, committed, lag_now, now_ms, owned)
    return Judgement(verdict, reason, history.complete)


def group_verdict(verdicts: Sequence[Verdict]) -> GroupVerdict:
    """The verdict of the worst partition."""
    worst = max(verdicts, default=Verdict.OK)
    return GroupVerdict(min(worst, GroupVerdict.ERR))


def _judge(
    history: History, committed: int | None, lag_now: int | None, now_ms: int, owned: bool
) -> tuple[Verdict, str]:
    rules = history.rules
    window = history.observations
    if committed is None:
        return Verdict.OK, "nothing is committed yet, so there is no verdict"
    if lag_now is None:
        return Verdict.OK, "the end of the log is not known, so there is no verdict"
    if lag_now <= rules.allowed_lag:
        return Verdict.OK, "up to date" if lag_now == 0 else f"{_waiting(lag_now)}, within allowed_lag"
    if history.complete < rules.minimum_complete:
        return Verdict.OK, f"only {len(window)} of {rules.intervals} commits were seen, so there is no verdict"
    if not window:
        return _judge_silence(history, committed, lag_now, now_ms)
    if (reset := reset_in(window)) is not None:
        window = window[reset:]
        if all(one.is_from_outside for one in window):
            return _judge_reset(window[0], lag_now, now_ms)
    by_samples = history.source is Source.SAMPLES
    # The whole window shows how often the group commits; a reset does not change that.
    seen = history.observations
    if not by_samples and has_stopped(seen, now_ms) and not _was_recently_up_to_date(history, seen[-1].offset):
        return Verdict.STOP, f"{_silence(seen, now_ms)}; {_waiting(lag_now)}"
    if rewound := unrecovered_rewind(window):
        before, after = rewound
        moved = f"it went back from offset {before:,} to {after:,} and has not caught up since"
        return Verdict.REWIND, f"{moved}; {_waiting(lag_now)}"
    if was_up_to_date(window, rules.allowed_lag):
        return Verdict.OK, f"it was up to date within the window; {_waiting(lag_now)} now"
    if by_samples and len(window) < 2:
        return Verdict.OK, "one sample is not enough for a verdict"
    if has_stalled(window):
        if by_samples and not owned:
            return Verdict.STOP, f"no member owns it, and its offset stays at {committed:,}; {_waiting(lag_now)}"
        if by_samples:
            return Verdict.STALL, f"its offset stays at {committed:,} over {len(window)} samples; {_waiting(lag_now)}"
        return Verdict.STALL, f"it keeps committing offset {committed:,}; {_waiting(lag_now)}"
    if never_fell(window):
        return Verdict.WARN, f"offsets advance, but lag did not fall in {len(window)} commits; {_waiting(lag_now)}"
    return Verdict.OK, f"it is catching up; {_waiting(lag_now)}"


def _judge_reset(reset: Observation, lag_now: int, now_ms: int) -> tuple[Verdict, str]:
    """No member has committed since the offsets were reset."""
    silent_ms = now_ms - reset.timestamp_ms
    when = f"its offset was set back to {reset.offset:,} {duration_text(silent_ms)} ago"
    verdict = Verdict.OK if silent_ms <= RECENT_MS else Verdict.STOP
    return verdict, f"{when}, and no consumer has committed since; {_waiting(lag_now)}"


def _judge_silence(history: History, committed: int, lag_now: int, now_ms: int) -> tuple[Verdict, str]:
    since_ms = history.silent_since_ms
    if since_ms is None or history.source is Source.SAMPLES:
        return Verdict.OK, "no commit was seen, so there is no verdict"
    if _was_recently_up_to_date(history, committed):
        return Verdict.OK, f"it was up to date a short while ago; {_waiting(lag_now)} now"
    return Verdict.STOP, f"no commit for {duration_text(now_ms - since_ms)} or longer; {_waiting(lag_now)}"


def has_stopped(window: Sequence[Observation], now_ms: int) -> bool:
    """Rule 1: no commit for longer than the window spans."""
    first_ms, last_ms = window[0].timestamp_ms, window[-1].timestamp_ms
    return now_ms - last_ms > last_ms - first_ms


def unrecovered_rewind(window: Sequence[Observation]) -> tuple[int, int] | None:
    """Rule 2: the offsets before and after the first step back, unless a later commit reached the former again."""
    for index, (before, after) in enumerate(pairwise(window)):
        if after.offset < before.offset:
            if any(later.offset >= before.offset for later in window[index + 1 :]):
                return None
            return before.offset, after.offset
    return None


def reset_in(window: Sequence[Observation]) -> int | None:
    """The index of the last deliberate reset of offsets in a window; None if there is none.

    A reset by a consumer outside its group that commits again afterwards does not count: it may be a mistake.
    """
    for index in range(len(window) - 1, 0, -1):
        moved = window[index].offset - window[index - 1].offset
        if window[index].is_from_outside and moved != 0:
            return index if moved < 0 else None
    return None


def was_up_to_date(window: Sequence[Observation], allowed_lag: int) -> bool:
    """Rule 3: nothing was unread at some commit."""
    return any(one.lag is not None and one.lag <= allowed_lag for one in window)


def has_stalled(window: Sequence[Observation]) -> bool:
    """Rule 4: every commit has the same offset."""
    return all(one.offset == window[0].offset for one in window)


def never_fell(window: Sequence[Observation]) -> bool:
    """Rule 5: lag was never smaller than at the previous commit."""
    lags = [one.lag for one in window if one.lag is not None]
    return all(later >= earlier for earlier, later in pairwise(lags))


def duration_text(milliseconds: int) -> str:
    """A duration as text, in its two largest units: `3m 20s`, `2d 4h`."""
    seconds = max(0, milliseconds) // 1000
    if seconds == 0:
        return f"{max(0, milliseconds)}ms"
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def _was_recently_up_to_date(history: History, offset: int) -> bool:
    return history.recent_end is not None and history.recent_end <= offset


def _silence(window: Sequence[Observation], now_ms: int) -> str:
    silent = duration_text(now_ms - window[-1].timestamp_ms)
    if len(window) == 1:
        return f"no commit for {silent}, after a single one"
    span = duration_text(window[-1].timestamp_ms - window[0].timestamp_ms)
    return f"no commit for {silent}, after {len(window)} within {span}"


def _waiting(lag: int) -> str:
    return f"{lag:,} {'record waits' if lag == 1 else 'records wait'}"

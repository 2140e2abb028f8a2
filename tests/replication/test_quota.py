"""Rates over sliding windows: what holds copying up, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.replication import ReplicationQuota
from penstock.replication.quota import UNLIMITED

KB = 1000


def test_without_a_limit_nothing_is_ever_too_much() -> None:
    quota = ReplicationQuota()
    quota.record(UNLIMITED, 0)
    assert not quota.is_exceeded(0)
    assert quota.pause_ms(0) == 0


def test_the_rate_is_what_the_windows_hold_by_the_time_they_span() -> None:
    quota = ReplicationQuota(100 * KB)
    assert quota.rate(0) == 0
    quota.record(100 * KB, 0)
    # At least one whole window, or the first bytes would make any rate.
    assert quota.rate(0) == quota.rate(1000) == 100 * KB
    assert quota.rate(4000) == 25 * KB
    quota.record(300 * KB, 4000)
    assert quota.rate(4000) == 100 * KB
    assert not quota.is_exceeded(4000)
    quota.record(1, 4000)
    assert quota.is_exceeded(4000)
    assert quota.rate(10_999) > 0
    # The first window is forgotten after eleven seconds, the rest after fifteen.
    assert quota.rate(11_000) == 300_001 * 1000 / 7000
    assert quota.rate(15_000) == 0


def test_a_burst_is_paid_for_afterwards() -> None:
    quota = ReplicationQuota(1_000 * KB)
    quota.record(10_000 * KB, 0)
    assert quota.pause_ms(0) == 10_000
    assert quota.pause_ms(9_000) == 1_000
    assert quota.pause_ms(10_000) == 0
    # More than the windows can hold is forgiven with them, as in Kafka.
    quota = ReplicationQuota(1_000 * KB)
    quota.record(50_000 * KB, 0)
    assert quota.pause_ms(0) == 11_000


def test_a_limit_that_changes_counts_at_once() -> None:
    quota = ReplicationQuota(KB)
    quota.record(5 * KB, 0)
    assert quota.is_exceeded(0)
    quota.limit_bytes = 5 * KB
    assert not quota.is_exceeded(0)
    quota.limit_bytes = 0
    assert quota.pause_ms(0) == 11_000


@given(
    limit=st.integers(0, 10_000),
    copied=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 50_000)), max_size=20),
)
def test_after_the_pause_and_not_before_copying_may_go_on(limit: int, copied: list[tuple[int, int]]) -> None:
    quota = ReplicationQuota(limit)
    now_ms = 0.0
    for elapsed_ms, size_bytes in copied:
        now_ms += elapsed_ms
        quota.record(size_bytes, now_ms)
    pause_ms = quota.pause_ms(now_ms)
    assert (pause_ms > 0) == quota.is_exceeded(now_ms)
    assert pause_ms <= 11_000
    if pause_ms > 1:
        assert quota.is_exceeded(now_ms + pause_ms - 1)
    assert not quota.is_exceeded(now_ms + pause_ms + 0.001)


@given(sizes=st.lists(st.integers(1, 30_000), min_size=30, max_size=60))
def test_who_waits_each_time_keeps_to_the_limit_over_any_span_but_for_one_burst(sizes: list[int]) -> None:
    limit = 10_000
    quota = ReplicationQuota(limit)
    now_ms = 0.0
    moments: list[tuple[float, int]] = []
    for size_bytes in sizes:
        now_ms += quota.pause_ms(now_ms) + 0.001
        quota.record(size_bytes, now_ms)
        moments.append((now_ms, size_bytes))
    total = sum(size_bytes for _, size_bytes in moments[:-1])
    # What is counted at the start of the eleven windows may come early once.
    assert total <= limit * (now_ms / 1000 + 11) + max(sizes)

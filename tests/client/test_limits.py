"""The pure arithmetic of a producer: its buffer, its rate, its quota."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.buffer import PAUSE_MAX_MS, BufferAccount
from penstock.client.quota import HIGH, WINDOW_S, QuotaKeeper
from penstock.client.rate_limit import RateLimit, RateLimiter, TokenBucket


@given(st.lists(st.integers(0, 5000), max_size=50), st.randoms(use_true_random=False))
def test_what_is_taken_and_released_leaves_nothing(sizes: list[int], random: object) -> None:
    account = BufferAccount(10_000)
    for size in sizes:
        account.take(size)
    assert account.used_bytes == sum(sizes)
    assert account.available_bytes == max(0, 10_000 - sum(sizes))
    random.shuffle(sizes)  # type: ignore[attr-defined]
    for size in sizes:
        account.release(size)
    assert account.used_bytes == 0
    assert account.total_bytes == sum(sizes)


def test_sending_slows_down_from_eighty_percent_on() -> None:
    account = BufferAccount(1000)
    account.take(799)
    assert account.pause_ms() == 0
    account.take(1)
    at_the_mark = account.pause_ms()
    account.take(100)
    half_way = account.pause_ms()
    account.take(100)
    assert at_the_mark == 0
    assert half_way == pytest.approx(PAUSE_MAX_MS / 2)
    assert account.pause_ms() == PAUSE_MAX_MS


def test_short_pauses_are_put_off_until_they_are_worth_it() -> None:
    account = BufferAccount(1000)
    account.take(801)
    assert account.pause_ms() == pytest.approx(0.5)
    assert [account.next_pause_ms() for _ in range(8)] == pytest.approx([0, 0, 0, 2, 0, 0, 0, 2])


def test_a_record_that_was_not_sent_counts_for_nothing() -> None:
    account = BufferAccount(1000)
    account.take(100)
    account.put_back(100)
    assert (account.used_bytes, account.total_bytes, account.total_records) == (0, 0, 0)


@given(
    st.floats(1, 1e6),
    st.lists(st.tuples(st.floats(0, 0.5), st.floats(1, 1000)), min_size=1, max_size=80),
)
def test_a_bucket_never_lets_more_through_than_rate_and_burst(rate: float, takes: list[tuple[float, float]]) -> None:
    bucket = TokenBucket(rate, 0.0)
    now_s = sent_until_s = amount = 0.0
    for gap_s, wanted in takes:
        now_s = max(now_s + gap_s, sent_until_s)
        sent_until_s = now_s + bucket.take(wanted, now_s)
        amount += wanted
        assert amount <= bucket.burst + rate * sent_until_s + 1e-6 * amount


def test_a_bucket_that_is_asked_for_less_than_its_rate_never_waits() -> None:
    bucket = TokenBucket(100, 0.0)
    assert [bucket.take(1, number * 0.01) for number in range(500)] == [0.0] * 500


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    bucket = TokenBucket(10, 100.0, burst=10)
    assert bucket.take(10, 100.0) == 0
    assert bucket.take(1, 50.0) == pytest.approx(0.1)
    assert bucket.take(1, 100.0) == pytest.approx(0.2)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        TokenBucket(0, 0.0)


def test_the_stricter_of_two_limits_decides() -> None:
    limiter = RateLimiter(RateLimit(records_per_s=10, bytes_per_s=1_000_000), 0.0)
    assert limiter.take(1, 0.0) == 0
    assert limiter.take(1, 0.0) == pytest.approx(0.1)
    limiter = RateLimiter(RateLimit(records_per_s=1_000_000, bytes_per_s=1000), 0.0)
    assert limiter.take(100, 0.0) == 0
    assert limiter.take(500, 0.0) == pytest.approx(0.5)


def rate_of(keeper: QuotaKeeper, seconds: float, from_s: float, sent: int, record: int = 1000) -> tuple[float, int]:
    """How fast somebody sends who sends whenever the keeper lets it; and all that was sent."""
    now_s, before = from_s, sent
    while now_s < from_s + seconds:
        now_s += keeper.take(record, now_s) + 1e-4
        sent += record
        keeper.sample(sent, now_s)
    return (sent - before) / seconds, sent


def test_a_quota_that_is_known_is_used_to_ninety_percent() -> None:
    keeper = QuotaKeeper(0.0, quota_bytes_per_s=1_000_000)
    rate, _ = rate_of(keeper, 60, 0.0, 0)
    assert rate == pytest.approx(1_000_000 * HIGH, rel=0.03)


def test_below_ninety_percent_of_the_quota_nothing_waits() -> None:
    keeper = QuotaKeeper(0.0, quota_bytes_per_s=1_000_000)
    assert all(keeper.take(800, number * 0.001) == 0 for number in range(1, 20_000))


def test_without_a_quota_nothing_waits() -> None:
    keeper = QuotaKeeper(0.0)
    assert not keeper.active
    assert all(keeper.take(10**9, number * 0.001) == 0 for number in range(100))


def test_the_first_objection_of_the_broker_tells_the_quota() -> None:
    """Kafka delays an answer by (rate - quota) / quota * window: at twice the quota, by the window."""
    keeper = QuotaKeeper(0.0)
    for second in range(1, 20):
        keeper.sample(2_000_000 * second, float(second))
    keeper.throttled(WINDOW_S, 2_000_000 * 19, 19.0)
    assert keeper.quota_bytes_per_s == pytest.approx(1_000_000, rel=0.01)
    rate, _ = rate_of(keeper, 9, 19.0, 2_000_000 * 19)
    assert rate == pytest.approx(1_000_000 * HIGH, rel=0.15)


def test_a_burst_of_objections_does_not_bring_the_rate_to_nothing() -> None:
    keeper = QuotaKeeper(0.0)
    for second in range(1, 12):
        keeper.sample(2_000_000 * second, float(second))
    keeper.throttled(WINDOW_S, 22_000_000, 11.0)
    keeper.throttled(WINDOW_S, 22_000_000, 11.1)
    assert keeper.quota_bytes_per_s is not None
    assert keeper.quota_bytes_per_s >= 0.75 * 1_000_000


def test_an_estimate_rises_slowly_and_is_forgotten_in_the_end() -> None:
    keeper = QuotaKeeper(0.0)
    keeper.sample(1_000_000, 1.0)
    keeper.throttled(1.0, 1_000_000, 1.0)
    first = keeper.quota_bytes_per_s
    assert first is not None
    keeper.sample(1_000_000, 12.0)
    assert keeper.quota_bytes_per_s == pytest.approx(first * 1.05)
    for second in range(13, 1000):
        keeper.sample(1_000_000, float(second))
    assert not keeper.active


def test_a_quota_that_was_given_is_kept_whatever_the_broker_says() -> None:
    keeper = QuotaKeeper(0.0, quota_bytes_per_s=5000)
    keeper.throttled(3.0, 10**9, 5.0)
    for second in range(1, 1000):
        keeper.sample(10**9, float(second))
    assert keeper.quota_bytes_per_s == 5000

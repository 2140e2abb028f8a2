"""The exact output of Kafka's performance tools (Apache Kafka 4.3), which scripts parse.

    kafka-producer-perf-test   one line per interval, one for the whole, and one without the warm-up if there was one
    kafka-consumer-perf-test   a head, and one line for the whole or, with --show-detailed-stats, one per interval
    kafka-e2e-latency          the first and every thousandth latency, the mean, three percentiles

One deliberate difference: Kafka's producer tool keeps at most 500,000 samples in whole milliseconds, while these
percentiles cover all records. They are still printed in whole milliseconds; `--json` has the fractions.
"""

from __future__ import annotations

from penstock.perf.histogram import Histogram

__all__ = [
    "consumer_head",
    "consumer_progress",
    "consumer_total",
    "latency_results",
    "producer_total",
    "producer_window",
]

MEBIBYTE = 1024 * 1024
PERCENTS = (50, 95, 99, 99.9)
LATENCY_PERCENTS = (50, 99, 99.9)

EXTENDED_HEAD = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"


def _rate(amount: float, elapsed_s: float) -> float:
    return amount / elapsed_s if elapsed_s > 0 else 0.0


def producer_window(latencies: Histogram, size_bytes: int, elapsed_s: float) -> str:
    return (
        f"{latencies.count} records sent, {_rate(latencies.count, elapsed_s):.1f} records/sec "
        f"({_rate(size_bytes, elapsed_s) / MEBIBYTE:.2f} MB/sec), {latencies.mean_us / 1000:.1f} ms avg latency, "
        f"{latencies.max_us / 1000:.1f} ms max latency."
    )


def producer_total(latencies: Histogram, size_bytes: int, elapsed_s: float, *, steady: bool = False) -> str:
    p50, p95, p99, p999 = (_whole_ms(value) for value in latencies.percentiles_us(PERCENTS))
    return (
        f"{latencies.count}{' steady state' if steady else ''} records sent, "
        f"{_rate(latencies.count, elapsed_s):f} records/sec ({_rate(size_bytes, elapsed_s) / MEBIBYTE:.2f} MB/sec), "
        f"{latencies.mean_us / 1000:.2f} ms avg latency, {latencies.max_us / 1000:.2f} ms max latency, "
        f"{p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
    )


def consumer_head(*, detailed: bool) -> str:
    times = "time, threadId" if detailed else "start.time, end.time"
    return f"{times}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{EXTENDED_HEAD}"


def consumer_total(start: str, end: str, records: int, size_bytes: int, elapsed_ms: int, rebalance_ms: int) -> str:
    megabytes = size_bytes / MEBIBYTE
    elapsed_s = elapsed_ms / 1000
    fetch_ms = elapsed_ms - rebalance_ms
    return (
        f"{start}, {end}, {megabytes:.4f}, {_rate(megabytes, elapsed_s):.4f}, {records}, "
        f"{_rate(records, elapsed_s):.4f}, {rebalance_ms}, {fetch_ms}, {_rate(megabytes, fetch_ms / 1000):.4f}, "
        f"{_rate(records, fetch_ms / 1000):.4f}"
    )


def consumer_progress(
    time: str, total: tuple[int, int], window: tuple[int, int], elapsed_ms: int, rebalance_ms: int
) -> str:
    """`total` and `window` are (records, bytes), of the whole run so far and of the interval."""
    records, size_bytes = total
    window_records, window_bytes = window
    megabytes = window_bytes / MEBIBYTE
    fetch_ms = elapsed_ms - rebalance_ms
    return (
        f"{time}, 0, {size_bytes / MEBIBYTE:.4f}, {_rate(megabytes, elapsed_ms / 1000):.4f}, {records}, "
        f"{_rate(window_records, elapsed_ms / 1000):.4f}, {rebalance_ms}, {fetch_ms}, "
        f"{_rate(megabytes, fetch_ms / 1000):.4f}, {_rate(window_records, fetch_ms / 1000):.4f}"
    )


def latency_results(latencies: Histogram) -> list[str]:
    p50, p99, p999 = (value // 1000 for value in latencies.percentiles_us(LATENCY_PERCENTS))
    return [
        f"Avg latency: {latencies.mean_us / 1000:.4f} ms",
        f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}",
    ]


def _whole_ms(value_us: int) -> int:
    return round(value_us / 1000)

"""The trade-offs of the documents: 003's four tables, what each level of acks costs, and where documents disagree."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.planning.catalogue import Rule, units

TRADE_OFFS_RULE: Final = Rule(
    name="trade-offs",
    source="003, Trade-offs and Design Decisions",
    formula="four tables: throughput or latency, availability or consistency, storage or performance, "
    "ordering or parallelism",
    text="Each preset takes a side in each of them; see `penstock plan preset`.",
    slip="max.in.flight.requests=1 is needed for order only without idempotence: an idempotent producer keeps order "
    "with 5.",
)
LATENCY: Final = Rule(
    name="latency-budget",
    source="001, End-to-End Latency Breakdown; 003, Latency Characteristics",
    formula="2 ms to the broker + 3 ms to the replicas + 2 ms to the consumer = 7 ms p50, 20 ms p99; "
    "acks=0 1–2 ms, acks=1 5–10 ms, acks=all 10–20 ms p99",
    text="`penstock perf latency` measures a cluster against these.",
    inputs=units(p50_ms="ms", p99_ms="ms"),
    slip="001 asks for less than 10 ms p99 in real-time analytics and gives 20 ms p99 end to end. 000's producer "
    "latency "
    "below 5 ms p99 is less than 003's 5 to 10 ms for acks=1.",
)


class TradeOff(NamedTuple):
    between: str
    priority: str
    settings: str


TRADE_OFFS: Final = (
    TradeOff("throughput or latency", "throughput", "large batches, compression, asynchronous sends"),
    TradeOff("throughput or latency", "latency", "small batches, no compression, synchronous sends"),
    TradeOff("availability or consistency", "availability", "unclean.leader.election.enable=true, acks=1"),
    TradeOff(
        "availability or consistency",
        "consistency",
        "unclean.leader.election.enable=false, acks=all, min.insync.replicas=2",
    ),
    TradeOff("storage or performance", "storage", "compression, log compaction, short retention"),
    TradeOff("storage or performance", "performance", "no compression, longer segments, more memory"),
    TradeOff("ordering or parallelism", "ordering", "one partition, max.in.flight.requests=1"),
    TradeOff("ordering or parallelism", "parallelism", "many partitions, max.in.flight.requests=5"),
)


class Conflict(NamedTuple):
    """Two documents that disagree. The planner shows both."""

    subject: str
    one: str
    other: str


CONFLICTS: Final = (
    Conflict("throughput of one partition", "10 MB/s (002, 003)", "50 MB/s (003), 100 MB/s (000, 004)"),
    Conflict("latency of real-time use, p99", "below 10 ms (001, by use case)", "20 ms (001, end to end)"),
    Conflict("producer latency, p99", "below 5 ms (000)", "5–10 ms with acks=1 (003)"),
    Conflict("size of a batch", "10,000 messages, 10 MB (001)", "16–64 KB (000)"),
    Conflict("JVM heap", "13 % of the memory (001)", "50–70 % (002)"),
    Conflict("resynchronising a replica of 20 TB", "5 minutes (001)", "4.4 h at 10 Gbps (computed)"),
    Conflict("replicas per broker", "30,000 (001: 3 M on 100 brokers)", "2,000, emergency at 2,500 (002)"),
    Conflict("connections per broker", "6,000 (001: 600,000 on 100)", "1,000 (003)"),
    Conflict("partitions at 100 MB/s", "12 (002's formula)", "24 (002's table), 20–30 (003), 5 (000)"),
    Conflict("what acks=all waits for", "all replicas (001, replication)", "a quorum of 2 in 3 (001, consistency)"),
)

"""Presets (L11): settings of topics, producers and consumers for a purpose, each with its reason.

The four of document 003 say how much may be lost or waited for; the three of document 000 say what kind of data it is.
Settings have Java's names, as in the documents. `penstock topics create --preset` applies those of the topic, and
`penstock plan preset` prints those of the clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NamedTuple

from penstock.planning.catalogue import PlanError, Rule

PRESETS_RULE: Final = Rule(
    name="presets",
    source="003, Example Configurations; 000, Producer Optimization; 000, Consumer Optimization",
    formula="a table: purpose → settings of the topic, the producer and the consumer",
    text="`penstock topics create --preset NAME` and `penstock plan preset NAME`. Each setting has its reason.",
    slip="003's balanced configuration sets min.insync.replicas=2 with acks=1, where it has no effect: only acks=all "
    "asks for "
    "it. It is kept, because another producer may use acks=all. 004 sets retries=0 for throughput: that loses records "
    "whenever a leader moves, and gains nothing otherwise, so it is not taken.",
)


class Setting(NamedTuple):
    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    name: str
    purpose: str
    source: str
    replication_factor: int
    topic: tuple[Setting, ...]
    producer: tuple[Setting, ...]
    consumer: tuple[Setting, ...]
    sides: tuple[tuple[str, str], ...]
    """The side that it takes in each of 003's trade-offs; see `tradeoffs.TRADE_OFFS`."""

    @property
    def topic_settings(self) -> dict[str, str]:
        return {setting.name: setting.value for setting in self.topic}


_TWO_IN_SYNC: Final = Setting(
    "min.insync.replicas", "2", "with acks=all, a record is in two copies before it is acknowledged"
)
_ONE_IN_SYNC: Final = Setting("min.insync.replicas", "1", "writes go on while one copy is left")
_CLEAN: Final = Setting(
    "unclean.leader.election.enable", "false", "a replica that lacks records never leads: unavailable rather than lossy"
)
_UNCLEAN: Final = Setting(
    "unclean.leader.election.enable", "true", "any replica may lead: available, and records may be lost"
)
_ACKS_ALL: Final = Setting("acks", "all", "waits for all in-sync replicas: 10–20 ms at p99 (003)")
_ACKS_ONE: Final = Setting(
    "acks", "1", "waits for the leader: 5–10 ms at p99 (003); a leader that fails loses its newest records"
)
_IDEMPOTENT: Final = Setting("enable.idempotence", "true", "a retry stores a record once, and in order")
_NOT_IDEMPOTENT: Final = Setting("enable.idempotence", "false", "idempotence needs acks=all")
_IN_FLIGHT: Final = Setting(
    "max.in.flight.requests.per.connection", "5", "parallel requests; an idempotent producer keeps their order"
)
_LINGER: Final = Setting("linger.ms", "10", "waits for more records: 10 to 100 × the throughput of single ones (004)")
_BATCH: Final = Setting("batch.size", "16384", "16 KB, the documents' usual batch")
_LARGE_BATCH: Final = Setting("batch.size", "65536", "64 KB, the upper end of 000's best range")
_BUFFER: Final = Setting("buffer.memory", "33554432", "32 MB of records may wait to be sent")
_FETCH_MORE: Final = Setting("fetch.min.bytes", "1024", "a fetch waits for 1 KB, so that answers are fuller")
_FETCH_WAIT: Final = Setting("fetch.max.wait.ms", "500", "but not longer than this")
_POLL: Final = Setting("max.poll.records", "500", "records of one poll, to work on together")
_COMMIT_AFTER: Final = Setting(
    "enable.auto.commit", "false", "commit after the work: a crash repeats records and skips none"
)
_COMMITTED: Final = Setting("isolation.level", "read_committed", "records of aborted transactions are not seen")

_LATENCY_SIDE: Final = "throughput or latency"
_CONSISTENCY_SIDE: Final = "availability or consistency"
_STORAGE_SIDE: Final = "storage or performance"
_ORDER_SIDE: Final = "ordering or parallelism"


def _retention(days: int) -> Setting:
    return Setting("retention.ms", str(days * 86_400_000), f"{days} {'day' if days == 1 else 'days'} (000)")


def _codec(name: str, why: str) -> Setting:
    return Setting("compression.type", name, why)


PRESETS: Final = (
    Preset(
        name="maximum-durability",
        purpose="Nothing that was acknowledged may be lost: payments, orders.",
        source="003, Example Configurations",
        replication_factor=3,
        topic=(_TWO_IN_SYNC, _CLEAN),
        producer=(_ACKS_ALL, _IDEMPOTENT, _IN_FLIGHT),
        consumer=(_COMMIT_AFTER, _COMMITTED),
        sides=((_CONSISTENCY_SIDE, "consistency"), (_ORDER_SIDE, "parallelism")),
    ),
    Preset(
        name="balanced",
        purpose="Most applications: a lost leader may cost its newest records, everything else is kept.",
        source="003, Example Configurations",
        replication_factor=3,
        topic=(_TWO_IN_SYNC, _CLEAN),
        producer=(
            _ACKS_ONE,
            _NOT_IDEMPOTENT,
            _LINGER,
            _BATCH,
            _codec("snappy", "2 : 1 at little CPU (000); recommended for most cases (004)"),
        ),
        consumer=(_FETCH_WAIT, _POLL),
        sides=((_CONSISTENCY_SIDE, "consistency"), (_LATENCY_SIDE, "throughput")),
    ),
    Preset(
        name="high-throughput",
        purpose="As many bytes as possible, and some may be lost: bulk data that can be had again.",
        source="003, Example Configurations; 000, Producer Optimization",
        replication_factor=2,
        topic=(_ONE_IN_SYNC, _UNCLEAN),
        producer=(
            _ACKS_ONE,
            _NOT_IDEMPOTENT,
            _LINGER,
            _LARGE_BATCH,
            _BUFFER,
            _codec("lz4", "2 : 1, the fastest (000)"),
        ),
        consumer=(_FETCH_MORE, _FETCH_WAIT, _POLL),
        sides=((_CONSISTENCY_SIDE, "availability"), (_LATENCY_SIDE, "throughput"), (_ORDER_SIDE, "parallelism")),
    ),
    Preset(
        name="low-latency",
        purpose="Each record as soon as possible: real-time reactions.",
        source="003, Trade-offs and Design Decisions; 000, Consumer Optimization",
        replication_factor=3,
        topic=(_TWO_IN_SYNC, _CLEAN),
        producer=(
            _ACKS_ONE,
            _NOT_IDEMPOTENT,
            Setting("linger.ms", "0", "a record is sent at once"),
            _BATCH,
            _codec("none", "compressing takes time"),
        ),
        consumer=(
            Setting("fetch.min.bytes", "1", "a fetch is answered as soon as there is anything"),
            Setting("fetch.max.wait.ms", "100", "an empty fetch returns soon"),
        ),
        sides=((_LATENCY_SIDE, "latency"), (_STORAGE_SIDE, "performance")),
    ),
    Preset(
        name="logs",
        purpose="Log lines: many, compressible, soon old, and a few may be lost.",
        source="000, Producer Optimization; 000, Storage Optimization; 003, Example Configurations",
        replication_factor=2,
        topic=(_ONE_IN_SYNC, _UNCLEAN, _retention(1)),
        producer=(
            _ACKS_ONE,
            _NOT_IDEMPOTENT,
            _LINGER,
            _LARGE_BATCH,
            _codec("gzip", "3 : 1, the best for text (000)"),
        ),
        consumer=(_FETCH_MORE, _FETCH_WAIT, _POLL),
        sides=((_CONSISTENCY_SIDE, "availability"), (_STORAGE_SIDE, "storage"), (_LATENCY_SIDE, "throughput")),
    ),
    Preset(
        name="events",
        purpose="Business events: none may be lost, kept for some days.",
        source="000, Producer Optimization; 000, Storage Optimization; 003, Example Configurations",
        replication_factor=3,
        topic=(_TWO_IN_SYNC, _CLEAN, _retention(3)),
        producer=(
            _ACKS_ALL,
            _IDEMPOTENT,
            _IN_FLIGHT,
            _LINGER,
            _BATCH,
            _codec("snappy", "2 : 1, balanced (000)"),
        ),
        consumer=(_COMMIT_AFTER, _POLL),
        sides=((_CONSISTENCY_SIDE, "consistency"), (_LATENCY_SIDE, "throughput")),
    ),
    Preset(
        name="metrics",
        purpose="Measurements: many and small, soon followed by newer ones, and a few may be lost.",
        source="000, Producer Optimization; 003, Example Configurations",
        replication_factor=2,
        topic=(_ONE_IN_SYNC, _UNCLEAN, _retention(7)),
        producer=(
            _ACKS_ONE,
            _NOT_IDEMPOTENT,
            _LINGER,
            _LARGE_BATCH,
            _codec("lz4", "2 : 1, the fastest (000)"),
        ),
        consumer=(_FETCH_MORE, _FETCH_WAIT, _POLL),
        sides=((_CONSISTENCY_SIDE, "availability"), (_STORAGE_SIDE, "performance"), (_LATENCY_SIDE, "throughput")),
    ),
)

JVM_FLAGS: Final = (
    Setting("-Xms16g -Xmx16g", "", "16 GB of heap; at most 70 % of the memory, the rest is page cache (002)"),
    Setting("-XX:+UseG1GC", "", "the collector for large heaps"),
    Setting("-XX:MaxGCPauseMillis=20", "", "a goal for pauses, which delay every request"),
    Setting("-XX:InitiatingHeapOccupancyPercent=35", "", "begins to collect early, so that pauses stay short"),
)
"""For brokers of Apache Kafka (000, Broker Optimization). Penstock has no JVM."""


def preset(name: str) -> Preset:
    """The preset of this name. Raises PlanError."""
    for one in PRESETS:
        if one.name == name:
            return one
    names = [one.name for one in PRESETS]
    near = get_close_matches(name, names, 1)
    raise PlanError(
        f"there is no preset {name}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}")
    )

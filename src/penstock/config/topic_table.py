"""The properties of a topic, and the broker properties that give their defaults."""

from __future__ import annotations

from penstock.config.broker_table import BROKER
from penstock.config.definitions import INT64_MAX, Definition, Importance, Kind, UpdateMode, at_least
from penstock.config.moving_table import THROTTLED_TOPICS

TIERED_PLANNED = "tiered storage is not served yet"


def _from_broker(name: str, origin: str) -> Definition:
    """A topic property that has its type, limits, default and meaning from a broker property."""
    return BROKER[origin]._replace(name=name, mode=UpdateMode.CLUSTER_WIDE, importance=Importance.MEDIUM)


def _later(name: str, kind: Kind, default: bool | int | float | tuple[str, ...], doc: str, reason: str) -> Definition:
    return Definition(name, kind, default, None, doc, UpdateMode.CLUSTER_WIDE, only_default=reason)


BROKER_NAME: dict[str, str] = {
    # The broker property that gives a topic property its default; its own fallbacks are in `SYNONYM_CHAIN`.
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "penstock.produce.validation": "penstock.produce.validation",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

# What differs from the broker property of the same meaning. Where that one falls back to others, its default is
# "not set", which a topic's property never is.
_OWN: tuple[Definition, ...] = (
    Definition(
        "flush.messages", Kind.LONG, INT64_MAX, at_least(1),
        "Sync a log of the topic to disk after so many records. With 1 a record is acknowledged only once "
        "it is on disk.",
        UpdateMode.CLUSTER_WIDE,
    ),
    Definition(
        "flush.ms", Kind.LONG, INT64_MAX, at_least(0),
        "Sync a log of the topic to disk when its oldest unsynced record is this old.",
        UpdateMode.CLUSTER_WIDE,
    ),
    Definition(
        "max.message.bytes", Kind.INT, 1_048_588, at_least(0),
        "The largest record batch a producer may send to the topic, after compression.",
        UpdateMode.CLUSTER_WIDE,
    ),
    Definition(
        "retention.ms", Kind.LONG, 604_800_000, at_least(-1),
        "How long records are kept; -1 keeps them for ever.",
        UpdateMode.CLUSTER_WIDE,
    ),
    Definition(
        "segment.ms", Kind.LONG, 604_800_000, at_least(1),
        "A segment older than this is closed even if it is not full, so that retention can remove it.",
        UpdateMode.CLUSTER_WIDE,
    ),
    Definition(
        "segment.jitter.ms", Kind.LONG, 0, at_least(0),
        "Take a random time up to this off the age at which a segment is closed, so that many partitions "
        "do not all do it at once.",
        UpdateMode.CLUSTER_WIDE,
    ),
)

_LATER = (
    _later(
        "preallocate", Kind.BOOLEAN, False,
        "Reserve the whole file when a segment is begun.",
        "files grow as they are written, which current file systems do well",
    ),
    _later(
        "remote.storage.enable", Kind.BOOLEAN, False,
        "Keep closed segments in object storage.",
        TIERED_PLANNED,
    ),
    _later(
        "remote.log.copy.disable", Kind.BOOLEAN, False,
        "Stop copying to object storage.",
        TIERED_PLANNED,
    ),
    _later(
        "remote.log.delete.on.disable", Kind.BOOLEAN, False,
        "Delete what is in object storage when it is switched off.",
        TIERED_PLANNED,
    ),
    _later(
        "local.retention.ms", Kind.LONG, -2,
        "How long tiered segments also stay on disk.",
        TIERED_PLANNED,
    ),
    _later(
        "local.retention.bytes", Kind.LONG, -2,
        "How many bytes of tiered segments also stay on disk.",
        TIERED_PLANNED,
    ),
)

# Kafka refuses segments below 1 MB, and has the same back door for tests of what happens at a segment's end.
_HIDDEN = (
    Definition(
        "internal.segment.bytes", Kind.INT, None, at_least(64),
        "`segment.bytes` for tests, without its lower limit.",
        UpdateMode.CLUSTER_WIDE, hidden=True,
    ),
)

_FROM_BROKER = tuple(_from_broker(name, origin) for name, origin in BROKER_NAME.items())

_ALL = (*_FROM_BROKER, *_OWN, *THROTTLED_TOPICS, *_LATER, *_HIDDEN)

TOPIC: dict[str, Definition] = {
    definition.name: definition
    for definition in sorted(
        {definition.name: definition for definition in _ALL}.values(), key=lambda definition: definition.name
    )
}

# Default-giving broker properties that are not served themselves, told as synonyms because tools compare them.
UNSERVED_BROKER_NAME: dict[str, str] = {
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "preallocate": "log.preallocate",
}

"""A topic's configuration: its own settings over what its broker gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.config.broker_table import BROKER, BrokerProperties
from penstock.config.definitions import Definition, Importance, Kind, UpdateMode, Validator, Value, at_least, parse
from penstock.config.tables import NoAttribute, View, folded, prop
from penstock.config.unserved import TIERED
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.config.broker import BrokerConfig

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
EVERY_REPLICA = "*"
_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")


def of_broker(name: str, origin: str, *, valid: Validator | None = None, doc: str = "") -> Any:
    """Declare a property that has its type, limits, default and meaning from a broker property.

    Where that one is not set by default and falls back to others, the default is what they amount to.
    """
    broker = BROKER[origin]
    default = BrokerProperties.defaults[broker.attribute] if broker.fallbacks else broker.default
    return broker._replace(
        name=name, origin=origin, default=default, validator=valid or broker.validator, doc=doc or broker.doc,
        mode=CLUSTER_WIDE, importance=Importance.MEDIUM, fallbacks=(),
    )  # fmt: skip


def _is_replica_list(value: Value) -> bool:
    if not isinstance(value, tuple):
        return False
    return value in ((), (EVERY_REPLICA,)) or all(_is_pair(item) for item in value)


def _is_pair(item: str) -> bool:
    partition, colon, broker = item.partition(":")
    return bool(colon) and all(part.isascii() and part.isdigit() for part in (partition, broker))


THROTTLED_REPLICAS = Validator(
    "the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    _is_replica_list,
)


class TopicConfig(View):
    """The settings in force for one topic. Topics that set nothing of their own share one instance per broker."""

    cleanup_policy: tuple[str, ...] = of_broker("cleanup.policy", "log.cleanup.policy")
    compression_gzip_level: int = of_broker("compression.gzip.level", "compression.gzip.level")
    compression_lz4_level: int = of_broker("compression.lz4.level", "compression.lz4.level")
    compression_type: str = of_broker("compression.type", "compression.type")
    compression_zstd_level: int = of_broker("compression.zstd.level", "compression.zstd.level")
    delete_retention_ms: int = of_broker("delete.retention.ms", "log.cleaner.delete.retention.ms")
    file_delete_delay_ms: int = of_broker("file.delete.delay.ms", "log.segment.delete.delay.ms")
    flush_messages: int = of_broker(
        "flush.messages", "log.flush.interval.messages",
        doc="Sync a log of the topic to disk after so many records. With 1 a record is acknowledged only once "
        "it is on disk.",
    )
    flush_ms: int = of_broker(
        "flush.ms", "log.flush.interval.ms",
        doc="Sync a log of the topic to disk when its oldest unsynced record is this old.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = prop(
        "follower.replication.throttled.replicas", Kind.LIST, (), THROTTLED_REPLICAS,
        "Replicas that count against `follower.replication.throttled.rate` of the brokers that hold them: "
        "`partition:broker`, several separated by commas, or `*` for all.",
        CLUSTER_WIDE,
    )
    index_interval_bytes: int = of_broker("index.interval.bytes", "log.index.interval.bytes")
    # Kafka refuses segments below 1 MB, and has the same back door for tests of what happens at a segment's end.
    internal_segment_bytes: NoAttribute = folded(
        "internal.segment.bytes", Kind.INT, None, at_least(64), "`segment.bytes` for tests, without its lower limit.",
        CLUSTER_WIDE, hidden=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = prop(
        "leader.replication.throttled.replicas", Kind.LIST, (), THROTTLED_REPLICAS,
        "Replicas that count against `leader.replication.throttled.rate` of the brokers that lead them: "
        "`partition:broker`, several separated by commas, or `*` for all.",
        CLUSTER_WIDE,
    )
    local_retention_bytes: NoAttribute = folded(
        "local.retention.bytes", Kind.LONG, -2, None, "How many bytes of tiered segments also stay on disk.",
        CLUSTER_WIDE, only_default=TIERED, origin="log.local.retention.bytes",
    )
    local_retention_ms: NoAttribute = folded(
        "local.retention.ms", Kind.LONG, -2, None, "How long tiered segments also stay on disk.",
        CLUSTER_WIDE, only_default=TIERED, origin="log.local.retention.ms",
    )
    max_compaction_lag_ms: int = of_broker("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")
    max_message_bytes: int = of_broker(
        "max.message.bytes", "message.max.bytes",
        doc="The largest record batch a producer may send to the topic, after compression.",
    )
    message_timestamp_after_max_ms: int = of_broker(
        "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"
    )
    message_timestamp_before_max_ms: int = of_broker(
        "message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"
    )
    message_timestamp_type: str = of_broker("message.timestamp.type", "log.message.timestamp.type")
    min_cleanable_dirty_ratio: float = of_broker("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio")
    min_compaction_lag_ms: int = of_broker("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms")
    min_insync_replicas: int = of_broker("min.insync.replicas", "min.insync.replicas")
    penstock_produce_validation: str = of_broker("penstock.produce.validation", "penstock.produce.validation")
    preallocate: NoAttribute = folded(
        "preallocate", Kind.BOOLEAN, False, None, "Reserve the whole file when a segment is begun.",
        CLUSTER_WIDE, only_default="files grow as they are written, which current file systems do well",
        origin="log.preallocate",
    )
    remote_log_copy_disable: NoAttribute = folded(
        "remote.log.copy.disable", Kind.BOOLEAN, False, None, "Stop copying to object storage.",
        CLUSTER_WIDE, only_default=TIERED,
    )
    remote_log_delete_on_disable: NoAttribute = folded(
        "remote.log.delete.on.disable", Kind.BOOLEAN, False, None,
        "Delete what is in object storage when it is switched off.",
        CLUSTER_WIDE, only_default=TIERED,
    )
    remote_storage_enable: NoAttribute = folded(
        "remote.storage.enable", Kind.BOOLEAN, False, None, "Keep closed segments in object storage.",
        CLUSTER_WIDE, only_default=TIERED,
    )
    retention_bytes: int = of_broker("retention.bytes", "log.retention.bytes")
    retention_ms: int = of_broker(
        "retention.ms", "log.retention.ms",
        valid=at_least(-1), doc="How long records are kept; -1 keeps them for ever.",
    )
    segment_bytes: int = of_broker("segment.bytes", "log.segment.bytes")
    segment_index_bytes: int = of_broker("segment.index.bytes", "log.index.size.max.bytes")
    segment_jitter_ms: int = of_broker(
        "segment.jitter.ms", "log.roll.jitter.ms",
        doc="Take a random time up to this off the age at which a segment is closed, so that many partitions "
        "do not all do it at once.",
    )
    segment_ms: int = of_broker(
        "segment.ms", "log.roll.ms",
        doc="A segment older than this is closed even if it is not full, so that retention can remove it.",
    )
    unclean_leader_election_enable: bool = of_broker("unclean.leader.election.enable", "unclean.leader.election.enable")

    @classmethod
    def of_broker(cls, effective: Mapping[str, Value]) -> TopicConfig:
        """What a topic has that sets nothing itself; `effective` has the broker's values, fallbacks resolved."""
        return cls.of({d.attribute: effective[d.origin] for d in cls.definitions.values() if d.origin in effective})

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """The settings of a topic with these of its own; KafkaError(INVALID_CONFIG) names the first that is wrong."""
        if not overrides:
            return broker.topic_defaults
        values = broker.topic_defaults.as_dict()
        for name, text in overrides.items():
            value = validate_topic_config(name, text)
            if not TOPIC[name].is_folded:
                values[TOPIC[name].attribute] = value
        small_segment = overrides.get("internal.segment.bytes")
        if small_segment is not None:
            values["segment_bytes"] = validate_topic_config("internal.segment.bytes", small_segment)
        return cls.of(values)


TOPIC: dict[str, Definition] = dict(sorted(TopicConfig.definitions.items()))


def topic_definition(name: str) -> Definition:
    """The definition of a topic property; KafkaError(INVALID_CONFIG) if there is none."""
    definition = TOPIC.get(name)
    if definition is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    return definition


def validate_topic_config(name: str, text: str | None) -> Value:
    """The value a topic property would have; KafkaError(INVALID_CONFIG) says why it cannot have it."""
    definition = topic_definition(name)
    try:
        return parse(definition, text)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Invalid value {text} for configuration {name}: {error}"
        ) from None


def validate_topic_configs(overrides: Mapping[str, str | None]) -> None:
    """Refuse, with KafkaError(INVALID_CONFIG), settings that a topic cannot have."""
    for name, text in overrides.items():
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic config: {name}")
        validate_topic_config(name, text)
    _check_lags(overrides)


def _check_lags(overrides: Mapping[str, str | None]) -> None:
    """As Kafka, by the topic's own settings and the defaults of the properties."""
    least, most = (validate_topic_config(name, overrides.get(name)) for name in _LAGS)
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )

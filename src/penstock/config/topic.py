"""A topic's configuration: its own settings, with the broker's as defaults."""

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
    """Declare a property with the type, limits, default and documentation of a broker property.

    If the broker property is unset by default and has fallbacks, the default is their result.
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
    """The effective settings of one topic. Topics without settings of their own share one instance per broker."""

    cleanup_policy: tuple[str, ...] = of_broker("cleanup.policy", "log.cleanup.policy")
    compression_gzip_level: int = of_broker("compression.gzip.level", "compression.gzip.level")
    compression_lz4_level: int = of_broker("compression.lz4.level", "compression.lz4.level")
    compression_type: str = of_broker("compression.type", "compression.type")
    compression_zstd_level: int = of_broker("compression.zstd.level", "compression.zstd.level")
    delete_retention_ms: int = of_broker("delete.retention.ms", "log.cleaner.delete.retention.ms")
    file_delete_delay_ms: int = of_broker("file.delete.delay.ms", "log.segment.delete.delay.ms")
    flush_messages: int = of_broker(
        "flush.messages",
        "log.flush.interval.messages",
        doc="The number of records after which a log of the topic is synced to disk. With 1 a record is acknowledged "
        "only when it is on disk.",
    )
    flush_ms: int = of_broker(
        "flush.ms",
        "log.flush.interval.ms",
        doc="The age of the oldest unsynced record at which a log of the topic is synced to disk.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = prop(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        THROTTLED_REPLICAS,
        "The replicas to which the brokers' `follower.replication.throttled.rate` applies when they copy: "
        "`partition:broker`, separated by commas, or `*` for all.",
        CLUSTER_WIDE,
    )
    index_interval_bytes: int = of_broker("index.interval.bytes", "log.index.interval.bytes")
    # Kafka refuses segments below 1 MB, and has the same undocumented property for tests that roll segments.
    internal_segment_bytes: NoAttribute = folded(
        "internal.segment.bytes",
        Kind.INT,
        None,
        at_least(64),
        "`segment.bytes` for tests, without its lower limit.",
        CLUSTER_WIDE,
        hidden=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = prop(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        THROTTLED_REPLICAS,
        "The replicas to which the brokers' `leader.replication.throttled.rate` applies when they are copied from: "
        "`partition:broker`, separated by commas, or `*` for all.",
        CLUSTER_WIDE,
    )
    local_retention_bytes: NoAttribute = folded(
        "local.retention.bytes",
        Kind.LONG,
        -2,
        None,
        "The number of bytes of tiered segments that also stay on disk.",
        CLUSTER_WIDE,
        only_default=TIERED,
        origin="log.local.retention.bytes",
    )
    local_retention_ms: NoAttribute = folded(
        "local.retention.ms",
        Kind.LONG,
        -2,
        None,
        "How long tiered segments also stay on disk.",
        CLUSTER_WIDE,
        only_default=TIERED,
        origin="log.local.retention.ms",
    )
    max_compaction_lag_ms: int = of_broker("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")
    max_message_bytes: int = of_broker(
        "max.message.bytes",
        "message.max.bytes",
        doc="The largest record batch that a producer may send to the topic, after compression.",
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
    penstock_read_only: bool = prop(
        "penstock.read.only",
        Kind.BOOLEAN,
        False,
        None,
        "Refuse every Produce to the topic with POLICY_VIOLATION, which producers do not retry. Reading, retention and "
        "compaction go on. `penstock topics repartition` fences a topic with it before producers switch to another.",
        CLUSTER_WIDE,
    )
    preallocate: NoAttribute = folded(
        "preallocate",
        Kind.BOOLEAN,
        False,
        None,
        "Allocate the whole file when a segment is created.",
        CLUSTER_WIDE,
        only_default="files grow as they are written, which modern file systems handle well",
        origin="log.preallocate",
    )
    remote_log_copy_disable: NoAttribute = folded(
        "remote.log.copy.disable",
        Kind.BOOLEAN,
        False,
        None,
        "Stop copying to object storage.",
        CLUSTER_WIDE,
        only_default=TIERED,
    )
    remote_log_delete_on_disable: NoAttribute = folded(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        False,
        None,
        "Delete the data in object storage when tiered storage is disabled.",
        CLUSTER_WIDE,
        only_default=TIERED,
    )
    remote_storage_enable: NoAttribute = folded(
        "remote.storage.enable",
        Kind.BOOLEAN,
        False,
        None,
        "Keep closed segments in object storage.",
        CLUSTER_WIDE,
        only_default=TIERED,
    )
    retention_bytes: int = of_broker("retention.bytes", "log.retention.bytes")
    retention_ms: int = of_broker(
        "retention.ms",
        "log.retention.ms",
        valid=at_least(-1),
        doc="How long records are kept; -1 keeps them forever.",
    )
    segment_bytes: int = of_broker("segment.bytes", "log.segment.bytes")
    segment_index_bytes: int = of_broker("segment.index.bytes", "log.index.size.max.bytes")
    segment_jitter_ms: int = of_broker(
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        doc="The maximum random time subtracted from the age at which a segment is closed. It prevents many partitions "
        "from rolling segments at the same time.",
    )
    segment_ms: int = of_broker(
        "segment.ms",
        "log.roll.ms",
        doc="The maximum age of a segment. An older one is closed even if it is not full, so that retention can "
        "remove it.",
    )
    unclean_leader_election_enable: bool = of_broker("unclean.leader.election.enable", "unclean.leader.election.enable")

    @classmethod
    def of_broker(cls, effective: Mapping[str, Value]) -> TopicConfig:
        """The configuration of a topic without own settings; `effective` has the broker's values with fallbacks
        resolved."""
        return cls.of({d.attribute: effective[d.origin] for d in cls.definitions.values() if d.origin in effective})

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """The settings of a topic with these overrides. Raises KafkaError(INVALID_CONFIG) for the first invalid one."""
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
    """The definition of a topic property. Raises KafkaError(INVALID_CONFIG) if it does not exist."""
    definition = TOPIC.get(name)
    if definition is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    return definition


def validate_topic_config(name: str, text: str | None) -> Value:
    """Parse a topic property. Raises KafkaError(INVALID_CONFIG) if the value is invalid."""
    definition = topic_definition(name)
    try:
        return parse(definition, text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {text} for configuration {name}: {error}") from None


def validate_topic_configs(overrides: Mapping[str, str | None]) -> None:
    """Raises KafkaError(INVALID_CONFIG) if a topic cannot have these settings."""
    for name, text in overrides.items():
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic config: {name}")
        validate_topic_config(name, text)
    _check_lags(overrides)


def _check_lags(overrides: Mapping[str, str | None]) -> None:
    """As in Kafka, compares the topic's own settings and the defaults of the properties, not the broker's settings."""
    least, most = (validate_topic_config(name, overrides.get(name)) for name in _LAGS)
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )

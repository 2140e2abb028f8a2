"""A topic's configuration: its own settings over what its broker gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from penstock.config.definitions import Definition, Value, parse
from penstock.config.moving_table import THROTTLED_TOPICS
from penstock.config.topic_table import BROKER_NAME, TOPIC
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.config.broker import BrokerConfig

_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")


class TopicConfig:
    """The settings in force for one topic. Topics that set nothing of their own share one instance per broker."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    penstock_produce_validation: str
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    __slots__ = tuple(__annotations__)

    def __init__(self, values: Mapping[str, Value]) -> None:
        """`values` by attribute name, all of them, already parsed."""
        for attribute in self.__slots__:
            object.__setattr__(self, attribute, values[attribute])

    @classmethod
    def of_broker(cls, effective: Mapping[str, Value]) -> Self:
        """What a topic has that sets nothing itself; `effective` has the broker's values, fallbacks resolved."""
        own = {definition.attribute: definition.default for definition in THROTTLED_TOPICS}
        return cls(own | {name.replace(".", "_"): effective[origin] for name, origin in BROKER_NAME.items()})

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """The settings of a topic with these of its own; KafkaError(INVALID_CONFIG) names the first that is wrong."""
        if not overrides:
            return broker.topic_defaults
        values: dict[str, Value] = {name: getattr(broker.topic_defaults, name) for name in cls.__slots__}
        for name, text in overrides.items():
            value = validate_topic_config(name, text)
            if TOPIC[name].attribute in values:
                values[TOPIC[name].attribute] = value
        small_segment = overrides.get("internal.segment.bytes")
        if small_segment is not None:
            values["segment_bytes"] = validate_topic_config("internal.segment.bytes", small_segment)
        return cls(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a config is never changed, it is resolved again ({name})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicConfig) and self._key() == other._key()

    def __repr__(self) -> str:
        return f"TopicConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def _key(self) -> tuple[Value, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)


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

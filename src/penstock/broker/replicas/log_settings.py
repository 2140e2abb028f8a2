"""The effective settings of a topic's logs: its own over the broker's, in the form that `penstock.log` expects."""

from __future__ import annotations

from penstock.config import BrokerConfig, TopicConfig
from penstock.log import LogConfig
from penstock.metadata import MetadataImage, ResourceType


class LogSettings:
    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._latest: tuple[TopicConfig | None, LogConfig] = None, LogConfig()

    def of_topic(self, image: MetadataImage, name: str) -> TopicConfig:
        overrides = image.config(ResourceType.TOPIC, name)
        return TopicConfig.resolve(overrides, self._broker) if overrides else self._broker.topic_defaults

    def of_log(self, topic: TopicConfig) -> LogConfig:
        """The configuration object; shared by the partitions of a topic, and by all topics without settings of their
        own."""
        if topic is not self._latest[0]:
            self._latest = topic, log_config(topic, self._broker)
        return self._latest[1]


def log_config(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        max_message_bytes=topic.max_message_bytes,
        read_only=topic.penstock_read_only,
        validates_records=topic.penstock_produce_validation == "full",
        timestamp_type=topic.message_timestamp_type,
        timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        cleanup_policy=",".join(topic.cleanup_policy),
        delete_retention_ms=topic.delete_retention_ms,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
    )

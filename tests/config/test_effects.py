"""Every property in the tables takes effect: the engine reads each of them."""

from __future__ import annotations

import ast
from pathlib import Path

import penstock
from penstock.config import BROKER, GROUP, TOPIC, BrokerConfig, TopicConfig
from penstock.config.group import GroupSettings

SOURCE = Path(penstock.__file__).parent
ENGINE = ("broker", "cli", "coordinators", "log", "metadata", "raft", "replication", "runtime")

# They speak of other brokers: with one broker there is nothing to read them for, in Kafka neither.
CLUSTER_ONLY = {d.attribute for d in (*BROKER.values(), *TOPIC.values()) if d.cluster_only}
# Read through what they are the defaults of: a topic's own properties.
TOPIC_DEFAULTS = {
    "compression_gzip_level", "compression_lz4_level", "compression_type", "compression_zstd_level",
    "log_cleaner_delete_retention_ms", "log_cleaner_max_compaction_lag_ms", "log_cleaner_min_cleanable_ratio",
    "log_cleaner_min_compaction_lag_ms", "log_cleanup_policy", "log_flush_interval_messages", "log_flush_interval_ms",
    "log_index_interval_bytes",
    "log_index_size_max_bytes", "log_message_timestamp_after_max_ms", "log_message_timestamp_before_max_ms",
    "log_message_timestamp_type", "log_retention_bytes", "log_retention_ms", "log_roll_jitter_ms", "log_roll_ms",
    "log_segment_bytes", "log_segment_delete_delay_ms", "message_max_bytes", "min_insync_replicas",
}  # fmt: skip
# Read through what they are the defaults and the limits of: a group's own properties.
GROUP_DEFAULTS = {BROKER[d.origin].attribute for d in GROUP.values()} | {
    d.origin.replace("group.consumer.", f"group.consumer.{limit}.").replace(".", "_")
    for d in GROUP.values()
    for limit in ("min", "max")
}
NOT_PROPERTIES = {
    "controller_listener_name",
    "dynamic_broker",
    "dynamic_default",
    "listener_security",
    "static",
    "topic_defaults",
    "values",
    "warnings",
}


def attributes_read() -> set[str]:
    read = set()
    for package in ENGINE:
        for path in (SOURCE / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute):
                    read.add(node.attr)
    return read


def test_every_broker_property_is_read_by_the_engine() -> None:
    wanted = set(vars(BrokerConfig)["__slots__"]) - NOT_PROPERTIES - CLUSTER_ONLY - TOPIC_DEFAULTS - GROUP_DEFAULTS
    assert sorted(wanted - attributes_read()) == []


def test_every_topic_property_is_read_by_the_engine() -> None:
    assert sorted(set(vars(TopicConfig)["__slots__"]) - CLUSTER_ONLY - attributes_read()) == []
    assert {d.attribute for d in TOPIC.values() if not d.is_folded} == set(vars(TopicConfig)["__slots__"])


def test_every_group_property_is_read_by_the_engine() -> None:
    assert sorted(set(vars(GroupSettings)["__slots__"]) - attributes_read()) == []
    assert {d.attribute for d in GROUP.values()} == set(vars(GroupSettings)["__slots__"])

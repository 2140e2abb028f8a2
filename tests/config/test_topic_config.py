"""A topic's settings over its broker's, how they are altered, and how both are described."""

from __future__ import annotations

import pytest

from penstock.config import (
    Alteration,
    AlterOperation,
    BrokerConfig,
    ConfigSource,
    DescribedConfig,
    Kind,
    Synonym,
    TopicConfig,
    alter_broker,
    alter_topic,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
    validate_topic_config,
    validate_topic_configs,
)
from penstock.wire.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = AlterOperation


def described(configs: list[DescribedConfig], name: str) -> DescribedConfig:
    (config,) = [config for config in configs if config.name == name]
    return config


def test_a_topics_own_settings_win() -> None:
    broker = BrokerConfig.resolve({"log.retention.ms": "1", "log.segment.bytes": "2000000"})
    config = TopicConfig.resolve({"retention.ms": "2", "cleanup.policy": ""}, broker)
    assert (config.retention_ms, config.segment_bytes, config.cleanup_policy) == (2, 2_000_000, ())
    assert config == TopicConfig.resolve({"retention.ms": "2", "cleanup.policy": ""}, broker)
    assert config != broker.topic_defaults


def test_tests_may_have_small_segments() -> None:
    broker = BrokerConfig.resolve({})
    assert TopicConfig.resolve({"internal.segment.bytes": "1000"}, broker).segment_bytes == 1000
    assert all(config.name != "internal.segment.bytes" for config in describe_topic({}, broker))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: must be -1 or more"),
        ("retention.ms", "a", "whole number"),
        ("no.such", "1", "Unknown topic config name: no.such"),
        ("cleanup.policy", "shrink", "delete, compact or both"),
        ("cleanup.policy", "compact,compact", "delete, compact or both"),
        ("remote.storage.enable", "true", "tiered storage is not supported yet"),
        ("min.cleanable.dirty.ratio", "1.1", "between 0 and 1"),
        ("delete.retention.ms", "-1", "0 or more"),
        ("max.compaction.lag.ms", "0", "1 or more"),
        ("preallocate", "true", "only false is accepted"),
        ("segment.bytes", "1", "1048576 or more"),
        ("min.insync.replicas", "0", "1 or more"),
    ],
)
def test_invalid_topic_settings_are_refused(name: str, text: str, told: str) -> None:
    with pytest.raises(KafkaError, match=told) as refused:
        validate_topic_configs({name: text})
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_defaults_of_planned_topic_properties_are_accepted() -> None:
    validate_topic_configs({"remote.storage.enable": "false", "local.retention.ms": "-2", "preallocate": "false"})
    assert validate_topic_config("retention.ms", " 5 ") == 5


def test_a_record_cannot_be_both_safe_from_compaction_and_due() -> None:
    validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(KafkaError, match="conflict topic config setting"):
        validate_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_null_is_not_a_setting() -> None:
    with pytest.raises(KafkaError, match="Null value"):
        validate_topic_configs({"retention.ms": None})


def test_alterations_set_delete_append_and_subtract() -> None:
    before = {"retention.ms": "1", "flush.ms": "2"}
    after = alter_topic(before, [Alteration("retention.ms", SET, "5"), Alteration("flush.ms", DELETE)])
    assert after == {"retention.ms": "5"}
    assert before == {"retention.ms": "1", "flush.ms": "2"}
    # A list that is not set begins with its default.
    assert alter_topic({}, [Alteration("cleanup.policy", APPEND, "delete")]) == {"cleanup.policy": "delete"}
    assert alter_topic({}, [Alteration("cleanup.policy", SUBTRACT, "delete")]) == {"cleanup.policy": ""}
    assert alter_topic({"cleanup.policy": ""}, [Alteration("cleanup.policy", APPEND, "delete")]) == {
        "cleanup.policy": "delete"
    }


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([Alteration("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([Alteration("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([Alteration("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST),
        ([Alteration("retention.ms", SET, "5"), Alteration("retention.ms", DELETE)], ErrorCode.INVALID_REQUEST),
        ([Alteration("cleanup.policy", APPEND, "shrink")], ErrorCode.INVALID_CONFIG),
        ([Alteration("no.such", SET, "5")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_alterations_that_make_no_sense_are_refused(alterations: list[Alteration], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        alter_topic({}, alterations)
    assert refused.value.code == code


def test_an_unknown_stored_setting_can_be_deleted() -> None:
    before = {"retention.ms": "1", "old.name": "x"}
    assert alter_topic(before, [Alteration("old.name", DELETE)]) == {"retention.ms": "1"}


def test_alterations_of_a_broker() -> None:
    broker = BrokerConfig.resolve({})
    alterations = [Alteration("message.max.bytes", SET, "9")]
    altered = alter_broker({"max.connections": "5"}, alterations, broker, per_broker=True)
    assert altered == {"max.connections": "5", "message.max.bytes": "9"}
    with pytest.raises(KafkaError, match="cannot change at run time"):
        alter_broker({}, [Alteration("num.partitions", SET, "9")], broker, per_broker=False)


def test_a_described_topic_tells_where_each_value_comes_from() -> None:
    static = {"log.retention.minutes": "5"}
    broker = BrokerConfig.resolve(static, {"message.max.bytes": "7"}, {"message.max.bytes": "8"})
    configs = describe_topic({"flush.messages": "1"}, broker)
    assert [config.name for config in configs] == sorted(config.name for config in configs)

    flush = described(configs, "flush.messages")
    assert (flush.value, flush.source, flush.kind) == ("1", ConfigSource.TOPIC_CONFIG, Kind.LONG)
    assert flush.synonyms == (
        Synonym("flush.messages", "1", ConfigSource.TOPIC_CONFIG),
        Synonym("log.flush.interval.messages", "9223372036854775807", ConfigSource.DEFAULT_CONFIG),
    )
    retention = described(configs, "retention.ms")
    assert (retention.value, retention.source) == ("300000", ConfigSource.STATIC_BROKER_CONFIG)
    assert retention.synonyms == (Synonym("log.retention.minutes", "5", ConfigSource.STATIC_BROKER_CONFIG),)
    size = described(configs, "max.message.bytes")
    assert (size.value, size.source) == ("8", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [synonym.value for synonym in size.synonyms] == ["8", "7", "1048588"]
    assert described(configs, "remote.storage.enable").source == ConfigSource.DEFAULT_CONFIG
    assert not any(config.read_only for config in configs)


def test_a_described_broker_tells_what_can_change() -> None:
    broker = BrokerConfig.resolve({"log.retention.hours": "5"}, {"log.retention.ms": "6"})
    configs = describe_broker(broker)
    assert described(configs, "num.partitions").read_only
    retention = described(configs, "log.retention.ms")
    assert not retention.read_only
    assert (retention.value, retention.source) == ("6", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    hours = described(configs, "log.retention.hours")
    assert (hours.value, hours.source) == ("5", ConfigSource.STATIC_BROKER_CONFIG)
    assert [synonym.name for synonym in hours.synonyms] == ["log.retention.hours", "log.retention.hours"]
    assert described(configs, "log.retention.minutes").value is None
    (default,) = describe_broker_defaults(broker)
    assert (default.name, default.value, default.read_only) == ("log.retention.ms", "6", False)

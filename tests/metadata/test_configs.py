"""Altering configurations: what is written, what is refused, what is kept."""

from __future__ import annotations

import pytest

from metadata.cluster import Cluster
from penstock.config import Alteration, AlterOperation
from penstock.metadata import ConfigAlteration, ConfigReplacement, Outcome, ResourceType
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.metadata_records import ConfigRecord

SET, DELETE, APPEND, SUBTRACT = AlterOperation
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def alter(
    cluster: Cluster, resource_type: int, name: str, *alterations: Alteration, validate_only: bool = False
) -> tuple[Outcome, list[object]]:
    decision = cluster.controller.decide_incremental_alter_configs(
        [ConfigAlteration(resource_type, name, alterations)], validate_only=validate_only
    )
    (result,) = decision.reply
    assert (result.resource_type, result.name) == (resource_type, name)
    return result.outcome, list(decision.records)


def record(resource_type: int, resource_name: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)


def test_settings_are_set_removed_and_lists_extended() -> None:
    cluster = Cluster()
    cluster.create("t", retention_ms="1000")
    outcome, records = alter(
        cluster,
        TOPIC,
        "t",
        Alteration("retention.ms", DELETE),
        Alteration("segment.ms", SET, "60000"),
    )
    assert not outcome.failed
    assert records == [record(TOPIC, "t", "retention.ms", None), record(TOPIC, "t", "segment.ms", "60000")]
    assert cluster.image.config(TOPIC, "t") == {"segment.ms": "60000"}


def test_what_does_not_change_is_not_written() -> None:
    cluster = Cluster()
    cluster.create("t", retention_ms="1000")
    _, records = alter(cluster, TOPIC, "t", Alteration("retention.ms", SET, "1000"), Alteration("flush.ms", DELETE))
    assert records == []


def test_a_broker_hears_of_a_setting_again_even_if_it_did_not_change() -> None:
    cluster = Cluster()
    for _ in range(2):
        outcome, records = alter(cluster, BROKER, "1", Alteration("log.retention.ms", SET, "5000"))
        assert not outcome.failed
        assert records == [record(BROKER, "1", "log.retention.ms", "5000")]


def test_settings_for_all_brokers_have_an_empty_name() -> None:
    cluster = Cluster()
    outcome, _ = alter(cluster, BROKER, "", Alteration("log.retention.ms", SET, "5000"))
    assert not outcome.failed
    assert cluster.image.config(BROKER, "") == {"log.retention.ms": "5000"}
    assert list(cluster.image.config_resources()) == [(BROKER, "")]


def test_a_resource_changes_as_a_whole_or_not_at_all() -> None:
    cluster = Cluster()
    cluster.create("t")
    outcome, records = alter(
        cluster, TOPIC, "t", Alteration("segment.ms", SET, "60000"), Alteration("retention.ms", SET, "soon")
    )
    assert outcome.error == ErrorCode.INVALID_CONFIG
    assert records == []
    assert cluster.image.config(TOPIC, "t") == {}


def test_resources_of_one_request_do_not_depend_on_each_other() -> None:
    cluster = Cluster()
    cluster.create("t")
    change = (Alteration("segment.ms", SET, "60000"),)
    decision = cluster.controller.decide_incremental_alter_configs(
        [
            ConfigAlteration(TOPIC, "no", change),
            ConfigAlteration(TOPIC, "t", change),
            ConfigAlteration(BROKER, "1", ()),
            ConfigAlteration(BROKER, "1", ()),
        ]
    )
    assert [result.outcome.error for result in decision.reply] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert len(decision.records) == 1


@pytest.mark.parametrize(
    ("resource_type", "name", "error", "message"),
    [
        (TOPIC, "", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (TOPIC, "b@d", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'no' does not exist."),
        (BROKER, "one", ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        (BROKER, "99999999999", ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        (BROKER, "-1", ErrorCode.INVALID_REQUEST, "Invalid negative broker ID."),
        (BROKER, "7", ErrorCode.BROKER_ID_NOT_REGISTERED, "No broker with id 7 found."),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        (ResourceType.GROUP, "g", ErrorCode.INVALID_CONFIG, "Unknown group config name: segment.ms"),
        (
            ResourceType.CLIENT_METRICS,
            "m",
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics config",
        ),
        (ResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_CONFIG, "Logger segment.ms does not exist!"),
        (99, "x", ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_unknown_resources_are_refused(resource_type: int, name: str, error: ErrorCode, message: str) -> None:
    outcome, records = alter(Cluster(), resource_type, name, Alteration("segment.ms", SET, "1"))
    assert outcome.error == error
    assert message in (outcome.message or "")
    assert records == []


def test_only_lists_can_be_extended() -> None:
    cluster = Cluster()
    cluster.create("t")
    outcome, _ = alter(cluster, TOPIC, "t", Alteration("segment.ms", APPEND, "1"))
    assert outcome.error == ErrorCode.INVALID_CONFIG
    assert "its type is not LIST" in (outcome.message or "")


def test_validate_only_changes_nothing() -> None:
    cluster = Cluster()
    cluster.create("t")
    before = cluster.image
    outcome, records = alter(cluster, TOPIC, "t", Alteration("segment.ms", SET, "60000"), validate_only=True)
    assert (outcome, records) == (Outcome(), [])
    assert cluster.image is before


def test_the_older_request_replaces_everything() -> None:
    cluster = Cluster()
    cluster.create("t", retention_ms="1000", segment_ms="60000")
    decision = cluster.controller.decide_alter_configs(
        [ConfigReplacement(TOPIC, "t", (("retention.ms", "2000"), ("flush.ms", "5")))]
    )
    assert not decision.reply[0].outcome.failed
    assert cluster.image.config(TOPIC, "t") == {"retention.ms": "2000", "flush.ms": "5"}
    decision = cluster.controller.decide_alter_configs([ConfigReplacement(TOPIC, "t", ())])
    assert cluster.image.config(TOPIC, "t") == {}


def test_the_older_request_refuses_a_value_that_is_null() -> None:
    cluster = Cluster()
    cluster.create("t")
    decision = cluster.controller.decide_alter_configs([ConfigReplacement(TOPIC, "t", (("retention.ms", None),))])
    assert decision.reply[0].outcome.error in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert decision.records == []

"""The tables agree with each other and with the typed configs."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from penstock.config import (
    BROKER,
    GROUP,
    INERT,
    NOT_YET,
    SETTABLE,
    TOPIC,
    WITHOUT_MEANING,
    BrokerConfig,
    Endpoint,
    Kind,
    TopicConfig,
)
from penstock.config.broker_table import SYNONYM_CHAIN
from penstock.config.definitions import parse, render
from penstock.config.group import GroupSettings
from penstock.config.group_table import ClassicGroups
from penstock.config.tables import View, fresh, prop, replace
from penstock.config.unserved import refusal
from penstock.coordinators.groups import GroupConfig

# Properties that only feed into others.
WITHOUT_ATTRIBUTE = {
    "listener.security.protocol.map",
    "log.dirs",
    "log.flush.scheduler.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.roll.hours",
    "log.roll.jitter.hours",
    "sasl.jaas.config",
    "security.inter.broker.protocol",
    "ssl.keystore.type",
    "ssl.truststore.type",
}
NOT_PROPERTIES = {
    "controller_listener_name",
    "dynamic_broker",
    "dynamic_default",
    "listener_limits",
    "listener_security",
    "static",
    "topic_defaults",
    "values",
    "warnings",
}


def test_a_property_is_in_one_table_only() -> None:
    names = [*BROKER, *INERT, *NOT_YET, *WITHOUT_MEANING]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("definition", [*SETTABLE.values(), *TOPIC.values()], ids=lambda definition: definition.name)
def test_a_default_is_valid_and_comes_back_from_its_text(definition: typing.Any) -> None:
    assert parse(definition, render(definition.default)) == definition.default
    assert definition.doc.endswith(".")


@pytest.mark.parametrize("name", sorted(NOT_YET))
def test_planned_properties_accept_their_default(name: str) -> None:
    assert refusal(name, NOT_YET[name].default or "") is None
    assert refusal(name, "something else") is not None


def test_every_property_has_its_attribute() -> None:
    assert {name for name, definition in BROKER.items() if definition.is_folded} == WITHOUT_ATTRIBUTE
    attributes = {definition.attribute for name, definition in BROKER.items() if name not in WITHOUT_ATTRIBUTE}
    assert attributes == set(vars(BrokerConfig)["__slots__"]) - NOT_PROPERTIES


def test_every_topic_property_has_its_attribute_and_its_broker_property() -> None:
    attributes = {d.attribute for d in TOPIC.values() if not d.only_default and not d.hidden}
    assert attributes == set(vars(TopicConfig)["__slots__"])
    # Which replicas are throttled, and whether it may be written to, is a matter of the topic alone.
    own = {
        "leader_replication_throttled_replicas", "follower_replication_throttled_replicas", "penstock_read_only",
    }  # fmt: skip
    assert {d.attribute for d in TOPIC.values() if d.origin in BROKER} == attributes - own
    assert {d.origin for d in TOPIC.values()} <= {*BROKER, *INERT, ""}


def test_a_topic_default_is_its_broker_propertys_default() -> None:
    broker = BrokerConfig.resolve({})
    for name, definition in TOPIC.items():
        if definition.origin in BROKER:
            assert definition.kind == BROKER[definition.origin].kind
            if definition.origin not in SYNONYM_CHAIN:
                assert definition.default == BROKER[definition.origin].default, name
            assert getattr(broker.topic_defaults, definition.attribute) == definition.default, name


def test_a_group_setting_has_its_default_from_the_broker_and_stays_within_its_limits() -> None:
    assert {d.origin for d in GROUP.values()} <= set(BROKER)
    broker = BrokerConfig.resolve({"group.consumer.session.timeout.ms": "50000"})
    assert GroupSettings.resolve({}, broker) == GroupSettings(
        session_timeout_ms=50_000, heartbeat_interval_ms=5_000, assignment_interval_ms=1_000
    )
    own = {"consumer.session.timeout.ms": "1", "consumer.heartbeat.interval.ms": "999999", "of.another.version": "x"}
    clamped = GroupSettings.resolve(own, broker)
    assert (clamped.session_timeout_ms, clamped.heartbeat_interval_ms) == (45_000, 15_000)


def test_a_view_of_some_sections_takes_its_values_from_the_whole() -> None:
    broker = BrokerConfig.resolve({"group.max.size": "7", "offsets.retention.minutes": "3"})
    part = GroupConfig.part_of(broker)
    assert (part.group_max_size, part.offsets_retention_ms) == (7, 180_000)
    assert GroupConfig.part_of(BrokerConfig.resolve({})) == GroupConfig()
    assert replace(part, group_max_size=8) != part
    assert replace(part, group_max_size=7) == part
    assert "group_max_size=7" in repr(part)
    assert "static" not in repr(broker), "what was written into the file may have secrets"
    with pytest.raises(TypeError, match="group_max_sizes"):
        GroupConfig.of({"group_max_sizes": 1})


def test_each_view_gets_its_own_unshared_defaults() -> None:
    class Own(ClassicGroups, View):
        members: list[str] = fresh(list)

    one, other = Own(), Own.part_of(BrokerConfig.resolve({}))
    one.members.append("a")
    assert (one.members, other.members, replace(one, group_max_size=1).members) == (["a"], [], ["a"])


def test_a_property_cannot_be_declared_twice() -> None:
    with pytest.raises(AssertionError, match=r"group\.max\.size is declared twice"):

        class _(ClassicGroups):
            another: int = prop("group.max.size", Kind.INT, 1, None, "Once more.")


def test_attributes_have_the_types_they_declare() -> None:
    broker = BrokerConfig.resolve({})
    for config in (broker, broker.topic_defaults):
        for name, declared in typing.get_type_hints(type(config)).items():
            if declared is type(None):
                assert not hasattr(config, name), name
                continue
            value = getattr(config, name)
            if declared in (int, bool, str):
                assert type(value) is declared, name
            elif declared == tuple[str, ...]:
                assert all(type(item) is str for item in value), name
            elif declared == tuple[Endpoint, ...]:
                assert all(type(item) is Endpoint for item in value), name


def test_a_config_is_never_changed() -> None:
    broker = BrokerConfig.resolve({})
    with pytest.raises(AttributeError):
        broker.num_partitions = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        broker.topic_defaults.retention_ms = 5  # type: ignore[misc]


def test_the_import_brings_nothing_heavy() -> None:
    heavy = ("asyncio", "confluent_kafka", "dataclasses", "difflib", "inspect", "msgspec", "rich", "typer")
    program = f"import sys, penstock.config; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

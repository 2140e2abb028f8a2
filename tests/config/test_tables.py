"""The tables agree with each other and with the typed configs."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from penstock.config import (
    BROKER,
    INERT,
    NOT_YET,
    SETTABLE,
    TOPIC,
    WITHOUT_MEANING,
    BrokerConfig,
    Endpoint,
    TopicConfig,
)
from penstock.config.broker_table import SYNONYM_CHAIN
from penstock.config.definitions import parse, render
from penstock.config.moving_table import THROTTLED_TOPICS
from penstock.config.topic_table import BROKER_NAME, UNSERVED_BROKER_NAME
from penstock.config.unserved import refusal

# Properties that are told under another name, parsed further, or that only feed into others.
WITHOUT_ATTRIBUTE = {
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "log.dirs",
    "log.flush.scheduler.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.roll.hours",
    "log.roll.jitter.hours",
}
NOT_PROPERTIES = {
    "controller_listeners", "dynamic_broker", "dynamic_default", "quorum_servers", "quorum_voters", "static",
    "topic_defaults", "values", "warnings",
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
    attributes = {definition.attribute for name, definition in BROKER.items() if name not in WITHOUT_ATTRIBUTE}
    assert attributes == set(BrokerConfig.__slots__) - NOT_PROPERTIES


def test_every_topic_property_has_its_attribute_and_its_broker_property() -> None:
    attributes = {d.attribute for d in TOPIC.values() if not d.only_default and not d.hidden}
    assert attributes == set(TopicConfig.__slots__)
    # Which replicas are throttled is a matter of the topic alone.
    assert {TOPIC[name].attribute for name in BROKER_NAME} == attributes - {d.attribute for d in THROTTLED_TOPICS}
    assert set(BROKER_NAME.values()) <= set(BROKER)
    assert set(UNSERVED_BROKER_NAME.values()) <= {*NOT_YET, *INERT}


def test_a_topic_default_is_its_broker_propertys_default() -> None:
    for name, origin in BROKER_NAME.items():
        assert TOPIC[name].kind == BROKER[origin].kind
        if origin not in SYNONYM_CHAIN:
            assert TOPIC[name].default == BROKER[origin].default, name
    broker = BrokerConfig.resolve({})
    for name in BROKER_NAME:
        assert getattr(broker.topic_defaults, TOPIC[name].attribute) == TOPIC[name].default, name


def test_attributes_have_the_types_they_declare() -> None:
    broker = BrokerConfig.resolve({})
    for config in (broker, broker.topic_defaults):
        for name, declared in typing.get_type_hints(type(config)).items():
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
        broker.num_partitions = 5
    with pytest.raises(AttributeError):
        broker.topic_defaults.retention_ms = 5


def test_the_import_brings_nothing_heavy() -> None:
    heavy = ("asyncio", "confluent_kafka", "dataclasses", "difflib", "inspect", "msgspec", "rich", "typer")
    program = f"import sys, penstock.config; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

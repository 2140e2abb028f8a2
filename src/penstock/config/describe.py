"""The content of DescribeConfigs: each property's value, its source, and the values it overrides."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from penstock.config.broker import BrokerConfig
from penstock.config.broker_table import BROKER, SYNONYM_CHAIN
from penstock.config.client_metrics import CLIENT_METRICS
from penstock.config.definitions import Definition, Kind, UpdateMode, Value, parse, render
from penstock.config.group import GROUP
from penstock.config.inert_table import SETTABLE
from penstock.config.topic import TOPIC, TopicConfig


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are the protocol's."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """A source of the value, or one that would apply if stronger ones did not."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    kind: Kind
    documentation: str


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedConfig]:
    """All properties of a topic with these overrides, by name."""
    config = TopicConfig.resolve(overrides, broker)
    described = []
    for name, definition in TOPIC.items():
        if definition.hidden:
            continue
        is_own = definition.origin not in BROKER
        value = parse(definition, overrides.get(name)) if is_own else getattr(config, definition.attribute)
        synonyms = _topic_synonyms(definition, broker)
        if name in overrides:
            synonyms = (Synonym(name, render(value), ConfigSource.TOPIC_CONFIG), *synonyms)
        described.append(_describe(definition, value, synonyms, read_only=False))
    return described


def describe_broker(broker: BrokerConfig) -> list[DescribedConfig]:
    """All properties of a broker, by name."""
    return [
        _describe(
            SETTABLE[name],
            broker.values[name],
            _broker_synonyms(name, broker),
            read_only=SETTABLE[name].mode is UpdateMode.READ_ONLY,
        )
        for name in sorted(SETTABLE)
        if not SETTABLE[name].hidden
    ]


def describe_broker_defaults(broker: BrokerConfig) -> list[DescribedConfig]:
    """Only what was set at run time for all brokers, which is Kafka's answer for the empty broker name."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        _describe(SETTABLE[name], parse(SETTABLE[name], text), (Synonym(name, text, source),), read_only=False)
        for name, text in sorted(broker.dynamic_default.items())
        if name in SETTABLE
    ]


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedConfig]:
    """All properties of a group with these overrides, by name."""
    described = []
    for name, definition in GROUP.items():
        synonyms = _broker_synonyms(definition.origin, broker)
        value = broker.values[definition.origin]
        if name in overrides:
            value = parse(definition, overrides[name])
            synonyms = (Synonym(name, render(value), ConfigSource.GROUP_CONFIG), *synonyms)
        described.append(_describe(definition, value, synonyms, read_only=False))
    return described


def describe_client_metrics(settings: Mapping[str, str]) -> list[DescribedConfig]:
    """The settings of a subscription to client metrics; none if there is no such subscription."""
    if not settings:
        return []
    described = []
    for name, definition in CLIENT_METRICS.items():
        synonyms: tuple[Synonym, ...] = ()
        if name in settings:
            synonyms = (Synonym(name, settings[name], ConfigSource.CLIENT_METRICS_CONFIG),)
        described.append(_describe(definition, parse(definition, settings.get(name)), synonyms, read_only=False))
    return described


def _describe(
    definition: Definition, value: Value, synonyms: tuple[Synonym, ...], *, read_only: bool
) -> DescribedConfig:
    return DescribedConfig(
        name=definition.name,
        value=None if definition.sensitive else render(value),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=definition.sensitive,
        synonyms=tuple(s._replace(value=None) for s in synonyms) if definition.sensitive else synonyms,
        kind=definition.kind,
        documentation=definition.doc,
    )


def _topic_synonyms(definition: Definition, broker: BrokerConfig) -> tuple[Synonym, ...]:
    origin = definition.origin
    if origin in BROKER:
        # As in Kafka only the property's own default is listed: `retention.ms` takes its 168 hours from
        # `log.retention.hours`, but that one is listed only for brokers.
        synonyms = _broker_synonyms(origin, broker)
        return tuple(s for s in synonyms if s.source != ConfigSource.DEFAULT_CONFIG or s.name == origin)
    if origin:
        # The broker property is not supported itself; it is listed because tools compare synonyms.
        return (Synonym(origin, render(definition.default), ConfigSource.DEFAULT_CONFIG),)
    return ()


def _broker_synonyms(name: str, broker: BrokerConfig) -> tuple[Synonym, ...]:
    """All sources of a broker property, strongest first: level by level, and within a level the property before its
    fallbacks."""
    chain = [link for link, _ in SYNONYM_CHAIN.get(name, ((name, 1),))]
    chain = chain[chain.index(name) :]
    levels: tuple[tuple[Mapping[str, str], ConfigSource], ...] = (
        (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
    )
    synonyms = [
        Synonym(link, level[link].strip(), source) for level, source in levels for link in chain if link in level
    ]
    synonyms += [
        Synonym(link, render(SETTABLE[link].default), ConfigSource.DEFAULT_CONFIG)
        for link in chain
        if SETTABLE[link].default is not None
    ]
    return tuple(synonyms)

"""The operations of IncrementalAlterConfigs on a resource's own settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from penstock.config.broker import BrokerConfig, validate_broker_configs
from penstock.config.client_metrics import CLIENT_METRICS, subscription
from penstock.config.definitions import Definition, Kind, render
from penstock.config.group import GROUP, validate_group_configs
from penstock.config.inert_table import SETTABLE
from penstock.config.topic import TOPIC, validate_topic_configs
from penstock.wire.errors import ErrorCode, KafkaError


class AlterOperation(IntEnum):
    """What to do with a setting; the numbers are the protocol's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    name: str
    operation: int
    value: str | None = None


def alter_topic(overrides: Mapping[str, str], alterations: Iterable[Alteration]) -> dict[str, str]:
    """A topic's own settings after the alterations. Raises KafkaError if one of them, or the result, is invalid."""
    altered = _apply(overrides, alterations, TOPIC)
    validate_topic_configs(altered)
    return altered


def alter_broker(
    settings: Mapping[str, str], alterations: Iterable[Alteration], broker: BrokerConfig, *, per_broker: bool
) -> dict[str, str]:
    """The dynamic settings of one broker (or, with `per_broker` false, of all) after the alterations."""
    altered = _apply(settings, alterations, SETTABLE)
    validate_broker_configs(altered, broker, per_broker=per_broker)
    return altered


def alter_group(settings: Mapping[str, str], alterations: Iterable[Alteration], broker: BrokerConfig) -> dict[str, str]:
    """A group's own settings after the alterations."""
    altered = _apply(settings, alterations, GROUP)
    validate_group_configs(altered, broker)
    return altered


def alter_client_metrics(name: str, settings: Mapping[str, str], alterations: Iterable[Alteration]) -> dict[str, str]:
    """The settings of a subscription to client metrics after the alterations."""
    altered = _apply(settings, alterations, CLIENT_METRICS)
    subscription(name, altered)
    return altered


def _apply(
    settings: Mapping[str, str], alterations: Iterable[Alteration], definitions: Mapping[str, Definition]
) -> dict[str, str]:
    altered = dict(settings)
    seen: dict[str, None] = {}
    for name, operation, value in alterations:
        if name in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The config {name} occurs twice in one request")
        seen[name] = None
        if operation == AlterOperation.DELETE:
            altered.pop(name, None)
            continue
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {name}")
        if operation == AlterOperation.SET:
            altered[name] = value
        elif operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            items = _items(name, altered.get(name), definitions)
            given = [item.strip() for item in value.split(",")]
            if operation == AlterOperation.APPEND:
                items += [item for item in given if item not in items]
            else:
                items = [item for item in items if item not in given]
            altered[name] = ",".join(items)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} for the config {name}")
    return altered


def _items(name: str, text: str | None, definitions: Mapping[str, Definition]) -> list[str]:
    """The current elements of a list property; those of its default if it is not set."""
    definition = definitions.get(name)
    if definition is None or definition.kind is not Kind.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't APPEND to or SUBTRACT from key {name} because its type is not LIST."
        )
    if text is None:
        text = render(definition.default) or ""
    return [item.strip() for item in text.split(",") if item.strip()]

"""Settings of single groups (resource type GROUP), over what their broker gives all groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.config.definitions import Definition, UpdateMode, parse
from penstock.config.group_table import CONSUMER_GROUPS
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.config.broker import BrokerConfig

_PREFIX = "group."
_CONSUMER = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
)
_BROKER_DEFINITIONS = {definition.name: definition for definition in CONSUMER_GROUPS}

GROUP: dict[str, Definition] = {
    name: _BROKER_DEFINITIONS[_PREFIX + name]._replace(name=name, mode=UpdateMode.CLUSTER_WIDE) for name in _CONSUMER
}
GROUP_BROKER_NAME: dict[str, str] = {name: _PREFIX + name for name in GROUP}
"""The broker property that gives a group property its default."""

UNSERVED_GROUP_PREFIXES = {
    "share.": "share groups are not served yet",
    "streams.": "streams groups are not served yet",
}


def validate_group_configs(settings: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Refuse, with KafkaError(INVALID_CONFIG), what a group could not have on this broker."""
    values: dict[str, int] = {}
    for name, text in settings.items():
        definition = GROUP.get(name)
        if definition is None:
            reason = next((said for prefix, said in UNSERVED_GROUP_PREFIXES.items() if name.startswith(prefix)), None)
            raise _invalid(f"Unknown group config name: {name}" if reason is None else f"{name} is refused: {reason}")
        try:
            value = parse(definition, text)
        except ValueError as error:
            raise _invalid(f"Invalid value {text} for configuration {name}: {error}") from None
        assert isinstance(value, int)
        values[name] = value
        _check_limits(name, value, broker)
    session_ms = values.get("consumer.session.timeout.ms", broker.group_consumer_session_timeout_ms)
    heartbeat_ms = values.get("consumer.heartbeat.interval.ms", broker.group_consumer_heartbeat_interval_ms)
    if session_ms <= heartbeat_ms:
        raise _invalid("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")


def _check_limits(name: str, value: int, broker: BrokerConfig) -> None:
    for word, bound in (("greater", "min"), ("less", "max")):
        limit = f"group.consumer.{bound}.{name.removeprefix('consumer.')}"
        allowed = broker.values[limit]
        assert isinstance(allowed, int)
        if value < allowed if bound == "min" else value > allowed:
            raise _invalid(f"{name} must be {word} than or equal to {limit}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)

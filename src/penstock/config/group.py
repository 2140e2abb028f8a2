"""Settings of single groups (resource type GROUP), which override the broker's settings for all groups."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from penstock.config.definitions import Definition, UpdateMode, parse
from penstock.config.group_table import ConsumerGroups
from penstock.config.tables import View
from penstock.wire.errors import ErrorCode, KafkaError


def of_broker(name: str) -> Any:
    """Declare a property with the type, default and meaning of the broker property `group.<name>`."""
    origin = ConsumerGroups.definitions[f"group.{name}"]
    return origin._replace(name=name, origin=origin.name, mode=UpdateMode.CLUSTER_WIDE)


class GroupSettings(View):
    """The effective settings of one group: its own, or the broker's."""

    session_timeout_ms: int = of_broker("consumer.session.timeout.ms")
    heartbeat_interval_ms: int = of_broker("consumer.heartbeat.interval.ms")
    assignment_interval_ms: int = of_broker("consumer.assignment.interval.ms")

    @classmethod
    def resolve(cls, own: Mapping[str, str], broker: ConsumerGroups) -> GroupSettings:
        """A group's own values are clamped to the broker's limits, which may have changed since they were set."""
        # Called for every heartbeat, so it avoids the general constructor, which takes several times as long.
        settings = cls.__new__(cls)
        session_ms, heartbeat_ms, assignment_ms = _broker_defaults(broker)
        _FILL(settings, "session_timeout_ms", session_ms)
        _FILL(settings, "heartbeat_interval_ms", heartbeat_ms)
        _FILL(settings, "assignment_interval_ms", assignment_ms)
        for name in own:
            found = _BROKER_ATTRIBUTES.get(name)
            # An unknown name, set by another version, must not make heartbeats fail.
            if found is not None:
                value = min(max(int(own[name]), getattr(broker, found.least)), getattr(broker, found.most))
                _FILL(settings, found.attribute, value)
        return settings


_FILL = object.__setattr__
GROUP: dict[str, Definition] = dict(sorted(GroupSettings.definitions.items()))


def _limit(name: str, which: str) -> str:
    """The broker property that bounds a group property: `group.consumer.min.session.timeout.ms`."""
    return f"group.consumer.{which}.{name.removeprefix('consumer.')}"


class _BrokerAttributes(NamedTuple):
    """A group's attribute, and the broker attributes with its default and limits."""

    attribute: str
    default: str
    least: str
    most: str


_BROKER_ATTRIBUTES = {
    name: _BrokerAttributes(
        definition.attribute,
        *(
            ConsumerGroups.definitions[one].attribute
            for one in (definition.origin, _limit(name, "min"), _limit(name, "max"))
        ),
    )
    for name, definition in GROUP.items()
}

_broker_defaults = attrgetter(*(_BROKER_ATTRIBUTES[name].default for name in GroupSettings.definitions))

UNSERVED_GROUP_PREFIXES = {
    "share.": "share groups are not supported yet",
    "streams.": "streams groups are not supported yet",
}


def validate_group_configs(settings: Mapping[str, str | None], broker: ConsumerGroups) -> None:
    """Raises KafkaError(INVALID_CONFIG) if a group could not have these settings on this broker."""
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


def _check_limits(name: str, value: int, broker: ConsumerGroups) -> None:
    bounds = _BROKER_ATTRIBUTES[name]
    if value < getattr(broker, bounds.least):
        raise _invalid(f"{name} must be greater than or equal to {_limit(name, 'min')}")
    if value > getattr(broker, bounds.most):
        raise _invalid(f"{name} must be less than or equal to {_limit(name, 'max')}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)

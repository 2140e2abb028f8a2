"""What holds for one group: the broker's settings, unless the group has its own (configurations of type GROUP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.coordinators.groups.config import GroupConfig
from penstock.metadata import MetadataImage, ResourceType


class GroupSettings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def settings_of(group_id: str, config: GroupConfig, image: MetadataImage) -> GroupSettings:
    """A group's own values count as far as the broker's limits go."""
    session_ms = config.group_consumer_session_timeout_ms
    heartbeat_ms = config.group_consumer_heartbeat_interval_ms
    assignment_ms = config.group_consumer_assignment_interval_ms
    own = image.config(ResourceType.GROUP, group_id)
    if own:
        session_ms = _own(
            own,
            "consumer.session.timeout.ms",
            session_ms,
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        )
        heartbeat_ms = _own(
            own,
            "consumer.heartbeat.interval.ms",
            heartbeat_ms,
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        )
        assignment_ms = _own(
            own,
            "consumer.assignment.interval.ms",
            assignment_ms,
            config.group_consumer_min_assignment_interval_ms,
            config.group_consumer_max_assignment_interval_ms,
        )
    return GroupSettings(session_ms, heartbeat_ms, assignment_ms)


def _own(own: Mapping[str, str], name: str, default: int, at_least: int, at_most: int) -> int:
    value = own.get(name)
    return default if value is None else min(max(int(value), at_least), at_most)

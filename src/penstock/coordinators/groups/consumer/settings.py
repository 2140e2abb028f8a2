"""The settings of one group: those of the broker, unless overridden for the group (configurations of type GROUP)."""

from __future__ import annotations

from penstock.config.group import GroupSettings
from penstock.coordinators.groups.config import GroupConfig
from penstock.metadata import MetadataImage, ResourceType


def settings_of(group_id: str, config: GroupConfig, image: MetadataImage) -> GroupSettings:
    return GroupSettings.resolve(image.config(ResourceType.GROUP, group_id), config)

"""The settings of groups."""

from __future__ import annotations

from penstock.config.group_table import ClassicGroups, ConsumerGroups, Offsets
from penstock.config.tables import View, fresh, replace
from penstock.coordinators.groups.memory import GroupMemory

__all__ = ["GroupConfig", "replace"]


class GroupConfig(ClassicGroups, ConsumerGroups, Offsets, View):
    """The settings of all groups of a broker; `GroupConfig.part_of` takes them from the broker's."""

    memory: GroupMemory = fresh(GroupMemory)
    """Memory in use by all groups of the broker, and its limit."""
    batch_bytes_max: int = 1_048_588
    """`max.message.bytes` of the offsets topic: the records of one decision must not be larger."""

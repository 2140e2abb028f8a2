"""What can be set about groups."""

from __future__ import annotations

from penstock.config.group_table import ClassicGroups, ConsumerGroups, Offsets
from penstock.config.tables import View, fresh, replace
from penstock.coordinators.groups.memory import GroupMemory

__all__ = ["GroupConfig", "replace"]


class GroupConfig(ClassicGroups, ConsumerGroups, Offsets, View):
    """The settings of all groups of a broker; `GroupConfig.part_of` takes them from the broker's."""

    memory: GroupMemory = fresh(GroupMemory)
    """What all groups of the broker take, and may take."""
    batch_bytes_max: int = 1_048_588
    """`max.message.bytes` of the offsets topic: a decision whose records are larger could never be written."""

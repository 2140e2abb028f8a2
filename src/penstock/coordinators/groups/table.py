"""All groups of a shard, of both protocols, with their offsets and the settings in force.

The modules that serve requests share only this table; none of them refers to the shard.

A classic group's record is kept undecoded until the group is first used, or until the background decoding soon after
the load (`GroupShard.on_loaded`). So only the last of a group's records is ever decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from penstock.coordinators.groups.classic_group import ClassicGroup
from penstock.coordinators.groups.config import GroupConfig
from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.offsets import Offsets
from penstock.coordinators.groups.records import decode_group
from penstock.coordinators.shard import Turn

GROUPS_PER_SHARD_MAX: Final = 1_000_000

AnyGroup = ClassicGroup | ConsumerGroup


class GroupTable:
    """`resume` is called with each classic group that was loaded, when it is decoded."""

    def __init__(self, config: GroupConfig, resume: Callable[[Turn, ClassicGroup], None]) -> None:
        self.config = config
        self.groups: dict[str, AnyGroup] = {}
        """Decoded groups. `find` also finds groups that are loaded but not decoded yet."""
        self.offsets = Offsets(config.memory)
        self._resume = resume
        self._undecoded: dict[str, bytes] = {}

    # -- queries -----------------------------------------------------------------------------------------------------

    def find(self, turn: Turn, group_id: str) -> AnyGroup | None:
        """The group, if it exists: of either protocol, or a simple group that has only offsets."""
        group = self.find_managed(turn, group_id)
        if group is None and self.offsets.knows(group_id):
            group = self.groups[group_id] = ClassicGroup(group_id, turn.wall_ms)
        return group

    def find_managed(self, turn: Turn, group_id: str) -> AnyGroup | None:
        """Like `find`, but without simple groups: thousands of groups that only commit need no object each."""
        group = self.groups.get(group_id)
        if group is None:
            value = self._undecoded.pop(group_id, None)
            if value is not None:
                group = self.groups[group_id] = decode_group(group_id, value)
                self._resume(turn, group)
        return group

    def classic(self, group_id: str) -> ClassicGroup | None:
        """A classic group that is decoded already: for timers."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def group_ids(self) -> list[str]:
        """The ids of all groups, in a deterministic order."""
        return list(dict.fromkeys([*self.groups, *self._undecoded, *self.offsets.groups]))

    def has(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self._undecoded or group_id in self.offsets.groups

    def has_room(self) -> bool:
        known = len(self.groups) + len(self._undecoded)
        return max(known, len(self.offsets.groups)) < GROUPS_PER_SHARD_MAX and not self.config.memory.is_full

    @property
    def undecoded_bytes(self) -> int:
        """Size of the groups that are loaded but not decoded yet. It shrinks soon after the load."""
        return sum(map(len, self._undecoded.values()))

    def classic_groups(self) -> dict[str, ClassicGroup]:
        """All classic groups that have or had a record, by name. Does not call `resume`."""
        found = {group_id: decode_group(group_id, value) for group_id, value in self._undecoded.items()}
        found |= {group_id: group for group_id, group in self.groups.items() if isinstance(group, ClassicGroup)}
        return dict(sorted(found.items()))

    # -- changes -----------------------------------------------------------------------------------------------------

    def add(self, group: AnyGroup) -> None:
        """Add a group that is new, or that replaces one of the other protocol."""
        assert type(self.groups.get(group.group_id)) is not type(group), f"{group.group_id} would be overwritten"
        self.groups[group.group_id] = group

    def remove(self, group: AnyGroup) -> None:
        assert self.groups.get(group.group_id) is group, f"{group.group_id} was removed already, or replaced"
        del self.groups[group.group_id]

    def clear(self) -> None:
        self.groups.clear()
        self.offsets.discard()
        self._undecoded.clear()

    # -- loading -----------------------------------------------------------------------------------------------------

    def load_classic(self, group_id: str, value: bytes | None) -> None:
        """Load a record of a classic group; None is its tombstone."""
        if value is None:
            self._undecoded.pop(group_id, None)
        else:
            self._undecoded[group_id] = value

    def decode_some(self, turn: Turn, count: int) -> bool:
        """Decode up to `count` groups. True if more remain."""
        for group_id in list(islice(self._undecoded, count)):
            self.find_managed(turn, group_id)
        return bool(self._undecoded)

"""All groups of a shard, whatever their protocol, with their offsets and the settings in force.

What serves requests shares this table and nothing else: none of the helpers knows the shard.

A classic group's record is kept as it was read until somebody asks for the group, or until it is decoded in the
background soon after the load (`GroupShard.on_loaded`); only the last of a group's records is ever decoded.
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
        """Those that were asked for. See `find`, which also knows those that were only loaded."""
        self.offsets = Offsets(config.memory)
        self._resume = resume
        self._undecoded: dict[str, bytes] = {}

    # -- questions ---------------------------------------------------------------------------------------------------

    def find(self, turn: Turn, group_id: str) -> AnyGroup | None:
        """The group, if there is one: of either protocol, or a simple one that has nothing but offsets."""
        group = self.find_managed(turn, group_id)
        if group is None and self.offsets.knows(group_id):
            group = self.groups[group_id] = ClassicGroup(group_id, turn.wall_ms)
        return group

    def find_managed(self, turn: Turn, group_id: str) -> AnyGroup | None:
        """The same without simple groups: thousands of them need no object each, as long as they just commit."""
        group = self.groups.get(group_id)
        if group is None:
            value = self._undecoded.pop(group_id, None)
            if value is not None:
                group = self.groups[group_id] = decode_group(group_id, value)
                self._resume(turn, group)
        return group

    def classic(self, group_id: str) -> ClassicGroup | None:
        """One that is known to have been found before: for timers."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def group_ids(self) -> list[str]:
        """All groups there are, in an order that only depends on what happened."""
        return list(dict.fromkeys([*self.groups, *self._undecoded, *self.offsets.groups]))

    def has_room(self) -> bool:
        known = len(self.groups) + len(self._undecoded)
        return max(known, len(self.offsets.groups)) < GROUPS_PER_SHARD_MAX and not self.config.memory.is_full

    @property
    def undecoded_bytes(self) -> int:
        """Groups that were loaded and have not been looked at yet: soon there are few."""
        return sum(map(len, self._undecoded.values()))

    def classic_groups(self) -> dict[str, ClassicGroup]:
        """All that are or were written down, in the order of their names. Nothing is resumed by looking at them."""
        found = {group_id: decode_group(group_id, value) for group_id, value in self._undecoded.items()}
        found |= {group_id: group for group_id, group in self.groups.items() if isinstance(group, ClassicGroup)}
        return dict(sorted(found.items()))

    # -- changes -----------------------------------------------------------------------------------------------------

    def add(self, group: AnyGroup) -> None:
        """A group that is new, or follows upon one of the other protocol."""
        assert type(self.groups.get(group.group_id)) is not type(group), f"{group.group_id} would be forgotten"
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
        """A record of a classic group, None for its tombstone."""
        if value is None:
            self._undecoded.pop(group_id, None)
        else:
            self._undecoded[group_id] = value

    def decode_some(self, turn: Turn, count: int) -> bool:
        """True while there are more."""
        for group_id in list(islice(self._undecoded, count)):
            self.find_managed(turn, group_id)
        return bool(self._undecoded)

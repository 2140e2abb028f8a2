"""The memory that groups take, as one number for all shards of a broker, and its limit.

Committed offsets are counted as they come and go: their bytes, and what the objects around them take. Members are
counted when they are let in. That they leave is not told here; instead all groups are weighed again
(`weighing.weigh`, in slices) whenever much has been let in since the last time, and before anyone is refused for long.

Beyond the limit (`penstock.group.state.bytes.max`) there are no new groups, members or offsets. What is there stays,
and goes on: heartbeats, rebalances, and commits that replace offsets by others of the same size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WEIGHED_AFTER_SHARE: Final = 16
"""All is weighed again once a sixteenth of the limit has been let in."""

UNLIMITED: Final = 1 << 62


class GroupMemory:
    """Shared by all shards of a broker."""

    __slots__ = ("_admitted", "_admitted_before", "_is_weighing", "_weighed", "bytes_max", "offsets", "weigh_soon")

    def __init__(self, bytes_max: int = UNLIMITED) -> None:
        self.bytes_max = bytes_max
        self.offsets = 0
        """Bytes of all committed offsets."""
        self._weighed = 0
        """Bytes of all groups and members, when they were weighed last."""
        self._admitted = 0
        """What was let in since then."""
        self._admitted_before = 0
        self._is_weighing = False
        self.weigh_soon: Callable[[], None] = lambda: None
        """Asks for all groups to be weighed; `weighing` and `weighed` follow."""

    def __eq__(self, other: object) -> bool:
        """As part of a configuration: equal limits are equal settings, whatever is used of them."""
        return isinstance(other, GroupMemory) and self.bytes_max == other.bytes_max

    __hash__ = object.__hash__

    @property
    def used(self) -> int:
        return self.offsets + self._weighed + self._admitted

    @property
    def is_full(self) -> bool:
        if self.used < self.bytes_max:
            return False
        self._weigh()
        return True

    def admit(self, growth: int) -> bool:
        """Let in what takes so much more. False: there is no room for it."""
        if growth <= 0:
            return True
        if self.used + growth > self.bytes_max:
            self._weigh()
            return False
        self._admitted += growth
        if self._admitted > self.bytes_max // WEIGHED_AFTER_SHARE:
            self._weigh()
        return True

    def _weigh(self) -> None:
        # Whoever is not let in may try again at once; nothing has changed unless something came or went.
        if not self._is_weighing:
            self._is_weighing = True
            self.weigh_soon()

    def weighing(self) -> None:
        """From now on: what is let in meanwhile may or may not be part of the sum, and is counted as if it were not."""
        self._admitted_before = self._admitted

    def weighed(self, total: int) -> None:
        self._weighed = total
        self._admitted -= self._admitted_before
        self._is_weighing = False

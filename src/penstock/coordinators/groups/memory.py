"""The memory in use by groups, as one number for all shards of a broker, and its limit.

Committed offsets are counted as they come and go: their bytes and the overhead of their objects. Members are counted
when they join, but not when they leave. Instead all groups are measured again (`weighing.weigh`, in slices) after
enough new members have been admitted, and soon after a request was refused.

Above the limit (`penstock.group.state.bytes.max`) new groups, members and offsets are refused. Existing groups continue
to work: heartbeats, rebalances, and commits that replace offsets by others of the same size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WEIGHED_AFTER_SHARE: Final = 16
"""Measure all groups again once a sixteenth of the limit has been admitted."""

UNLIMITED: Final = 1 << 62


class GroupMemory:
    """Shared by all shards of a broker."""

    __slots__ = ("_admitted", "_admitted_before", "_is_weighing", "_weighed", "bytes_max", "offsets", "weigh_soon")

    def __init__(self, bytes_max: int = UNLIMITED) -> None:
        self.bytes_max = bytes_max
        self.offsets = 0
        """Bytes of all committed offsets."""
        self._weighed = 0
        """Bytes of all groups and members at the last measurement."""
        self._admitted = 0
        """Bytes admitted since then."""
        self._admitted_before = 0
        self._is_weighing = False
        self.weigh_soon: Callable[[], None] = lambda: None
        """Requests a measurement of all groups; calls of `weighing` and `weighed` follow."""

    def __eq__(self, other: object) -> bool:
        """Equal if the limits are equal, whatever is in use: this is part of a configuration."""
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
        """Admit `growth` more bytes. False: there is no room for them."""
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
        # A refused client may retry at once; measuring again is useless unless something has changed.
        if not self._is_weighing:
            self._is_weighing = True
            self.weigh_soon()

    def weighing(self) -> None:
        """A measurement starts. Bytes admitted during it are counted in addition, as it may have missed them."""
        self._admitted_before = self._admitted

    def weighed(self, total: int) -> None:
        self._weighed = total
        self._admitted -= self._admitted_before
        self._is_weighing = False

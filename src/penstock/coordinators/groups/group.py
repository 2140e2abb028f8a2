"""What the shard asks of a group of either protocol."""

from __future__ import annotations

from typing import Protocol


class Group(Protocol):
    """Offsets, listing and deletion are alike for all kinds of groups, given the answers to these questions."""

    group_id: str

    @property
    def is_empty(self) -> bool:
        """Nobody is a member."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Offsets of such a topic neither expire nor can be deleted."""

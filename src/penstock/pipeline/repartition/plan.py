"""How far a repartitioning came: pure data and its transitions. `ledger` keeps it."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec

FORMAT: Final = 1
WAYPOINT_NUMBERS_MAX: Final = 20_000
"""Offsets that all waypoints hold together: the plan must fit one record of the ledger."""
PARTITIONS_MAX: Final = 5_000
"""Of both topics together, for the same reason."""

PARTITIONERS: Final = ("murmur2_random", "consistent_random", "fnv1a_random")
"""Where Java's, librdkafka's and Sarama's producers place keys, by librdkafka's names."""

Offsets = tuple[int, ...]
"""An offset for each partition of a topic."""


class RepartitionError(Exception):
    """A step that cannot be done; the message says what to do."""


class TakenOver(RepartitionError):
    """Another run goes on with the repartitioning."""


class Phase(enum.StrEnum):
    PREPARING = "preparing"
    COPYING = "copying"
    FENCING = "fencing"
    DRAINING = "draining"
    SWITCHED = "switched"
    DONE = "done"
    ABORTING = "aborting"
    ABORTED = "aborted"

    @property
    def is_over(self) -> bool:
        return self in (Phase.DONE, Phase.ABORTED)

    @property
    def has_switched(self) -> bool:
        """Producers may have written to the new topic: there is no way back."""
        return self in (Phase.SWITCHED, Phase.DONE)


@dataclass(frozen=True, slots=True)
class RepartitionOrder:
    """What was asked for."""

    source: str
    partitions: int
    target: str = ""
    partitioner: str = "murmur2_random"

    @property
    def target_name(self) -> str:
        return self.target or f"{self.source}.p{self.partitions}"


class Fence(msgspec.Struct, frozen=True):
    """How the old topic was made read-only: a setting, and its value before (None if it had none of its own)."""

    setting: str
    value: str
    before: str | None = None


class Chunk(msgspec.Struct, frozen=True):
    """Records that are copied together: those from the plan's positions to `ends`."""

    ends: Offsets
    target_ends: Offsets
    """Where the new topic's partitions ended before the first of them was written."""
    leased_until_ms: int = 0
    """When the last task that was started for them stops writing."""


class Waypoint(msgspec.Struct, frozen=True, array_like=True):
    """When the old topic was copied up to `source`, the new one ended at `target`."""

    source: Offsets
    target: Offsets


class GroupMoved(msgspec.Struct, frozen=True):
    """A group's position in the old topic, and the one that it was given in the new one."""

    source: dict[int, int]
    target: Offsets
    read_again: int
    """Records behind the new position that the group had read in the old topic."""
    note: str = ""


class RepartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    id: str
    """In the header of each copied record."""
    owner: str
    """The run that may write."""
    source: str
    target: str
    partitions: int
    partitioner: str
    phase: Phase = Phase.PREPARING
    starts: Offsets = ()
    positions: Offsets = ()
    """Everything before these is in the new topic."""
    chunk: Chunk | None = None
    written: int = 0
    expired: int = 0
    """Offsets that retention removed from the old topic before they were copied."""
    waypoints: tuple[Waypoint, ...] = ()
    fence: Fence | None = None
    later_settings: dict[str, str | None] = {}
    """Settings that the new topic gets at the switch (None: the cluster's own): they would change copied records."""
    started_ms: int = 0
    fenced_ms: int = 0
    switched_ms: int = 0
    switch_ends: Offsets = ()
    """Where the new topic ended when the last record of the old one had been copied."""
    announced: bool = False
    """The hook that tells producers of the switch has run."""
    groups: dict[str, GroupMoved] = {}

    @classmethod
    def new(cls, order: RepartitionOrder, owner: str, now_ms: int) -> Self:
        return cls(
            id=uuid.uuid4().hex[:12],
            owner=owner,
            source=order.source,
            target=order.target_name,
            partitions=order.partitions,
            partitioner=order.partitioner,
            started_ms=now_ms,
        )

    def changed(self, **changes: Any) -> RepartitionPlan:
        return msgspec.structs.replace(self, **changes)

    # Copying

    def backlog(self, ends: Sequence[int]) -> int:
        """Offsets that are still to be copied."""
        return sum(max(0, end - position) for end, position in zip(ends, self.positions, strict=True))

    def next_chunk(
        self, log_starts: Sequence[int], ends: Sequence[int], target_ends: Sequence[int], records_max: int
    ) -> RepartitionPlan:
        """The plan with its next chunk: a share of each partition, by how much of it is left."""
        assert self.chunk is None, "the last chunk is not finished"
        assert records_max > 0
        # What retention has removed can only be counted.
        begins = tuple(max(pair) for pair in zip(self.positions, log_starts, strict=True))
        expired = sum(begins) - sum(self.positions)
        lefts = [max(0, end - begin) for begin, end in zip(begins, ends, strict=True)]
        total = sum(lefts)
        assert total > 0, "there is nothing to copy"
        shares = (left if total <= records_max else min(left, max(1, left * records_max // total)) for left in lefts)
        chunk = Chunk(tuple(map(sum, zip(begins, shares, strict=True))), tuple(target_ends))
        waypoints = thinned((*self.waypoints, Waypoint(begins, chunk.target_ends)))
        return self.changed(positions=begins, chunk=chunk, expired=self.expired + expired, waypoints=waypoints)

    def leased(self, until_ms: int) -> RepartitionPlan:
        assert self.chunk is not None
        return self.changed(chunk=msgspec.structs.replace(self.chunk, leased_until_ms=until_ms))

    def chunk_done(self, written: int) -> RepartitionPlan:
        assert self.chunk is not None
        return self.changed(positions=self.chunk.ends, chunk=None, written=self.written + written)

    # Groups

    def search_from(self, committed: Mapping[int, int]) -> Offsets:
        """Offsets of the new topic before which there is no record that a group with these positions has to read."""
        places = [committed.get(partition, 0) for partition in range(len(self.positions))]
        for waypoint in reversed(self.waypoints):
            if all(copied <= place for copied, place in zip(waypoint.source, places, strict=True)):
                return waypoint.target
        return (0,) * self.partitions


def thinned(waypoints: tuple[Waypoint, ...]) -> tuple[Waypoint, ...]:
    """The waypoints, or every second one if they have become too many; the newest always stays."""
    numbers = len(waypoints) * (len(waypoints[0].source) + len(waypoints[0].target))
    return waypoints if numbers <= WAYPOINT_NUMBERS_MAX else tuple(reversed(waypoints[::-1][::2]))


class _Format(msgspec.Struct, frozen=True):
    format: int


def encode(plan: RepartitionPlan) -> bytes:
    return msgspec.json.encode(plan)


def decode(data: bytes) -> RepartitionPlan:
    """The plan in a record of the ledger; RepartitionError for what is none."""
    try:
        if msgspec.json.decode(data, type=_Format).format > FORMAT:
            raise RepartitionError("the repartitioning was begun by a newer version of Penstock: go on with that one")
        return msgspec.json.decode(data, type=RepartitionPlan)
    except msgspec.DecodeError as error:
        raise RepartitionError(f"the ledger holds something that is not a plan: {error}") from None

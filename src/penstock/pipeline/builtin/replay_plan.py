"""How far a replay came: pure data, and the file that keeps it.

A replay copies ranges of offsets, settled once, in chunks. The file says what the ranges are, where the next chunk
begins, and while one is being written, which one, and where the target's partitions ended before it. After a crash the
chunk's records that did arrive are found behind those ends (each says where it came from), and only the others are
written. So no record is written twice and none is left out, on brokers without transactions too.

That holds only if nobody writes the chunk any more when the target is looked at, and of that Spark does not tell: a
task whose job failed, or whose driver died, may live on for a while. So tasks write on a lease. The file says until
when, before the first of them starts; none sends anything after that; and who goes on with the chunk waits for it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

FORMAT: Final = 1

Positions = dict[int, int]
"""Partition → offset."""


class ReplayError(Exception):
    """A replay that cannot be; the message names the thing and the fix."""


class Chunk(msgspec.Struct, frozen=True):
    """Records that are written together: those from where the replay stands to `ends`."""

    ends: Positions
    target_ends: Positions
    """Where the target's partitions ended before the first of them was written."""
    leased_until_ms: int = 0
    """When the last task that was started for them stops writing, at the latest; 0 before there was any."""


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for; a replay is continued only by the same order."""

    source: str
    target: str
    start_ms: int
    end_ms: int
    keep_partitions: bool
    keep_timestamps: bool
    trace: bool


class ReplayPlan(msgspec.Struct, frozen=True):
    format: int
    replay_id: str
    """In the header of each record that this replay writes."""
    order: Order
    starts: Positions
    ends: Positions
    positions: Positions
    """Everything before these is in the target."""
    chunk: Chunk | None = None
    written: int = 0

    @classmethod
    def new(cls, order: Order, starts: Mapping[int, int], ends: Mapping[int, int]) -> Self:
        assert starts.keys() == ends.keys()
        settled = {partition: max(starts[partition], ends[partition]) for partition in sorted(ends)}
        begins = dict(sorted(starts.items()))
        return cls(FORMAT, uuid.uuid4().hex[:12], order, begins, settled, begins)

    @property
    def is_done(self) -> bool:
        return self.positions == self.ends

    @property
    def left(self) -> int:
        """Offsets that are still to come; fewer records where the topic is compacted."""
        return sum(self.ends.values()) - sum(self.positions.values())

    def next_chunk(self, records_max: int, target_ends: Mapping[int, int]) -> ReplayPlan:
        """The plan with its next chunk: a share of each partition, by how much of it is left."""
        assert self.chunk is None, "the last chunk is not finished"
        assert records_max > 0
        total = self.left
        ends: Positions = {}
        for partition, end in self.ends.items():
            left = end - self.positions[partition]
            # At least one, or a short partition beside a long one would never be done.
            share = left if total <= records_max else min(left, max(1, left * records_max // total))
            ends[partition] = self.positions[partition] + share
        return replace_plan(self, chunk=Chunk(ends, dict(target_ends)))

    def leased(self, until_ms: int) -> ReplayPlan:
        """The plan with tasks that may write its chunk until then."""
        assert self.chunk is not None
        return replace_plan(self, chunk=msgspec.structs.replace(self.chunk, leased_until_ms=until_ms))

    def chunk_done(self, written: int) -> ReplayPlan:
        assert self.chunk is not None
        return replace_plan(self, positions=self.chunk.ends, chunk=None, written=self.written + written)


class _Format(msgspec.Struct, frozen=True):
    """What every plan has, whatever else there will be in it."""

    format: int


def replace_plan(plan: ReplayPlan, **changes: object) -> ReplayPlan:
    changed: ReplayPlan = msgspec.structs.replace(plan, **changes)
    return changed


def header_of(replay_id: str, partition: int, offset: int) -> bytes:
    """Which record of which replay this is."""
    return f"{replay_id}/{partition}/{offset}".encode()


def place_in(header: bytes, replay_id: str) -> tuple[int, int] | None:
    """(partition, offset) of a record of this replay; None if it is another's."""
    found, _, place = header.decode(errors="replace").partition("/")
    partition, _, offset = place.partition("/")
    if found != replay_id or not partition.isdecimal() or not offset.isdecimal():
        return None
    return int(partition), int(offset)


class PlanFile:
    """The plan on disk; a new one replaces the old one whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, order: Order) -> ReplayPlan | None:
        """The plan, if there is one; ReplayError if it is another replay's."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReplayError(f"cannot read {self.path}: {error.strerror}") from None
        try:
            if msgspec.json.decode(data, type=_Format).format > FORMAT:
                raise ReplayError(
                    f"{self.path} was written by a newer version of Penstock: go on with that one, or name another file"
                )
            plan = msgspec.json.decode(data, type=ReplayPlan)
        except msgspec.DecodeError:
            raise ReplayError(f"{self.path} does not hold the progress of a replay: name another file") from None
        if plan.order != order:
            told = ", ".join(
                f"{name} {getattr(plan.order, name)!r} there, {getattr(order, name)!r} here"
                for name in Order.__dataclass_fields__
                if getattr(plan.order, name) != getattr(order, name)
            )
            raise ReplayError(
                f"{self.path} holds the progress of another replay ({told}): name another file, or ask for the same"
            )
        return plan

    def save(self, plan: ReplayPlan) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.{uuid.uuid4().hex[:8]}.new")
        with beside.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""What a trial is, as data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["DAMAGE", "FILE_DAMAGE", "Fault", "Kind", "Schedule"]


class Kind(StrEnum):
    """What can happen to a node, to its disk, to its network, to its clock."""

    CRASH = "crash"
    """kill -9; back after `for_ms`."""
    CRASH_IN_WRITE = "crash in write"
    """Killed inside the `value`-th operation of its disk from now."""
    CRASH_IN_RECOVERY = "crash in recovery"
    """kill -9; back after `for_ms`, and killed again inside the `value`-th operation of its disk."""
    POWER_IN_RECOVERY = "power in recovery"
    """The same with power: gone, back after `for_ms`, and gone again inside the `value`-th operation."""
    DOUBLE_CRASH = "double crash"
    """kill -9 of it and of `other` at the same moment; both are back after `for_ms`."""
    STOP = "stop"
    """SIGTERM, and a start after `for_ms`."""
    PAUSE = "pause"
    """SIGSTOP for so long."""
    POWER = "power"
    """Power is gone: what was not synced is lost, whole, in part or torn."""
    POWER_ALL = "power everywhere"
    """All at once; only where every append is synced."""
    WIPE = "wipe"
    """Killed, and back with an empty disk."""
    SYNC_ERROR = "sync error"
    """The next sync of a file whose name has `path` in it reports EIO."""
    READ_ERROR = "read error"
    """The next `value` reads of a file whose name has `path` in it report EIO."""
    ROT = "rot"
    """Killed; before it is back, a bit of a file whose name has `path` in it flips."""
    FULL = "full disk"
    """`value` bytes are left, for so long."""
    SLOW_DISK = "slow disk"
    """Everything on its disk takes `value` times as long."""
    DELAY = "delay"
    """Whatever it sends or is sent takes `value` ms longer."""
    REORDER = "reorder"
    """Connections overtake each other by up to `value` ms."""
    RESET = "reset"
    """All its connections are reset."""
    CUT = "cut"
    """Nothing passes between it and `other`."""
    ONE_WAY = "one-way cut"
    """Nothing passes from it to `other`."""
    RING = "ring cut"
    """Every node hears one neighbour less: nothing passes from node 1 to 2, from 2 to 3, … from the last to 1; the
    other way round if `value`."""
    SPLIT = "split"
    """Nothing passes between the first `value` nodes and the others."""
    FLAP = "flapping cut"
    """Nothing passes between it and `other`, on and off, changing every `value` ms."""
    ISOLATE = "isolate"
    """Nothing passes between it and other nodes; if `value`, nor between it and clients."""
    CLOCK_JUMP = "clock jump"
    """Its wall clock is `value` ms off from now on."""
    CLOCK_RATE = "clock rate"
    """Its clock runs `value` times as fast."""
    FLIP = "flip"
    """A bit flips at `value` (a share of its length) of a file that matches `path`. Of a node that is alone."""
    TEAR = "tear"
    """A file that matches `path` ends at `value` of its length."""
    ZEROS = "zeros"
    """A file that matches `path` has only zeros from `value` of its length on, as blocks that were never written."""
    REMOVE = "remove"
    """The directory of a partition that the checkpoints know is gone."""


FILE_DAMAGE = (Kind.FLIP, Kind.TEAR, Kind.ZEROS)
DAMAGE = (*FILE_DAMAGE, Kind.REMOVE)
"""What is done to the files of a node that has ended."""


LEADER, CONTROLLER_NODE, COORDINATOR = "leader", "controller", "coordinator"
"""Who is meant at that moment, where a fault does not name a node by its number."""

METADATA = "__cluster_metadata"
OFFSETS = "__consumer_offsets"
LOAD_TOPIC = "t"


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happens. Times are from the beginning of the load."""

    at_ms: int
    kind: Kind
    node: int | str = 0
    for_ms: int = 0
    other: int = 0
    value: float = 0.0
    path: str = ""

    def __str__(self) -> str:
        told = [f"{self.at_ms:>6} ms  {self.kind.value} {self.node or ''}".rstrip()]
        told += [f"to {self.other}"] if self.other else []
        told += [f"({self.value:g})"] if self.value else []
        told += [f"in {self.path}"] if self.path else []
        told += [f"for {self.for_ms} ms"] if self.for_ms else []
        return " ".join(told)


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A trial. The seed decides all that the faults do not: who is fast, which packets meet, what a disk loses."""

    seed: int
    length_ms: int
    faults: tuple[Fault, ...]
    nodes: int = 3
    roles: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    partitions: int = 2
    groups: bool = True
    topics: bool = True
    moves: bool = False
    """Whether partitions are moved to other brokers all the time."""
    pause_ms: int = 400
    ended_by: Kind = Kind.CRASH
    """How a node that is alone ends before its files are damaged."""
    found: str = ""
    """What bug it found, where it is kept for that."""

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Schedule:
        return msgspec.json.decode(data, type=cls)

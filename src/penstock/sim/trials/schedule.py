"""A trial as data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["DAMAGE", "FILE_DAMAGE", "Fault", "Kind", "Schedule"]


class Kind(StrEnum):
    """Faults of a node, its disk, its network or its clock."""

    CRASH = "crash"
    """kill -9; restarted after `for_ms`."""
    CRASH_IN_WRITE = "crash in write"
    """Killed inside the `value`-th disk operation from now."""
    CRASH_IN_RECOVERY = "crash in recovery"
    """kill -9; restarted after `for_ms`, and killed again inside the `value`-th disk operation."""
    POWER_IN_RECOVERY = "power in recovery"
    """Power loss; restarted after `for_ms`, and power loss again inside the `value`-th disk operation."""
    DOUBLE_CRASH = "double crash"
    """kill -9 of the node and of `other` at the same moment; both are restarted after `for_ms`."""
    STOP = "stop"
    """SIGTERM, and a restart after `for_ms`."""
    PAUSE = "pause"
    """SIGSTOP for `for_ms`."""
    POWER = "power"
    """Power loss: unsynced data is lost wholly, partly or torn."""
    POWER_ALL = "power everywhere"
    """Power loss of all nodes at once; only in clusters that sync every append."""
    WIPE = "wipe"
    """Killed, and restarted with an empty disk."""
    SYNC_ERROR = "sync error"
    """The next sync of a file with `path` in its name reports EIO."""
    READ_ERROR = "read error"
    """The next `value` reads of a file with `path` in its name report EIO."""
    ROT = "rot"
    """Killed; before its restart, a bit flips in a file with `path` in its name."""
    FULL = "full disk"
    """`value` bytes are left, for `for_ms`."""
    SLOW_DISK = "slow disk"
    """Every disk operation takes `value` times as long."""
    DELAY = "delay"
    """Everything it sends or receives takes `value` ms longer."""
    REORDER = "reorder"
    """Connections overtake each other by up to `value` ms."""
    RESET = "reset"
    """All its connections are reset."""
    CUT = "cut"
    """Nothing passes between it and `other`."""
    ONE_WAY = "one-way cut"
    """Nothing passes from it to `other`."""
    RING = "ring cut"
    """Every node hears one neighbour less: nothing passes from node 1 to 2, from 2 to 3, … from the last to 1; in the
    other direction if `value`."""
    SPLIT = "split"
    """Nothing passes between the first `value` nodes and the others."""
    FLAP = "flapping cut"
    """Nothing passes between it and `other`, on and off, switching every `value` ms."""
    ISOLATE = "isolate"
    """Nothing passes between it and other nodes; if `value`, nor between it and clients."""
    CLOCK_JUMP = "clock jump"
    """Its wall clock is `value` ms off from now on."""
    CLOCK_RATE = "clock rate"
    """Its clock runs `value` times as fast."""
    FLIP = "flip"
    """A bit flips at `value` (a share of its length) of a file that matches `path`. For a single node."""
    TEAR = "tear"
    """A file that matches `path` ends at `value` of its length."""
    ZEROS = "zeros"
    """A file that matches `path` has only zeros from `value` of its length on, like blocks that were never written."""
    REMOVE = "remove"
    """The directory of a partition that the checkpoints list is removed."""


FILE_DAMAGE = (Kind.FLIP, Kind.TEAR, Kind.ZEROS)
DAMAGE = (*FILE_DAMAGE, Kind.REMOVE)
"""Damage to the files of a stopped node."""


LEADER, CONTROLLER_NODE, COORDINATOR = "leader", "controller", "coordinator"
TRANSACTION_LEADER, TRANSACTION_COORDINATOR = "transactional leader", "transaction coordinator"
"""Targets that are resolved when the fault starts, for a fault that does not name a node by number."""

METADATA = "__cluster_metadata"
OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
LOAD_TOPIC = "t"
TRANSACTION_TOPIC = "x"
"""The topic that transactional writers write to."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault. Times count from the start of the load."""

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
    """A trial. The seed determines everything else: latencies, the order of packets, what a disk loses."""

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
    """Whether partitions are moved between brokers continuously."""
    transactions: bool = False
    """Whether there are transactional writers and readers of committed records."""
    pause_ms: int = 400
    ended_by: Kind = Kind.CRASH
    """How a single node ends before its files are damaged."""
    found: str = ""
    """The bug it found, if it is kept for that."""

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Schedule:
        return msgspec.json.decode(data, type=cls)

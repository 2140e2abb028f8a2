"""Applies the faults of a schedule to a cluster, and undoes them.

The product's promises limit which faults may coincide. Two kinds of nodes are tracked until they are back in every ISR
they belong to: those that *lost* acknowledged data (power, sync error, bit rot, an empty disk), and those that merely
ended without warning, which cannot prove that they lost nothing and so leave the ISR as well. A fault is skipped if
there is a node of the first kind and some partition would have no replica left that is of neither kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.metadata import MetadataImage
from penstock.sim.cluster import SimCluster, SimNode
from penstock.sim.disk import CAPACITY_BYTES_DEFAULT, SimDisk, SimulatedCrash
from penstock.sim.network import JITTER_MS, LATENCY_MS
from penstock.sim.trials.damage import UNPROTECTED_BYTES, batches, synced_batch
from penstock.sim.trials.schedule import (
    COORDINATOR,
    LEADER,
    LOAD_TOPIC,
    OFFSETS,
    TRANSACTION_COORDINATOR,
    TRANSACTION_LEADER,
    TRANSACTION_STATE,
    TRANSACTION_TOPIC,
    Fault,
    Kind,
)

__all__ = ["CLIENT_HOST", "Injector"]

CLIENT_HOST = "client"
RESTART_AFTER_MS = 700
"""How long a supervisor waits before it restarts a process that ended by itself."""

LOSES = (Kind.POWER, Kind.POWER_IN_RECOVERY, Kind.WIPE, Kind.SYNC_ERROR, Kind.ROT)
LOSES_SYNCED = (Kind.WIPE, Kind.ROT)
ENDS = (
    *LOSES, Kind.CRASH, Kind.CRASH_IN_WRITE, Kind.CRASH_IN_RECOVERY, Kind.DOUBLE_CRASH, Kind.FULL, Kind.READ_ERROR,
)  # fmt: skip
"""Faults after which the process has, or may have, ended uncleanly."""

OF_THE_CLUSTER = (Kind.RING, Kind.SPLIT)
"""Faults that concern no particular node."""
AT_ONCE = 3

Undo = Callable[[], None]


class Rot(NamedTuple):
    """A bit that flipped below the recovery point of a log, which a start need not read."""

    disk: SimDisk
    path: str
    file: object
    position: int
    byte: int

    @property
    def is_there(self) -> bool:
        """Whether the damage is still there, neither truncated nor removed."""
        if self.disk.namespace.find(self.path) is not self.file:
            return False
        content = self.disk.content(self.path)
        return len(content) > self.position and content[self.position] == self.byte


class Pending:
    """A node that ended uncleanly and has not been in sync since."""

    def __init__(self, broker_epoch: int, *, lost: bool, lost_synced: bool) -> None:
        self.broker_epoch = broker_epoch
        self.lost = lost
        self.lost_synced = lost_synced


class Injector:
    """Tracks what is broken now. `apply` starts a fault, `tick` ends those whose time is over."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.done: Counter[Kind] = Counter()
        self.applied: list[Fault] = []
        self.storage_faults: dict[int, None] = {}
        """Nodes whose disks reported an error, were full, or rotted; they may log that."""
        self.rots: dict[int, list[Rot]] = {}
        """Possibly undetected bit rot, by node."""
        self.pending: dict[int, Pending] = {}
        self.seen: Counter[str] = Counter()
        """Events caused by several faults together."""
        self._ends_ms: list[float] = []
        self._recovering: dict[int, Kind] = {}
        """Nodes that are to end during recovery, and how. A recovery that finishes earlier is left alone."""
        self._newest: MetadataImage | None = None
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._undos: list[tuple[float, int, Undo]] = []
        self._restarts: dict[int, float] = {}
        self._numbers = 0

    # ---- progress of a trial

    def apply(self, fault: Fault) -> bool:
        """Starts a fault; returns False if it is impossible now, or exceeds what the product promises to survive."""
        self.tick()
        if fault.kind is Kind.POWER_ALL:
            return self._power_everywhere(fault)
        node = self.cluster.nodes[0] if fault.kind in OF_THE_CLUSTER else self._resolve(fault.node)
        if node is None:
            return False
        victims = [node, self.cluster.node(fault.other)] if fault.kind is Kind.DOUBLE_CRASH else [node]
        if not self._bearable(fault, victims):
            return False
        undo = self._begin(fault, node)
        if undo is None:
            return False
        if fault.kind in ENDS:
            for victim in victims:
                self._note(victim, fault.kind)
        self._later(fault.for_ms, undo)
        self._count(fault)
        return True

    def _count(self, fault: Fault) -> None:
        now_ms = self.world.now_ms
        self.done[fault.kind] += 1
        self.applied.append(fault)
        self._ends_ms = [*(end_ms for end_ms in self._ends_ms if end_ms > now_ms), now_ms + fault.for_ms]
        self.seen[fault.kind.value] += fault.kind in OF_THE_CLUSTER
        if len(self._ends_ms) >= AT_ONCE:
            self.seen["three faults at once"] += 1
        if sum(not node.is_alive for node in self.cluster.nodes) > 1:
            self.seen["two nodes down at once"] += 1

    def tick(self) -> None:
        """Undoes faults that are over, restarts processes that ended, and forgets nodes that are back."""
        now_ms = self.world.now_ms
        self._image()
        for entry in [entry for entry in self._undos if entry[0] <= now_ms]:
            self._undos.remove(entry)
            entry[2]()
        for node in self.cluster.nodes:
            if node.is_alive or node.host.process is None:
                self._restarts.pop(node.node_id, None)
                if node.ready and self._recovering.pop(node.node_id, None) is not None:
                    node.host.disk.cancel_crash()
                continue
            if node.node_id not in self.pending:
                self._note(node, Kind.CRASH)  # it ended by itself
            if self._restarts.setdefault(node.node_id, now_ms + RESTART_AFTER_MS) <= now_ms:
                del self._restarts[node.node_id]
                self._look_at_end(node)
                self._start(node)
        for node_id in [node_id for node_id in self.pending if self._is_back(node_id)]:
            del self.pending[node_id]

    def _look_at_end(self, node: SimNode) -> None:
        """Checks, before a restart, whether the node ended during its recovery."""
        if not node.ready and isinstance(node.host.exits[-1].error, SimulatedCrash):
            kind = self._recovering.pop(node.node_id, None)
            if kind is not None:
                self.seen[kind.value] += 1
            if kind is Kind.POWER_IN_RECOVERY:
                node.power_loss()

    def next_ms(self) -> float:
        """The time of the next action."""
        times = [entry[0] for entry in self._undos] + list(self._restarts.values())
        return min(times, default=float("inf"))

    def end(self) -> None:
        """Undoes all faults."""
        undos, self._undos = self._undos, []
        for entry in undos:
            entry[2]()
        self._undos.clear()
        self._recovering.clear()
        self._cuts.clear()
        self.cluster.heal_all()
        for node in self.cluster.nodes:
            node.resume()
            disk = node.host.disk
            disk.capacity_bytes, disk.slowness = CAPACITY_BYTES_DEFAULT, 1.0
            disk.stop_failing()

    # ---- the faults

    def _begin(self, fault: Fault, node: SimNode) -> Undo | None:
        """Applies the fault; returns the function that undoes it, or None if it could not be applied."""
        disk, network = node.host.disk, self.world.network
        network_only = (Kind.CUT, Kind.ONE_WAY, Kind.ISOLATE, Kind.RING, Kind.SPLIT, Kind.FLAP)
        needs_process = fault.kind not in (Kind.CLOCK_JUMP, *network_only)
        if needs_process and not node.is_alive:
            return None
        match fault.kind:
            case Kind.CRASH:
                node.crash()
            case Kind.POWER:
                node.power_loss()
            case Kind.WIPE:
                node.crash()
                node.wipe()
            case Kind.ROT:
                node.crash()
                self._rot(node, fault.path)
                self.storage_faults[node.node_id] = None
            case Kind.CRASH_IN_RECOVERY | Kind.POWER_IN_RECOVERY:
                if fault.kind is Kind.CRASH_IN_RECOVERY:
                    node.crash()
                else:
                    node.power_loss()
                disk.crash_after(int(fault.value))
                self._recovering[node.node_id] = fault.kind
            case Kind.DOUBLE_CRASH:
                other = self.cluster.node(fault.other)
                if other is node or not other.is_alive:
                    return None
                node.crash()
                other.crash()
                self._restarts[other.node_id] = self.world.now_ms + fault.for_ms
            case Kind.CRASH_IN_WRITE:
                disk.crash_after(int(fault.value))
                return disk.cancel_crash
            case Kind.STOP:
                node.host.stop()
                return lambda: None
            case Kind.PAUSE:
                node.pause()
                return node.resume
            case Kind.SYNC_ERROR:
                self.storage_faults[node.node_id] = None
                disk.fail_next_syncs(1, path_contains=fault.path)
                return lambda: disk.fail_next_syncs(0)
            case Kind.READ_ERROR:
                self.storage_faults[node.node_id] = None
                paths = self._files(node, fault.path)
                if paths:
                    disk.fail_reads(self.world.rng.choice(paths), int(fault.value))
                return lambda: None
            case Kind.FULL:
                self.storage_faults[node.node_id] = None
                disk.fill(int(fault.value))
                return lambda: setattr(disk, "capacity_bytes", CAPACITY_BYTES_DEFAULT)
            case Kind.SLOW_DISK:
                disk.slowness = fault.value
                return lambda: setattr(disk, "slowness", 1.0)
            case Kind.DELAY:
                return self._links(node, base_ms=fault.value)
            case Kind.REORDER:
                return self._links(node, jitter_ms=fault.value)
            case Kind.RESET:
                network.reset_connections(node.name)
                return lambda: None
            case Kind.CUT | Kind.ONE_WAY:
                other = self.cluster.node(fault.other)
                if other is node:
                    return None
                way = (node.name, other.name)
                return self._cut(_both_ways([way]) if fault.kind is Kind.CUT else [way])
            case Kind.RING:
                return self._cut(self._ring(backwards=bool(fault.value)))
            case Kind.SPLIT:
                some, others = self.cluster.nodes[: int(fault.value)], self.cluster.nodes[int(fault.value) :]
                return self._cut(_both_ways((one.name, other.name) for one in some for other in others))
            case Kind.FLAP:
                other = self.cluster.node(fault.other)
                return None if other is node else self._flap(_both_ways([(node.name, other.name)]), fault.value)
            case Kind.ISOLATE:
                names = [other.name for other in self.cluster.nodes if other is not node]
                names += [CLIENT_HOST] * bool(fault.value)
                return self._cut(_both_ways((node.name, name) for name in names))
            case Kind.CLOCK_JUMP:
                node.host.jump_wall_clock(fault.value)
                return lambda: None
            case Kind.CLOCK_RATE:
                node.process.loop.run_at(fault.value)
                node.host.clock_rate = fault.value
                return lambda: setattr(node.host, "clock_rate", 1.0)
            case Kind.POWER_ALL | Kind.FLIP | Kind.TEAR | Kind.ZEROS | Kind.REMOVE:
                raise AssertionError(f"{fault.kind} is not done to a node that runs")
        self._restarts[node.node_id] = self.world.now_ms + fault.for_ms
        return lambda: None

    def _power_everywhere(self, fault: Fault) -> bool:
        if any(pending.lost for pending in self.pending.values()):
            return False
        for node in self.cluster.nodes:
            if node.host.process is not None:
                node.power_loss()
                self._restarts[node.node_id] = self.world.now_ms + fault.for_ms
        self._count(fault)
        return True

    def _files(self, node: SimNode, path: str) -> list[str]:
        """Non-empty logs and snapshots, sorted by name."""
        namespace = node.host.disk.namespace
        found = []
        for directory in namespace.directory("").entries:
            entry = namespace.find(directory)
            for name in getattr(entry, "entries", ()):
                whole = f"{directory}/{name}"
                if path in whole and name.endswith((".log", ".checkpoint")) and namespace.file(whole).data:
                    found.append(whole)
        return sorted(found)

    def _rot(self, node: SimNode, path: str) -> None:
        """Not in the last batch of a log, which cannot be told from a torn write even if it was synced."""
        disk, rng = node.host.disk, self.world.rng
        able = {}
        for name in self._files(node, path):
            content = disk.content(name)
            if name.endswith(".log"):
                content = content[: max((position for position, _ in batches(content)), default=0)]
            if content:
                able[name] = len(content)
        if able:
            name = rng.choice(list(able))
            position = rng.randrange(able[name])
            batch = synced_batch(disk, name, position)
            if batch is not None and position - batch < UNPROTECTED_BYTES:
                # A batch that no start has checked is protected only by its checksum.
                position += UNPROTECTED_BYTES
            disk.rot(name, position)
            if batch is not None:
                rot = Rot(disk, name, disk.namespace.file(name), position, disk.content(name)[position])
                self.rots.setdefault(node.node_id, []).append(rot)

    def rotten(self) -> list[int]:
        """Nodes with undetected bit rot on their disks."""
        return [node_id for node_id, rots in self.rots.items() if any(rot.is_there for rot in rots)]

    def _links(self, node: SimNode, **values: float) -> Undo:
        network = self.world.network
        names = [other.name for other in self.cluster.nodes if other is not node] + [CLIENT_HOST]
        links = [network.link(node.name, name) for name in names] + [network.link(name, node.name) for name in names]
        for link in links:
            for name, value in values.items():
                setattr(link, name, value)

        def undo() -> None:
            for link in links:
                link.base_ms, link.jitter_ms = LATENCY_MS, JITTER_MS

        return undo

    def _cut(self, ways: list[tuple[str, str]]) -> Undo:
        """Several cuts of one link end when the last of them does."""
        for source, target in ways:
            self._cuts[source, target] += 1
            self.world.network.cut(source, target, one_way=True)

        def undo() -> None:
            for source, target in ways:
                self._cuts[source, target] -= 1
                if self._cuts[source, target] <= 0:
                    self.world.network.heal(source, target, one_way=True)

        return undo

    def _ring(self, *, backwards: bool) -> list[tuple[str, str]]:
        names = [node.name for node in self.cluster.nodes]
        ways = list(zip(names, names[1:] + names[:1], strict=True)) if len(names) > 1 else []
        return [(target, source) for source, target in ways] if backwards else ways

    def _flap(self, ways: list[tuple[str, str]], every_ms: float) -> Undo:
        """Cuts and heals in turn, until the fault is undone."""
        heal: Undo | None = self._cut(ways)
        is_over = False

        def change() -> None:
            nonlocal heal
            if is_over:
                return
            if heal is None:
                heal = self._cut(ways)
                self.seen["cut again while flapping"] += 1
            else:
                heal()
                heal = None
            self._later(every_ms, change)

        def end() -> None:
            nonlocal is_over
            is_over = True
            if heal is not None:
                heal()

        self._later(every_ms, change)
        return end

    def _later(self, delay_ms: float, undo: Undo) -> None:
        self._numbers += 1
        self._undos.append((self.world.now_ms + delay_ms, self._numbers, undo))

    def _start(self, node: SimNode) -> None:
        node.begin(watched=True)

    # ---- targets and limits

    def _resolve(self, who: int | str) -> SimNode | None:
        if isinstance(who, int):
            return self.cluster.node(who)
        if who == LEADER:
            return self.cluster.leader_of(LOAD_TOPIC)
        if who == TRANSACTION_LEADER:
            return self.cluster.leader_of(TRANSACTION_TOPIC) or self.cluster.leader_of(LOAD_TOPIC)
        if who == TRANSACTION_COORDINATOR:
            return self.cluster.leader_of(TRANSACTION_STATE) or self.cluster.leader_of(LOAD_TOPIC)
        if who == COORDINATOR:
            return self.cluster.leader_of(OFFSETS) or self.cluster.leader_of(LOAD_TOPIC)
        return self.cluster.controller()

    def _note(self, node: SimNode, kind: Kind) -> None:
        known = self.pending.get(node.node_id)
        self.pending[node.node_id] = Pending(
            self._broker_epoch(node.node_id),
            lost=kind in LOSES or (known is not None and known.lost),
            lost_synced=kind in LOSES_SYNCED or (known is not None and known.lost_synced),
        )

    def _bearable(self, fault: Fault, victims: list[SimNode]) -> bool:
        if fault.kind not in ENDS:
            return True
        ids = [node.node_id for node in victims]
        others = {node_id: pending for node_id, pending in self.pending.items() if node_id not in ids}
        if fault.kind in LOSES_SYNCED and any(pending.lost_synced for pending in others.values()):
            return False  # the metadata quorum survives only one
        lost = fault.kind in LOSES or any(node_id in self.pending and self.pending[node_id].lost for node_id in ids)
        if not lost and not any(pending.lost for pending in others.values()):
            return True
        image = self._image()
        if image is None:
            return False
        for topic in image.topics():
            for state in topic.partitions:
                able = [r for r in (*state.isr, *state.elr) if r not in ids and r not in others]
                if state.replicas and not able:
                    return False
        return True

    def _is_back(self, node_id: int) -> bool:
        node, pending, image = self.cluster.node(node_id), self.pending[node_id], self._image()
        if not node.is_alive or not node.ready or image is None:
            return False
        if node.is_controller:
            core = node.served.quorum.core
            if core.hard.suspect or core.key not in core.voter_set.keys:
                return False
            if core.high_watermark < image.offset:
                return False
        if not node.is_broker:
            return True
        broker = image.broker(node_id)
        if broker is None or broker.fenced or broker.epoch <= pending.broker_epoch:
            return False
        return all(
            node_id in state.isr or node_id not in state.replicas
            for topic in image.topics()
            for state in topic.partitions
        )

    def _broker_epoch(self, node_id: int) -> int:
        image = self._image()
        broker = None if image is None else image.broker(node_id)
        return -1 if broker is None else broker.epoch

    def _image(self) -> MetadataImage | None:
        """The newest image now or before: nodes that have all just started have none."""
        images = [node.image for node in self.cluster.nodes if node.ready_quorum]
        images += [self._newest] if self._newest is not None else []
        self._newest = max(images, key=lambda image: image.offset, default=None)
        return self._newest


def _both_ways(ways: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    there = list(ways)
    return there + [(target, source) for source, target in there]

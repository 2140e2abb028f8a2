"""The faults that can be applied to a cluster, by name.

A fault is applied to the node that has a role at that moment, held for a while, and undone. `hold_s` gives the shortest
and the longest time; the plan of a run chooses between them.

`run` is a generator: it yields what it waits for (`Hold`, `Until`), so that several faults can run in one thread.
Closing it early undoes the fault. Several faults may hit the same node or cut the same link; they are counted, and the
node or link recovers when the last one is undone.
"""

from __future__ import annotations

import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Flag, auto
from random import Random
from typing import Final, NamedTuple, Protocol

from penstock.chaos.isolation import Network
from penstock.chaos.nodes import Nodes
from penstock.chaos.roles import Role, Roles

SHORT_S: Final = (0.5, 3.0)
LONG_S: Final = (2.0, 14.0)
"""Sometimes longer than the default session timeout of 9 s."""
DISK_S: Final = (3.0, 8.0)
COMMAND_TIMEOUT_S: Final = 600
WHOLE_TIMEOUT_S: Final = 120.0
FILL_EVERY_S: Final = 0.2
SETTLE_S: Final = 5.0
"""Waiting time after disk space is freed: long enough for the node to exit or fail to start, if it is going to."""
RECOVERIES: Final = 3
FLAP_S: Final = (0.2, 1.5)


class Needs(Flag):
    """The requirements of a fault."""

    NOTHING = 0
    NODES = auto()
    """Node processes started by this run."""
    NETWORK = auto()
    DISK = auto()
    OTHER_VERSION = auto()


class FaultFailed(Exception):
    """The fault could not be applied; this says nothing about the cluster."""


class Hold(NamedTuple):
    """Wait for this long."""

    seconds: float


class Until(NamedTuple):
    """Wait for a condition; raises `FaultFailed` inside the fault after the timeout."""

    condition: Callable[[], bool]
    what: str
    timeout_s: float


Link = tuple[int, int]
"""One direction between two nodes: (sender, receiver)."""
Waits = Generator[Hold | Until, None, None]
Steps = Generator[Hold | Until, None, str]
"""A running fault. It returns a description of what was done."""


class Place(Protocol):
    """The environment in which faults run."""

    nodes: Nodes | None
    roles: Roles
    rng: Random
    copies: int
    """The replication factor of all partitions."""

    def tell(self, text: str) -> None: ...


class Fault(ABC):
    def __init__(
        self, name: str, what: str, *, needs: Needs = Needs.NODES, hold_s: tuple[float, float] = SHORT_S
    ) -> None:
        self.name = name
        self.what = what
        self.needs = needs
        self.hold_s = hold_s
        self.alone = False
        """Whether it must run alone."""

    @abstractmethod
    def run(self, place: Place, hold_s: float) -> Steps:
        """Apply the fault, hold it, undo it."""


class Suffered(Fault):
    """A fault that affects the node with a given role for a while."""

    def __init__(
        self, role: Role, name: str, what: str, *, needs: Needs = Needs.NODES, hold_s: tuple[float, float] = SHORT_S
    ) -> None:
        super().__init__(f"{name}-{role}", what, needs=needs, hold_s=hold_s)
        self.role = role

    def run(self, place: Place, hold_s: float) -> Steps:
        nodes, node = _nodes(place), (yield from _find(place, self.role))
        place.tell(f"{self.told(f'node {node}, the {self.role},')} for {hold_s:.1f} s")
        try:
            self.apply(nodes, node)
            yield Hold(hold_s)
        finally:
            self.undo(nodes, node)
        return f"node {node} for {hold_s:.1f} s"

    @abstractmethod
    def told(self, node: str) -> str:
        """A description of the effect on the node."""

    @abstractmethod
    def apply(self, nodes: Nodes, node: int) -> None: ...

    @abstractmethod
    def undo(self, nodes: Nodes, node: int) -> None: ...


class Kill(Suffered):
    def __init__(self, role: Role) -> None:
        super().__init__(role, "kill", f"kill -9 of the {role}, restarted after a while")

    def told(self, node: str) -> str:
        return f"kill -9 of {node}"

    def apply(self, nodes: Nodes, node: int) -> None:
        nodes.kill(node)

    def undo(self, nodes: Nodes, node: int) -> None:
        nodes.release(node)


class Pause(Suffered):
    def __init__(self, role: Role) -> None:
        super().__init__(role, "pause", f"SIGSTOP of the {role}, and SIGCONT after a while", hold_s=LONG_S)

    def told(self, node: str) -> str:
        return f"SIGSTOP of {node}"

    def apply(self, nodes: Nodes, node: int) -> None:
        nodes.pause(node)

    def undo(self, nodes: Nodes, node: int) -> None:
        nodes.resume(node)


class RollingRestart(Fault):
    def __init__(
        self,
        name: str = "rolling-restart",
        what: str = "SIGTERM of one node after another, each after all replicas are in sync again",
        needs: Needs = Needs.NODES,
    ) -> None:
        super().__init__(name, what, needs=needs)
        self.alone = True

    def run(self, place: Place, hold_s: float) -> Steps:
        nodes = _nodes(place)
        for node in nodes.by_id:
            place.tell(f"SIGTERM of node {node}")
            nodes.stop(node)
            self._before_start(nodes, node)
            nodes.release(node)
            yield Until(place.roles.whole, f"be in sync after the restart of node {node}", WHOLE_TIMEOUT_S)
        return f"all {len(nodes.by_id)} nodes"

    def _before_start(self, nodes: Nodes, node: int) -> None:
        """Hook for changes while a node is down."""


class RollingSwap(RollingRestart):
    def __init__(self) -> None:
        what = "a rolling restart in which each node changes to the other version"
        super().__init__("rolling-swap", what, Needs.NODES | Needs.OTHER_VERSION)

    def _before_start(self, nodes: Nodes, node: int) -> None:
        nodes.swap(node)


class DoubleKill(Fault):
    def __init__(self) -> None:
        super().__init__("double-kill", "kill -9 of a leader and of another node at the same moment")

    def run(self, place: Place, hold_s: float) -> Steps:
        nodes, leader = _nodes(place), (yield from _find(place, Role.LEADER))
        other = place.rng.choice([node for node in nodes.by_id if node != leader] or [leader])
        place.tell(f"kill -9 of nodes {leader} and {other} for {hold_s:.1f} s")
        both = sorted({leader, other})
        try:
            for node in both:
                nodes.kill(node)
            yield Hold(hold_s)
        finally:
            for node in both:
                nodes.release(node)
        return f"nodes {leader} and {other} for {hold_s:.1f} s"


class KillInRecovery(Fault):
    """The delay from one kill to the next is a share of a start's duration, so that the kills hit all parts of a
    start."""

    def __init__(self) -> None:
        what = f"kill -9 of a leader, and {RECOVERIES} more times while it restarts"
        super().__init__("kill-recovering", what, hold_s=(0.1, 2.0))

    def run(self, place: Place, hold_s: float) -> Steps:
        nodes, node = _nodes(place), (yield from _find(place, Role.LEADER))
        place.tell(f"kill -9 of node {node}, and again {hold_s:.1f} s into each of its next {RECOVERIES} starts")
        for _ in range(RECOVERIES + 1):
            try:
                nodes.kill(node)
            finally:
                nodes.release(node)
            yield Hold(hold_s * (0.5 + place.rng.random()))
        return f"node {node}, {RECOVERIES + 1} times"


class Cut(Fault):
    """Packets between nodes are lost; clients still reach all nodes."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what, needs=Needs.NODES | Needs.NETWORK, hold_s=LONG_S)

    @abstractmethod
    def links(self, place: Place, nodes: Nodes) -> Generator[Hold | Until, None, tuple[str, list[Link]]]:
        """A description, and the directions to cut: (sender, receiver)."""

    def run(self, place: Place, hold_s: float) -> Steps:
        nodes = _nodes(place)
        told, links = yield from self.links(place, nodes)
        assert nodes.network is not None
        place.tell(f"no packet {told} for {hold_s:.1f} s")
        yield from self.hold(place, nodes.network, links, hold_s)
        return f"nothing {told} for {hold_s:.1f} s"

    def hold(self, place: Place, network: Network, links: Sequence[Link], hold_s: float) -> Waits:
        """Keep the links cut for this long."""
        for link in links:
            network.cut(*link)
        try:
            yield Hold(hold_s)
        finally:
            for link in links:
                network.mend(*link)


class CutOff(Cut):
    """Cuts the links between a node and all others, in one or both directions."""

    def __init__(self, role: Role, *, one_way: bool = False) -> None:
        what = f"packets between the {role} and other nodes are lost; clients reach them all"
        if one_way:
            what = f"only packets from the {role} to other nodes are lost, or only packets to it"
        super().__init__(f"cut-{role}-one-way" if one_way else f"cut-{role}", what)
        self.role = role
        self.one_way = one_way

    def links(self, place: Place, nodes: Nodes) -> Generator[Hold | Until, None, tuple[str, list[Link]]]:
        node = yield from _find(place, self.role)
        sends = not self.one_way or place.rng.random() < 0.5
        receives = not self.one_way or not sends
        others = [other for other in nodes.by_id if other != node]
        links = [(node, other) for other in others if sends] + [(other, node) for other in others if receives]
        way = "to and from" if sends and receives else "from" if sends else "to"
        return f"{way} node {node}, the {self.role}, between nodes", links


class CutPair(Cut):
    """A leader and one follower cannot reach each other; a third node reaches both."""

    def __init__(self, name: str = "cut-pair", how: str = "") -> None:
        super().__init__(name, f"packets between a leader and one of its followers are lost{how}")

    def links(self, place: Place, nodes: Nodes) -> Generator[Hold | Until, None, tuple[str, list[Link]]]:
        leader = yield from _find(place, Role.LEADER)
        other = place.rng.choice([node for node in nodes.by_id if node != leader] or [leader])
        return f"between nodes {leader} and {other}", [(leader, other), (other, leader)]


class Flap(CutPair):
    def __init__(self) -> None:
        super().__init__("flap-pair", ", on and off, several times a second")

    def hold(self, place: Place, network: Network, links: Sequence[Link], hold_s: float) -> Waits:
        left_s = hold_s
        while left_s > 0:
            cut_s, mended_s = place.rng.uniform(*FLAP_S), place.rng.uniform(*FLAP_S)
            yield from super().hold(place, network, links, cut_s)
            yield Hold(mended_s)
            left_s -= cut_s + mended_s


class Ring(Cut):
    """Node 1 cannot reach 2, 2 cannot reach 3, … the last cannot reach 1; or the other way round."""

    def __init__(self) -> None:
        super().__init__("cut-ring", "packets from each node to the next are lost, in a ring")

    def links(self, place: Place, nodes: Nodes) -> Generator[Hold | Until, None, tuple[str, list[Link]]]:
        yield Hold(0.0)
        ids = list(nodes.by_id)
        ring = list(zip(ids, ids[1:] + ids[:1], strict=True)) if len(ids) > 1 else []
        if place.rng.random() < 0.5:
            ring = [(receiver, sender) for sender, receiver in ring]
        return "in the ring " + ", ".join(f"{sender}→{receiver}" for sender, receiver in ring), ring


class Reassign(Fault):
    """Each partition gets random replicas; if there are as many brokers as replicas, only their order changes."""

    def __init__(self) -> None:
        super().__init__("reassign", "all partitions are moved to other replicas, or get another preferred leader")

    def run(self, place: Place, hold_s: float) -> Steps:
        brokers = sorted(_nodes(place).by_id)
        place.tell("reassigning all partitions")
        copies = min(place.copies, len(brokers))
        yield Until(lambda: place.roles.reassign(brokers, copies, place.rng), "take a reassignment", WHOLE_TIMEOUT_S)
        yield Hold(hold_s)
        return f"all partitions, among nodes {', '.join(map(str, brokers))}"


class Isolate(Suffered):
    def __init__(self, role: Role) -> None:
        what = f"neither nodes nor clients can reach the {role}"
        super().__init__(role, "isolate", what, needs=Needs.NODES | Needs.NETWORK, hold_s=LONG_S)

    def told(self, node: str) -> str:
        return f"{node} is disconnected from the network"

    def apply(self, nodes: Nodes, node: int) -> None:
        assert nodes.network is not None
        nodes.network.isolate(node)

    def undo(self, nodes: Nodes, node: int) -> None:
        assert nodes.network is not None
        nodes.network.rejoin(node)


class FullDisk(Fault):
    def __init__(self, role: Role) -> None:
        what = f"the disk of the {role} is full for a while"
        super().__init__(f"full-disk-{role}", what, needs=Needs.NODES | Needs.DISK, hold_s=DISK_S)
        self.role = role

    def run(self, place: Place, hold_s: float) -> Steps:
        nodes, id = _nodes(place), (yield from _find(place, self.role))
        node = nodes.by_id[id]
        assert node.disk is not None
        ends = len(node.ends)
        node.may_end += 1
        place.tell(f"the disk of node {id}, the {self.role}, is full for {hold_s:.1f} s")
        try:
            # Measured by the clock and not in turns, because other faults may delay this one.
            end_s = time.monotonic() + hold_s
            while time.monotonic() < end_s:
                node.disk.fill()
                yield Hold(FILL_EVERY_S)
            node.disk.free()
            yield Hold(SETTLE_S)
        finally:
            node.disk.free()
            node.may_end -= 1
        codes = sorted(set(node.ends[ends:]))
        did = f"it exited with {', '.join(map(str, codes))}" if codes else "it kept running"
        return f"node {id} for {hold_s:.1f} s: {did}"


class Command(Fault):
    """A command of the user that breaks and repairs an existing cluster. Environment variables name the nodes'
    roles."""

    def __init__(self, name: str, command: str) -> None:
        super().__init__(name, command, needs=Needs.NOTHING, hold_s=(0.0, 0.0))
        self.command = command

    def run(self, place: Place, hold_s: float) -> Steps:
        place.tell(f"{self.name}: {self.command}")
        process = subprocess.Popen(
            self.command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={**os.environ, **self._who_is_who(place)}, start_new_session=True,
        )  # fmt: skip
        try:
            yield Until(lambda: process.poll() is not None, f"end of {self.name}", COMMAND_TIMEOUT_S)
        finally:
            if process.poll() is None:
                process.kill()
            said, _ = process.communicate()
        if process.returncode:
            raise FaultFailed(f"{self.name} exited with {process.returncode}: {said.strip()[-500:]}")
        last = said.strip().splitlines()[-1:]
        return last[0] if last else "done"

    def _who_is_who(self, place: Place) -> Mapping[str, str]:
        found = {role: place.roles.find(role, place.rng) for role in Role}
        nodes = {f"CHAOS_{role.name}": str(node) for role, node in found.items() if node is not None}
        return {**nodes, "CHAOS_TOPIC": place.roles.topic, "CHAOS_GROUP": place.roles.group}


def catalogue() -> list[Fault]:
    """All faults that can be applied to nodes started by this run."""
    return [
        *(Kill(role) for role in Role),
        DoubleKill(),
        KillInRecovery(),
        *(Pause(role) for role in Role),
        RollingRestart(),
        RollingSwap(),
        Reassign(),
        CutOff(Role.LEADER),
        CutOff(Role.CONTROLLER),
        CutOff(Role.LEADER, one_way=True),
        CutOff(Role.CONTROLLER, one_way=True),
        CutPair(),
        Flap(),
        Ring(),
        Isolate(Role.LEADER),
        Isolate(Role.CONTROLLER),
        FullDisk(Role.LEADER),
        FullDisk(Role.FOLLOWER),
    ]


def _nodes(place: Place) -> Nodes:
    assert place.nodes is not None
    return place.nodes


def _find(place: Place, role: Role) -> Generator[Hold | Until, None, int]:
    found: list[int] = []

    def look() -> bool:
        node = place.roles.find(role, place.rng)
        if node is not None:
            found.append(node)
        return node is not None

    yield Until(look, f"have a {role}", WHOLE_TIMEOUT_S)
    return found[0]

"""What can be done to a cluster, by name.

A fault is applied to the node that has a role at that moment, held for a while, and undone. `hold_s` is the shortest
and the longest time; a run's plan chooses between them.
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Flag, auto
from random import Random
from typing import Final, Protocol

from penstock.chaos.nodes import Nodes
from penstock.chaos.roles import Role, Roles

SHORT_S: Final = (0.5, 3.0)
LONG_S: Final = (2.0, 14.0)
"""Beyond the default session timeout of 9 s, now and then."""
DISK_S: Final = (3.0, 8.0)
COMMAND_TIMEOUT_S: Final = 600
WHOLE_TIMEOUT_S: Final = 120.0
FILL_EVERY_S: Final = 0.2


class Needs(Flag):
    """What a fault needs of the place."""

    NOTHING = 0
    NODES = auto()
    """Processes that we have started."""
    NETWORK = auto()
    DISK = auto()
    OTHER_VERSION = auto()


class FaultFailed(Exception):
    """It could not be applied; nothing is known about the cluster from that."""


class Place(Protocol):
    """Where faults happen, and how they wait."""

    nodes: Nodes | None
    roles: Roles
    rng: Random

    def wait(self, seconds: float) -> None: ...

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None: ...

    def tell(self, text: str) -> None: ...


class Fault(ABC):
    def __init__(
        self, name: str, what: str, *, needs: Needs = Needs.NODES, hold_s: tuple[float, float] = SHORT_S
    ) -> None:
        self.name = name
        self.what = what
        self.needs = needs
        self.hold_s = hold_s

    @abstractmethod
    def run(self, place: Place, hold_s: float) -> str:
        """Apply it, hold it, undo it. Returns what was done, in words."""


class Suffered(Fault):
    """What the node that has a role suffers for a while."""

    def __init__(
        self, role: Role, name: str, what: str, *, needs: Needs = Needs.NODES, hold_s: tuple[float, float] = SHORT_S
    ) -> None:
        super().__init__(f"{name}-{role}", what, needs=needs, hold_s=hold_s)
        self.role = role

    def run(self, place: Place, hold_s: float) -> str:
        nodes, node = _nodes(place), _find(place, self.role)
        place.tell(f"{self.told(f'node {node}, the {self.role},')} for {hold_s:.1f} s")
        try:
            self.apply(nodes, node)
            place.wait(hold_s)
        finally:
            self.undo(nodes, node)
        return f"node {node} for {hold_s:.1f} s"

    @abstractmethod
    def told(self, node: str) -> str:
        """What happens to the node, in words."""

    @abstractmethod
    def apply(self, nodes: Nodes, node: int) -> None: ...

    @abstractmethod
    def undo(self, nodes: Nodes, node: int) -> None: ...


class Kill(Suffered):
    def __init__(self, role: Role) -> None:
        super().__init__(role, "kill", f"kill -9 of the {role}, started again after a while")

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
        what: str = "SIGTERM of one node after another, each time until all replicas are in sync again",
        needs: Needs = Needs.NODES,
    ) -> None:
        super().__init__(name, what, needs=needs)

    def run(self, place: Place, hold_s: float) -> str:
        nodes = _nodes(place)
        for node in nodes.by_id:
            place.tell(f"SIGTERM of node {node}")
            nodes.stop(node)
            self._before_start(nodes, node)
            nodes.release(node)
            place.wait_until(place.roles.whole, f"be in sync after the restart of node {node}", WHOLE_TIMEOUT_S)
        return f"all {len(nodes.by_id)} nodes"

    def _before_start(self, nodes: Nodes, node: int) -> None:
        """What is changed while a node is down."""


class RollingSwap(RollingRestart):
    def __init__(self) -> None:
        what = "a rolling restart in which each node changes to the other version"
        super().__init__("rolling-swap", what, Needs.NODES | Needs.OTHER_VERSION)

    def _before_start(self, nodes: Nodes, node: int) -> None:
        nodes.swap(node)


class Cut(Fault):
    """The links between a node and the others; clients still reach all of them."""

    def __init__(self, role: Role, *, one_way: bool = False) -> None:
        what = f"packets between the {role} and other nodes are lost; clients reach them all"
        if one_way:
            what = f"packets of the {role} to other nodes are lost, theirs to it are not; or the other way round"
        name = f"cut-{role}-one-way" if one_way else f"cut-{role}"
        super().__init__(name, what, needs=Needs.NODES | Needs.NETWORK, hold_s=LONG_S)
        self.role = role
        self.one_way = one_way

    def run(self, place: Place, hold_s: float) -> str:
        nodes, node = _nodes(place), _find(place, self.role)
        assert nodes.network is not None
        sends = not self.one_way or place.rng.random() < 0.5
        receives = not self.one_way or not sends
        way = "to and from" if sends and receives else "from" if sends else "to"
        place.tell(f"no packet {way} node {node}, the {self.role}, between nodes for {hold_s:.1f} s")
        try:
            for other in nodes.by_id:
                if other != node and sends:
                    nodes.network.cut(node, other)
                if other != node and receives:
                    nodes.network.cut(other, node)
            place.wait(hold_s)
        finally:
            nodes.network.heal()
        return f"nothing {way} node {node} for {hold_s:.1f} s"


class Isolate(Suffered):
    def __init__(self, role: Role) -> None:
        what = f"neither nodes nor clients reach the {role}"
        super().__init__(role, "isolate", what, needs=Needs.NODES | Needs.NETWORK, hold_s=LONG_S)

    def told(self, node: str) -> str:
        return f"{node} is off the network"

    def apply(self, nodes: Nodes, node: int) -> None:
        assert nodes.network is not None
        nodes.network.isolate(node)

    def undo(self, nodes: Nodes, node: int) -> None:
        assert nodes.network is not None
        nodes.network.heal()


class FullDisk(Fault):
    def __init__(self, role: Role) -> None:
        what = f"not a byte is left on the disk of the {role}, and there is room again after a while"
        super().__init__(f"full-disk-{role}", what, needs=Needs.NODES | Needs.DISK, hold_s=DISK_S)
        self.role = role

    def run(self, place: Place, hold_s: float) -> str:
        nodes, id = _nodes(place), _find(place, self.role)
        node = nodes.by_id[id]
        assert node.disk is not None
        ends = len(node.ends)
        node.may_end = True
        place.tell(f"the disk of node {id}, the {self.role}, is full for {hold_s:.1f} s")
        try:
            for _ in range(int(hold_s / FILL_EVERY_S)):
                node.disk.fill()
                place.wait(FILL_EVERY_S)
        finally:
            node.disk.free()
        # It may have ended a moment ago, or be about to fail in a start that found no room.
        place.wait_until(place.roles.whole, "have all replicas in sync again", WHOLE_TIMEOUT_S)
        node.may_end = False
        codes = sorted(set(node.ends[ends:]))
        did = f"it ended with {', '.join(map(str, codes))}" if codes else "it went on"
        return f"node {id} for {hold_s:.1f} s: {did}"


class Command(Fault):
    """What the user wants to be done to a cluster of theirs. It knows who is who from its environment."""

    def __init__(self, name: str, command: str) -> None:
        super().__init__(name, command, needs=Needs.NOTHING, hold_s=(0.0, 0.0))
        self.command = command

    def run(self, place: Place, hold_s: float) -> str:
        place.tell(f"{self.name}: {self.command}")
        process = subprocess.Popen(
            self.command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={**os.environ, **self._who_is_who(place)}, start_new_session=True,
        )  # fmt: skip
        try:
            place.wait_until(lambda: process.poll() is not None, f"end of {self.name}", COMMAND_TIMEOUT_S)
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
    """All that can be done to nodes of our own."""
    return [
        *(Kill(role) for role in Role),
        *(Pause(role) for role in Role),
        RollingRestart(),
        RollingSwap(),
        Cut(Role.LEADER),
        Cut(Role.CONTROLLER),
        Cut(Role.LEADER, one_way=True),
        Cut(Role.CONTROLLER, one_way=True),
        Isolate(Role.LEADER),
        Isolate(Role.CONTROLLER),
        FullDisk(Role.LEADER),
        FullDisk(Role.FOLLOWER),
    ]


def _nodes(place: Place) -> Nodes:
    assert place.nodes is not None
    return place.nodes


def _find(place: Place, role: Role) -> int:
    found: list[int] = []

    def look() -> bool:
        node = place.roles.find(role, place.rng)
        if node is not None:
            found.append(node)
        return node is not None

    place.wait_until(look, f"have a {role}", WHOLE_TIMEOUT_S)
    return found[0]

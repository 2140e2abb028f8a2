"""Linux namespaces: a network per node, and disks that can be filled, without touching those of the machine.

The whole command is run again inside its own network and mount namespaces (`enter`). Everything created there (a
bridge, a namespace for each node, small file systems in memory) disappears with the last process in it.

    clients (this process) ── bridge 10.99.0.254 ──┬── veth ── node 1, 10.99.0.1
                                                   ├── veth ── node 2, 10.99.0.2
                                                   └── …

One direction is cut by giving the sender a wrong hardware address for the receiver: packets are sent but never
delivered, as with a broken link. No error is reported, and the other direction still works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

MARK: Final = "PENSTOCK_CHAOS_ISOLATED"
NOBODY: Final = "02:00:00:00:0f:ff"
"""A hardware address that no interface has."""
BRIDGE: Final = "chaos0"
SUBNET: Final = "10.99.0"
NODES_MAX: Final = 99
COMMAND_TIMEOUT_S: Final = 20


class IsolationFailed(Exception):
    """A namespace, an interface or a mount could not be created; the message has the command and its output."""


def missing() -> str | None:
    """Why this machine cannot create namespaces; None if it can."""
    for program, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("mount", "util-linux")):
        if shutil.which(program) is None:
            return f"the program {program} is missing (Debian's package {package})"
    probe = ["ip", "link", "add", "probe0", "type", "bridge"]
    done = subprocess.run([*_unshare(), *probe], capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
    if done.returncode:
        return f"namespaces cannot be created here: {done.stderr.strip() or 'no reason given'}"
    return None


def inside() -> bool:
    return MARK in os.environ


def enter(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by Python with these arguments in new namespaces."""
    command = [*_unshare(), sys.executable, *arguments]
    os.execvpe(command[0], command, {**os.environ, MARK: "1"})


def _unshare() -> list[str]:
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *as_root, "--net", "--mount", "--propagation", "private", "--"]


class Network:
    """The nodes' network. Usable only inside the namespaces."""

    def __init__(self, nodes: int) -> None:
        assert inside()
        assert nodes <= NODES_MAX
        self._nodes = range(1, nodes + 1)
        self._cuts: Counter[tuple[int, int]] = Counter()
        self._down: Counter[int] = Counter()

    def up(self) -> None:
        # Names of namespaces are kept below /run, which may not be writable.
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "name", BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{SUBNET}.254/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for node in self._nodes:
            namespace = _namespace(node)
            run("ip", "netns", "add", namespace)
            run("ip", "link", "add", _interface(node), "type", "veth", "peer", "name", "eth0", "netns", namespace)
            run("ip", "link", "set", _interface(node), "master", BRIDGE, "up")
            _in(node, "link", "set", "lo", "up")
            _in(node, "address", "add", f"{self.host(node)}/24", "dev", "eth0")
            _in(node, "link", "set", "eth0", "up")

    def host(self, node: int) -> str:
        return f"{SUBNET}.{node}"

    def prefix(self, node: int) -> list[str]:
        """The command prefix that runs a command in this node's namespace."""
        return ["ip", "netns", "exec", _namespace(node)]

    @property
    def cuts(self) -> frozenset[tuple[int, int]]:
        """(sender, receiver) pairs between which packets are lost."""
        return frozenset(link for link, count in self._cuts.items() if count)

    @property
    def isolated(self) -> frozenset[int]:
        return frozenset(node for node, count in self._down.items() if count)

    def cut(self, sender: int, receiver: int) -> None:
        """Drop all packets from one node to another. The other direction still works."""
        self._cuts[sender, receiver] += 1
        _in(sender, "neighbour", "replace", self.host(receiver), "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")

    def mend(self, sender: int, receiver: int) -> None:
        """Undo one `cut`: packets pass again when none is left."""
        self._cuts[sender, receiver] -= 1
        if not self._cuts[sender, receiver]:
            _in(sender, "neighbour", "delete", self.host(receiver), "dev", "eth0")

    def isolate(self, node: int) -> None:
        """Cut a node off from all nodes and clients."""
        self._down[node] += 1
        run("ip", "link", "set", _interface(node), "down")

    def rejoin(self, node: int) -> None:
        """Undo one `isolate`."""
        self._down[node] -= 1
        if not self._down[node]:
            run("ip", "link", "set", _interface(node), "up")


class SmallDisk:
    """A file system of a few megabytes that can be filled. Usable only inside the namespaces."""

    def __init__(self, path: Path, megabytes: int) -> None:
        assert inside()
        self._path = path
        self._ballast = path / "ballast"
        path.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path))

    def fill(self) -> None:
        """Use up all free space. Call it again to use up space that was freed meanwhile."""
        block = bytes(1 << 16)
        with self._ballast.open("ab", buffering=0) as file:
            for size in (len(block), 4096, 256, 1):
                try:
                    while file.write(block[:size]):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def keep(self) -> None:
        """Copy its files to the mount point's directory: the file system itself disappears with the namespace."""
        copy = self._path.with_name(f"{self._path.name}.kept")
        shutil.copytree(self._path, copy)
        run("umount", str(self._path))
        self._path.rmdir()
        copy.rename(self._path)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
    if done.returncode:
        raise IsolationFailed(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")


def _in(node: int, *arguments: str) -> None:
    run("ip", "-n", _namespace(node), *arguments)


def _namespace(node: int) -> str:
    return f"node-{node}"


def _interface(node: int) -> str:
    return f"veth-{node}"

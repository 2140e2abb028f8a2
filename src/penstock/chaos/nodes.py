"""A cluster of broker processes started by this run, to which faults are applied: signals, cuts, full disks.

Every node that exits is restarted, as a service manager would do, unless a fault keeps it down. All of this runs in one
thread: the kernel is asked to kill a node when the thread that started it ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.chaos.isolation import Network, SmallDisk
from penstock.chaos.reach import Reach

RESTART_PAUSE_S: Final = 1.0
STOP_TIMEOUT_S: Final = 60.0
PR_SET_PDEATHSIG: Final = 1
TAIL_LINES: Final = 15
EXIT_STORAGE: Final = os.EX_IOERR
"""The exit code of a node that cannot write to its disk."""


class NodeFailed(Exception):
    """A node does not start or stop; the message has the end of its log."""


@dataclass
class Node:
    id: int
    commands: Sequence[Sequence[str]]
    """Commands that start it; several for several versions of the server."""
    log_path: Path
    disk: SmallDisk | None = None
    version: int = 0
    process: subprocess.Popen[bytes] | None = None
    held: int = 0
    """The number of faults that keep it down."""
    paused: int = 0
    may_end: int = 0
    """The number of active faults, such as a full disk, that allow it to exit with `EXIT_STORAGE`."""
    restart_at_s: float = 0.0
    ends: list[int] = field(default_factory=list)
    """Exit codes of its processes so far; negative for a signal."""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Nodes:
    """All nodes of a cluster."""

    def __init__(self, nodes: Sequence[Node], network: Network | None) -> None:
        self.by_id = {node.id: node for node in nodes}
        self.network = network
        self.tell: Callable[[str], None] = lambda text: None
        """Prints a line of progress. Set by the run."""
        self.problem: Callable[[str], None] = lambda text: None
        """Reports an unexpected event. Set by the run."""

    def start(self) -> None:
        for node in self.by_id.values():
            self._spawn(node)

    def tend(self) -> None:
        """Restart nodes that have exited; call it periodically."""
        now_s = time.monotonic()
        for node in self.by_id.values():
            if node.process is not None and not node.running:
                code = node.process.returncode
                node.process = None
                node.ends.append(code)
                if not node.held:
                    self._ended(node, code)
                    node.restart_at_s = now_s + RESTART_PAUSE_S
            if node.process is None and not node.held and now_s >= node.restart_at_s:
                self._spawn(node)

    def close(self) -> None:
        """Stop all nodes, the last one first; kill those that do not stop."""
        for node in sorted(self.by_id.values(), key=lambda one: -one.id):
            node.held += 1
            if node.disk is not None:
                node.disk.free()
            if node.running and node.process is not None:
                node.process.terminate()
                self._signal(node.id, signal.SIGCONT)
                try:
                    node.process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    node.process.kill()
                    node.process.wait()

    # ---- what can be done to one

    def kill(self, id: int) -> None:
        """kill -9; it stays down until `release`."""
        self._end(id, signal.SIGKILL)

    def stop(self, id: int) -> None:
        """SIGTERM; it stays down until `release`."""
        self._end(id, signal.SIGTERM)

    def release(self, id: int) -> None:
        """Start it again, unless another fault keeps it down."""
        node = self.by_id[id]
        node.held -= 1
        node.restart_at_s = 0.0
        self.tend()

    def pause(self, id: int) -> None:
        self._signal(id, signal.SIGSTOP)
        self.by_id[id].paused += 1

    def resume(self, id: int) -> None:
        """Let it continue, unless another fault keeps it paused."""
        node = self.by_id[id]
        node.paused -= 1
        if not node.paused:
            self._signal(id, signal.SIGCONT)

    def swap(self, id: int) -> None:
        """Run the other version from its next start on."""
        node = self.by_id[id]
        node.version = (node.version + 1) % len(node.commands)

    def reach(self) -> Reach:
        """The nodes and links that are unavailable at this moment."""
        network = self.network
        off = frozenset() if network is None else network.isolated
        halted = {node.id for node in self.by_id.values() if node.paused or not node.running}
        return Reach(off | halted, frozenset() if network is None else network.cuts)

    def keep(self) -> None:
        """Copy the data to a directory that survives this process. The nodes must have been closed."""
        for node in self.by_id.values():
            if node.disk is not None:
                node.disk.keep()

    def tail(self, id: int) -> str:
        try:
            lines = self.by_id[id].log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-TAIL_LINES:])

    def _ended(self, node: Node, code: int) -> None:
        self.tell(f"node {node.id} {ended(code)} and is restarted")
        if not node.may_end or code != EXIT_STORAGE:
            self.problem(f"node {node.id} {ended(code)} unexpectedly:\n{self.tail(node.id)}")

    def _signal(self, id: int, number: signal.Signals) -> None:
        process = self.by_id[id].process
        if process is not None and process.poll() is None:
            os.kill(process.pid, number)

    def _end(self, id: int, number: signal.Signals) -> None:
        node = self.by_id[id]
        node.held += 1
        if node.process is None:
            return
        self._signal(id, number)
        self._signal(id, signal.SIGCONT)  # a stopped process does not handle SIGTERM
        try:
            node.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise NodeFailed(f"node {id} did not stop within {STOP_TIMEOUT_S:.0f} s:\n{self.tail(id)}") from None
        node.ends.append(node.process.returncode)
        node.process = None

    def _spawn(self, node: Node) -> None:
        prefix = [] if self.network is None else self.network.prefix(node.id)
        with node.log_path.open("ab") as log:
            node.process = subprocess.Popen(
                [*prefix, *node.commands[node.version]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach only this process, which stops the nodes in order
                preexec_fn=die_with_parent,
            )


def ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def die_with_parent() -> None:
    """In the new process: make the kernel kill it when its parent ends, for whatever reason."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

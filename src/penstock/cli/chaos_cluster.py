"""The cluster that `penstock chaos --brokers N` starts for itself, to break it."""

from __future__ import annotations

import secrets
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import exit_codes
from penstock.cli.connection import parse_settings
from penstock.cli.errors import CliError

if TYPE_CHECKING:
    from penstock.chaos.nodes import Nodes

PORT_TRIES = 50
NETNS_PORT = 9092
PORTS = range(12_000, 32_000)
"""Below those that the system gives to outgoing connections."""
SOON = {"group.initial.rebalance.delay.ms": "500"}
"""Nobody comes later than the others here."""


@dataclass(frozen=True)
class OwnCluster:
    """The settings of a cluster that chaos starts itself."""

    brokers: int
    data: Path | None
    """Where the user wants the nodes' data and logs."""
    netns: bool
    settings: list[str]
    mixed_with: str | None
    disk_megabytes: int


@contextmanager
def started(own: OwnCluster, directory: Path, *, small_disks: bool) -> Iterator[tuple[Nodes, str]]:
    """Its nodes, and where clients find it."""
    from penstock.chaos.isolation import IsolationFailed, Network, SmallDisk
    from penstock.chaos.nodes import Node, Nodes
    from penstock.cli import fleet

    numbers = range(1, own.brokers + 1)
    programs = [[sys.executable, "-m", "penstock"], *([shlex.split(own.mixed_with)] if own.mixed_with else [])]
    members: list[Node] = []
    try:
        network: Network | None = None
        if own.netns:
            network = Network(own.brokers)
            network.up()
        host_of = fleet.one_host if network is None else network.host
        port = NETNS_PORT if network is not None else _free_port(own.brokers)
        for number in numbers:
            place = directory / f"node-{number}"
            disk = SmallDisk(place, own.disk_megabytes) if small_disks else None
            place.mkdir(parents=True, exist_ok=True)
            properties = {
                **fleet.properties(number, own.brokers, port, host_of), **SOON, **parse_settings(own.settings, "--set"),
            }  # fmt: skip
            server = ["server", "--data", str(place / "data")]
            server += [part for name, value in properties.items() for part in ("--set", f"{name}={value}")]
            commands = [[*program, *server] for program in programs]
            # The first of them runs the other version, if there is one: in a mixture both lead and both follow.
            version = number % len(programs)
            members.append(Node(number, commands, directory / f"node-{number}.log", disk, version))
    except IsolationFailed as error:
        raise CliError(f"--netns: {error}", exit_codes.FAILED) from None
    nodes = Nodes(members, network)
    try:
        nodes.start()
        yield nodes, ",".join(f"{host_of(number)}:{port + number - 1}" for number in numbers)
    finally:
        nodes.close()


def _free_port(brokers: int) -> int:
    """A port from which on all are free, a moment ago, that the nodes will want."""
    from penstock.cli.fleet import CONTROLLERS_ABOVE, HOST, INTERNAL_ABOVE

    for _ in range(PORT_TRIES):
        port = secrets.choice(PORTS)
        wanted = [port + above + n for above in (0, CONTROLLERS_ABOVE, INTERNAL_ABOVE) for n in range(brokers)]
        if all(_is_free(HOST, one) for one in wanted):
            return port
    raise CliError("no free ports were found for the nodes", exit_codes.FAILED)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True

"""Broker processes with settings of their own each, for what `penstock up` gives all alike: racks, selectors."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from penstock.cli.fleet import properties
from support.ports import port_with_room
from support.server_process import ServerProcess


class Member(ServerProcess):
    name = "Penstock"

    def __init__(self, node_id: int, brokers: int, port: int, settings: Mapping[str, str]) -> None:
        super().__init__()
        self.settings = {**properties(node_id, brokers, port), **settings}
        self.bootstrap = f"127.0.0.1:{port + node_id - 1}"
        self.metrics = f"127.0.0.1:{port + 200 + node_id - 1}"

    def format(self) -> None:
        """Nothing to do: a new data directory is formatted when the server first starts on it."""

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "penstock", "server", "--data", str(self.data_dir), "--metrics", self.metrics]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


class RackedCluster:
    """One broker for each of the settings, numbered from 1."""

    def __init__(self, settings: Sequence[Mapping[str, str]]) -> None:
        port = port_with_room()
        self.members = [Member(n, len(settings), port, own) for n, own in enumerate(settings, 1)]
        self.bootstrap = ",".join(member.bootstrap for member in self.members)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for member in self.members:
                stack.callback(member.close)
                member.start(wait=False)
            for member in self.members:
                member.wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

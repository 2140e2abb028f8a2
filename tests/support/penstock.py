"""A Penstock broker in a process of its own, as a user would start it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.server_process import ServerProcess

THIS_TREE = (sys.executable, "-m", "penstock")


class PenstockServer(ServerProcess):
    """`penstock server` with nothing set but where it listens, where its data goes, and `settings`."""

    name = "Penstock"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        command: Sequence[str] = THIS_TREE,
    ) -> None:
        """`command`: the `penstock` to start; a benchmark may compare two."""
        super().__init__(directory)
        self.settings = dict(settings or {})
        self._penstock = list(command)

    def format(self) -> None:
        """Nothing to do: a new data directory is formatted when the server first starts on it."""

    def command(self) -> list[str]:
        settings = [f"--set={name}={value}" for name, value in self.settings.items()]
        return [*self._penstock, "server", "--listen", self.bootstrap, "--data", str(self.data_dir), *settings]

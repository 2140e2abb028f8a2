"""A Penstock broker in a process of its own, as a user would start it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from support.server_process import ServerProcess


class PenstockServer(ServerProcess):
    name = "Penstock"

    def __init__(self, settings: Mapping[str, str] | None = None, *, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.settings = dict(settings or {})

    def format(self) -> None:
        """Nothing to do: a new data directory is formatted when the server first starts on it."""

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "penstock", "server", "--listen", self.bootstrap, "--data", str(self.data_dir)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

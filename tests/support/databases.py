"""Real databases on loopback, each in a process and a directory of its own, as a user without privileges.

They come from Debian's packages (`tools/debian_packages.sh postgresql redis-server`); `available` says why not.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from support.ports import free_ports
from support.server_process import ServerFailed, die_with_parent

READY_TIMEOUT_S = 60
INSTALL_TIMEOUT_S = 300
INSTALLER = Path(__file__).resolve().parents[2] / "tools" / "debian_packages.sh"
UNPRIVILEGED = "nobody"
STEP_S = 0.02


class Database:
    """A server that is started on entry, and stopped and cleaned away on exit; `start`, `kill` in between."""

    name: str
    package: str

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.directory.chmod(0o755)
        self.data_dir = self.directory / "data"
        self.data_dir.mkdir(mode=0o700)
        self.log_path = self.directory / "server.log"
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            entry = pwd.getpwnam(UNPRIVILEGED)
            os.chown(self.data_dir, entry.pw_uid, entry.pw_gid)

    @classmethod
    def program(cls, name: str) -> str | None:
        return shutil.which(name)

    @classmethod
    def available(cls) -> str | None:
        """Why it cannot be used here; installs it first where that is possible."""
        if cls.missing():
            subprocess.run([str(INSTALLER), cls.package], check=False, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        if cls.missing():
            return f"{cls.package} is not installed: run tools/debian_packages.sh {cls.package} as root"
        if os.geteuid() == 0 and shutil.which("setpriv") is None:
            return "setpriv is missing: a database does not run as root"
        return None

    @classmethod
    def missing(cls) -> bool:
        raise NotImplementedError

    def prepare(self) -> None:
        """Once, before the first start."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def start(self) -> None:
        assert self._process is None
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*die_with_parent(), *unprivileged(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.directory,
            )
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise ServerFailed(f"{self.name} did not start:\n{self.log_path.read_text(errors='replace')[-3000:]}")
            time.sleep(STEP_S)

    def end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(READY_TIMEOUT_S)

    def __enter__(self) -> Self:
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end(signal.SIGQUIT if isinstance(self, Postgres) else signal.SIGTERM)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


class Postgres(Database):
    name = "postgres"
    package = "postgresql"

    @classmethod
    def program(cls, name: str) -> str | None:
        # Debian keeps the programs of each version in a directory of their own.
        found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
        return found[-1] if found else shutil.which(name)

    @classmethod
    def missing(cls) -> bool:
        return cls.program("initdb") is None or cls.program("postgres") is None

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=penstock dbname=postgres"

    def prepare(self) -> None:
        initdb = self.program("initdb")
        assert initdb is not None
        options = ["--username=penstock", "--auth=trust", "--encoding=UTF8", "--no-sync", "-D", str(self.data_dir)]
        done = subprocess.run(
            [*unprivileged(), initdb, *options], capture_output=True, text=True, check=False, cwd=self.directory,
            timeout=READY_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise ServerFailed(f"initdb failed: {done.stderr[-2000:]}")

    def command(self) -> list[str]:
        postgres = self.program("postgres")
        assert postgres is not None
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        return [postgres, "-D", str(self.data_dir), *(f"-c{name}={value}" for name, value in settings.items())]

    def answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.conninfo, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class RedisServer(Database):
    name = "redis"
    package = "redis-server"

    @classmethod
    def missing(cls) -> bool:
        return cls.program("redis-server") is None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        program = self.program("redis-server")
        assert program is not None
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.data_dir, "appendonly": "yes", "save": ""}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [program, *words]


def unprivileged() -> list[str]:
    """A prefix for commands that must not run as root."""
    if os.geteuid() != 0:
        return []
    entry = pwd.getpwnam(UNPRIVILEGED)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--pdeathsig", "KILL"]

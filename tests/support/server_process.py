"""A server in a process and a directory of its own, on loopback, that is always stopped and cleaned away."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from support.ports import free_ports

READY_TIMEOUT_S = 90
STOP_TIMEOUT_S = 60


class ServerFailed(Exception):
    """A server did not start, or ended while it was needed; the message has the end of its log."""


class ServerProcess(ABC):
    """A broker that can be started, stopped and killed again and again.

    As a context manager it starts on entry and is stopped and cleaned away on exit. In between `start`, `stop` and
    `kill` may be called: data, configuration and port stay until `close`.
    """

    name: str
    running: ClassVar[set[ServerProcess]] = set()
    """Those of this process that were started and not ended by whoever started them."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name.lower().replace(' ', '-')}-", dir=directory))
        self.data_dir = self.directory / "data"
        self.log_path = self.directory / "server.log"
        self.port = free_ports(1)[0]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What starts the server in the foreground."""

    @abstractmethod
    def format(self) -> None:
        """Prepares a new data directory, where that is a step of its own; `start` does it if it was not done."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running: call start()"
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Starts the server; with `wait`, returns once it answers a metadata request."""
        assert self._process is None, f"{self.name} is already running"
        self.format()
        with self.log_path.open("ab") as log:
            # A session of its own keeps the terminal's Ctrl-C from the server: whoever started it stops it in order.
            self._process = subprocess.Popen(
                [*die_with_parent(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.add(self)
        if wait:
            self.wait_until_ready(timeout_s)

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        client = admin_client(self.bootstrap)
        while True:
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"{self.name} ended while starting:\n{self.log_tail()}")
            with suppress(KafkaException):
                if client.list_topics(timeout=1).brokers:
                    return
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"{self.name} did not answer within {timeout_s} s:\n{self.log_tail()}")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """A clean stop; one that takes too long is cut short."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """An unclean stop, as a crash of the process would be."""
        self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def close(self) -> None:
        """Stops the server and removes its directory."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self, lines: int = 40) -> str:
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _end(self, number: signal.Signals, timeout_s: float) -> None:
        self.running.discard(self)
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def admin_client(bootstrap: str) -> AdminClient:
    """One that finds a server soon after it came up, and does not complain about it before."""
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )


def die_with_parent() -> list[str]:
    """A command prefix that has the kernel end the process when its parent is killed without a chance to clean up."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []

"""A broker as a process of its own, started as a user would start it."""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 20.0

_READY: Final = re.compile(r"penstock: ready on (\S+:\d+)")
_PR_SET_PDEATHSIG: Final = 1


class BrokerFailed(Exception):
    """The broker did not start or ended by itself; the message is its own."""


class BrokerProcess:
    """`penstock server` on loopback. Port 0 takes a free one; `address` says where it listens."""

    def __init__(self, data: Path, port: int, log_path: Path) -> None:
        self._log_path = log_path
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "penstock", "server"]
        command += ["--listen", f"127.0.0.1:{port}", "--data", str(data)]
        # Nobody else will join: the first member of a group need not wait for the others.
        command += ["--set", "group.initial.rebalance.delay.ms=0"]
        with self._log_path.open("wb") as log:
            # A session of its own keeps the terminal's Ctrl-C from it: the demo stops it last.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        self.address = ""
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, name="demo-broker-output", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> str:
        """The broker's address, once it takes requests."""
        deadline_s = time.monotonic() + timeout_s
        while not self._ready.wait(0.02):
            if not self.alive():
                self._reader.join(1)
                raise BrokerFailed(self.last_words() or f"the broker ended with code {self._process.returncode}")
            if time.monotonic() > deadline_s:
                raise BrokerFailed(f"the broker was not ready within {timeout_s:g} s; its log is {self._log_path}")
        return self.address

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        if not self._log_path.exists():
            return ""
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1].removeprefix("penstock: ") if lines else ""

    def stop(self) -> None:
        """A clean stop; one that takes too long is cut short."""
        if self.alive():
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := _READY.match(line):
                self.address = found[1]
                self._ready.set()


def _end_with_parent() -> None:
    """A demo that is killed takes its broker with it, in order: the kernel sends SIGTERM."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

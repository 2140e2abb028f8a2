"""A monitor as a process of its own, beside the brokers that another program starts: `penstock up` and the demo."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

STOP_TIMEOUT_S: Final = 15.0
_PR_SET_PDEATHSIG: Final = 1


class MonitorProcess:
    """`penstock monitor` until the context ends. The cluster need not be there yet: the monitor waits for it."""

    def __init__(
        self,
        address: str,
        *,
        scrapes: Mapping[int, str] | None = None,
        metrics: str | None = None,
        log_path: Path | None = None,
    ) -> None:
        command = [sys.executable, "-m", "penstock", "monitor", "--bootstrap-server", address]
        for broker, endpoint in (scrapes or {}).items():
            command += ["--scrape", f"{broker}={endpoint}"]
        if metrics is not None:
            command += ["--metrics", metrics]
        log = None if log_path is None else log_path.open("ab")
        try:
            # A session of its own keeps the terminal's Ctrl-C from it: whoever started it stops it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        finally:
            if log is not None:
                log.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _end_with_parent() -> None:
    """If the parent is killed, the kernel ends the monitor too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

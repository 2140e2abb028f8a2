"""Commands in a terminal of a certain size, and whether what they draw fits it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence

from rich.cells import cell_len

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[78=>]")
_FRAME = re.compile(r"\x1b\[H|(?:\x1b\[1A\x1b\[2K)+|\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")


def run_in_terminal(
    command: Sequence[str], columns: int, rows: int, *, until: str, timeout_s: float = 60, interrupt: bool = True
) -> tuple[int, str]:
    """What a command writes to its terminal; it is interrupted (Ctrl-C) when it has written `until`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm-256color"}
    )
    os.close(theirs)
    written = b""
    deadline_s = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline_s:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    data = os.read(ours, 65536)
                except OSError:  # the other side is closed
                    data = b""
                if not data:
                    break
                written += data
            if interrupt and until.encode() in written:
                process.send_signal(signal.SIGINT)
                interrupt = False
        return process.wait(max(1.0, deadline_s - time.monotonic())), written.decode(errors="replace")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def frames_of(written: str) -> list[list[str]]:
    """The lines of each picture that was drawn over the last one."""
    return [_CONTROL.sub("", part).replace("\r", "").rstrip("\n").split("\n") for part in _FRAME.split(written)]


def check_fits(written: str, columns: int, rows: int) -> None:
    for frame in frames_of(written):
        assert len(frame) <= rows, "\n".join(frame)
        for line in frame:
            assert cell_len(line) <= columns, line

"""Runs the blocks of a page as they stand: in a copy of the repository's directory, and a network of its own.

The network has nothing but loopback, so that the pages' port 9092 is free whatever else runs on this machine. Where the
kernel does not allow that, the machine's own loopback is used, if nothing listens on that port.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from docs.blocks import Block, missing_output
from support.server_process import die_with_parent
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PORT = 9092
BLOCK_TIMEOUT_S = 600.0
OF_THE_TESTS = ("PENSTOCK_", "PYSPARK_", "SPARK_", "VIRTUAL_ENV", "PYTEST_")
"""Variables that the tests have and somebody who begins to read a page has not."""
NOT_COPIED = ("data", "lake", "checkpoints", ".git")

_NAMESPACE = "ip link set lo up && echo ready && exec sleep infinity"


@contextmanager
def own_network() -> Iterator[list[str]]:
    """What to put before a command so that it runs there."""
    if shutil.which("unshare") and shutil.which("nsenter") and shutil.which("ip"):
        command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", _NAMESPACE]
        with subprocess.Popen([*die_with_parent(), *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
            assert one.stdout is not None
            try:
                if one.stdout.readline() == b"ready\n":
                    yield ["nsenter", "--target", str(one.pid), "--user", "--net", "--preserve-credentials"]
                    return
            finally:
                one.kill()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            pytest.skip(f"no network namespaces here, and something listens on port {PORT}")
    yield []


class Reader:
    """Somebody who follows a page from its beginning, in a directory of their own."""

    def __init__(self, directory: Path, network: list[str], variables: Mapping[str, str]) -> None:
        self._directory = directory / "penstock"
        self._files = directory
        self._network = network
        self._left_running: list[tuple[Block, subprocess.Popen[bytes], Path]] = []
        self._variables = {name: value for name, value in os.environ.items() if not name.startswith(OF_THE_TESTS)}
        # Making an archive of Spark's classes would take a minute of both cores.
        self._variables |= {"PENSTOCK_CLASS_ARCHIVE": "use", **variables}
        self._state = directory / "state.sh"
        self._state.touch()
        self._directory.mkdir()
        for path in ROOT.iterdir():
            if path.name not in NOT_COPIED:
                (self._directory / path.name).symlink_to(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, process, _ in self._left_running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(self, block: Block) -> None:
        """Runs a block, and checks what it printed."""
        output = self._files / f"line-{block.line}.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*self._network, *self._command(block)],
                cwd=self._directory,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A test run in the background of a shell ignores Ctrl-C, and so would all that it starts.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self._left_running.append((block, process, output))
        if block.until is not None:
            wanted = block.until
            wait_until(lambda: wanted in _read(output) or process.poll() is not None, BLOCK_TIMEOUT_S)
            assert process.poll() is None, f"line {block.line} ended by itself:\n{_read(output)}"
        else:
            process.wait(BLOCK_TIMEOUT_S)
            self._left_running.pop()
            self._check(block, process, output)
        missing = missing_output(block.output if block.language == "console" else [], _read(output))
        assert missing is None, f"line {block.line} does not print {missing!r}:\n{_read(output)}"
        if block.interrupts_the_last:
            self._press_ctrl_c()
        if block.ends_the_others:
            self._wait_for_ends()

    def stop(self) -> None:
        """Presses Ctrl-C for everything that was left running, the newest first."""
        while self._left_running:
            self._press_ctrl_c()

    def _press_ctrl_c(self) -> None:
        os.killpg(self._left_running[-1][1].pid, signal.SIGINT)
        self._wait_for_the_last()

    def _wait_for_ends(self) -> None:
        while self._left_running:
            self._wait_for_the_last()

    def _wait_for_the_last(self) -> None:
        block, process, output = self._left_running[-1]
        process.wait(BLOCK_TIMEOUT_S)
        self._left_running.pop()
        self._check(block, process, output)

    def _check(self, block: Block, process: subprocess.Popen[bytes], output: Path) -> None:
        # A shell or make that is interrupted says so by its code, even where the program below it ended well.
        allowed = (0, -signal.SIGINT, 128 + signal.SIGINT) if block.until is not None else (0,)
        text = _read(output)
        assert process.returncode in allowed, f"line {block.line} ended with {process.returncode}:\n{text}"
        assert "Traceback" not in text, f"line {block.line}:\n{text}"

    def _command(self, block: Block) -> list[str]:
        if block.language == "python":
            path = self._files / f"line-{block.line}.py"
            path.write_text(block.text, encoding="utf-8")
            script = f'PATH="$PWD/.venv/bin:$PATH"\nexec python {path}\n'
        else:
            script = block.script
        # Variables that a block exports, such as those of an activated environment, are there for the next.
        lines = [f". {self._state}", "set -e -o pipefail", script]
        if block.until is None and block.language == "console":
            lines.append(f"export -p > {self._state}")
        return ["bash", "-c", "\n".join(lines)]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")

"""Producers that use another client: any external program that sends the records it is given.

It is started once per producer, as COMMAND TOPIC key=value …, where the pairs are client properties under Java's names
(`bootstrap.servers` and the timeouts of the run). It must send in order, with idempotence and acks=all.

    its standard input     one line for each record: number partition value
    its standard output    one line for each record: number partition offset; the offset is -1 if delivery failed

At the end of its input it waits for outstanding records, and exits.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.chaos.ledger import Name, encode
from penstock.chaos.nodes import die_with_parent

if TYPE_CHECKING:
    from penstock.chaos.load import Load


class ProgramWriter(threading.Thread):
    """Makes a program send numbered records, at a given rate, to all partitions in turn."""

    def __init__(self, load: Load, number: int, rate: float, value_bytes: int, command: Sequence[str]) -> None:
        super().__init__(name=f"producer {number}", daemon=True)
        self._load = load
        self._number = number
        self._pause_s = 1 / rate
        self._value_bytes = value_bytes
        self._command = command

    def run(self) -> None:
        try:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        except OSError as error:
            self._load.problem(f"producer {self._number} cannot be started: {error}")
            return
        answers = threading.Thread(target=self._listen, args=(process,), daemon=True)
        answers.start()
        with suppress(BrokenPipeError):  # its exit code shows the reason
            self._send_all(process)
        answers.join()
        if code := process.wait():
            self._load.problem(f"producer {self._number} ended with exit code {code}")

    def _send_all(self, process: subprocess.Popen[str]) -> None:
        load = self._load
        assert process.stdin is not None
        partition = self._number % load.ledger.partitions
        next_s = time.monotonic()
        with process.stdin as orders:
            while not load.stop_sending.is_set():
                with load.lock:
                    name = load.ledger.sent(self._number, partition)
                value = encode(name).decode().ljust(self._value_bytes)
                orders.write(f"{name.number} {partition} {value}\n")
                partition = (partition + 1) % load.ledger.partitions
                next_s += self._pause_s
                load.stop_sending.wait(max(0.0, next_s - time.monotonic()))

    def _listen(self, process: subprocess.Popen[str]) -> None:
        load = self._load
        assert process.stdout is not None
        for line in process.stdout:
            number, partition, offset = map(int, line.split())
            load.delivered(Name(self._number, number), partition, None if offset < 0 else offset)

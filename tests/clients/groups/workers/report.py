"""How a member program is told what to do, and writes down what it did."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any


class Report:
    """Appends to the ledger: each event is one write of one line, so lines of several processes never mix."""

    def __init__(self, path: str, member: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._member = member
        self._owned: set[int] = set()

    def gained(self, partitions: list[int]) -> None:
        self._owned |= set(partitions)
        self._write(event="assigned", partitions=sorted(self._owned))

    def lost(self, partitions: list[int]) -> None:
        self._owned -= set(partitions)
        self._write(event="assigned", partitions=sorted(self._owned))

    def processed(self, partition: int, offset: int, value: bytes) -> None:
        self._write(event="processed", partition=partition, offset=offset, value=value.decode())

    def committed(self, partition: int, offset: int) -> None:
        self._write(event="committed", partition=partition, offset=offset)

    def leaving(self) -> None:
        """For clients that do not say so when they give everything up at the end."""
        self._write(event="left")

    def failed(self, error: object) -> None:
        self._write(event="failed", error=str(error))

    def _write(self, **event: object) -> None:
        os.write(self._file, json.dumps({"member": self._member, **event}).encode() + b"\n")


class Orders:
    """What the test asks of this member."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = json.loads(sys.argv[1])
        self.report = Report(self.settings["ledger"], self.settings["member"])
        self.stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopping = True

"""A topic that drivers write to exactly once, in processes that come and go, and a reader that never looks away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import Producer

from support.committed import CommittedReader
from support.records import create_topic
from support.server_process import ServerProcess, die_with_parent
from support.topic_driver import RETURNED

ROWS = 60
PARTITIONS = 3
DRIVER_TIMEOUT_S = 240.0
TESTS = Path(__file__).resolve().parents[1]

AT_START = ("OPENED", "INITIALISED", "MARKER_READ")
WRITTEN_STEPS = ("FLUSHED", "MARKED")
COMMITTED_STEPS = ("COMMITTED", RETURNED)
ABORT_STEPS = ("ABORTING", "ABORTED")
STEPS = (*AT_START, "EVALUATED", "BEGUN", "PRODUCED", *WRITTEN_STEPS, *COMMITTED_STEPS)

TAKEN_OVER = "was taken over: another driver runs the same query"


@dataclass
class Scene:
    """A topic, a checkpoint, a reader, and drivers."""

    kafka: ServerProcess
    directory: Path
    batches: int = 4
    topic: str = field(default_factory=lambda: f"out-{uuid.uuid4().hex[:8]}")
    reader: CommittedReader = field(init=False)
    _drivers: list[Driver] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._create(self.topic, PARTITIONS)
        self.reader = self._reader()
        self.reader.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reader.__exit__(kind, error, trace)
        for driver in self._drivers:
            driver.kill()

    def driver(self, module: str = "support.topic_driver", **plan: object) -> Driver:
        """A whole Spark driver."""
        plan = {
            "bootstrap": self.kafka.bootstrap,
            "topic": self.topic,
            "checkpoint": str(self.directory / "checkpoint"),
            "batches": self.batches,
            "rows_per_batch": ROWS,
            "marker_topic": self.marker_topic,
            **plan,
        }
        self._drivers.append(Driver(module, plan, self.directory / "driver.log"))
        return self._drivers[-1]

    def process(self, **plan: object) -> Driver:
        """A writer without Spark: see `support.topic_process`."""
        return self.driver(module="support.topic_process", **plan)

    def source(self) -> str:
        """A topic whose records are all the rows there will be."""
        name = f"in-{self.topic}"
        self._create(name, 1)
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for _ in range(self.batches * ROWS):
            producer.produce(name, b"row")
        assert producer.flush(60) == 0
        return name

    def attempts(self) -> Path:
        directory = self.directory / "attempts"
        directory.mkdir()
        return directory

    def done(self) -> int:
        """How many batches writers without Spark have noted as done."""
        noted = self.directory / "checkpoint"
        return len(list(noted.iterdir())) if noted.exists() else 0

    @property
    def marker_topic(self) -> str:
        return f"markers-{self.topic}"

    def finish_soon(self) -> None:
        """A last writer without Spark, for a few batches behind those that are there."""
        self.batches = self.done() + 3
        self.process().wait_until("DONE")
        self.check_all()

    def finish(self, **plan: Any) -> Driver:
        """The last driver, which is let live; then all is there, whole and once."""
        last = self.driver(**plan)
        last.wait_until("DONE")
        self.check_all()
        return last

    def check_all(self) -> None:
        """All batches: for the one who looked all the time, and for one who comes now."""
        self.reader.wait_for(self.batches)
        with self._reader() as late:
            late.wait_for(self.batches)

    def _reader(self) -> CommittedReader:
        return CommittedReader(self.kafka.bootstrap, self.topic, PARTITIONS, ROWS)

    def _create(self, topic: str, partitions: int) -> None:
        create_topic(self.kafka.bootstrap, topic, partitions)


class Driver:
    """A process that writes, and prints each step that it reaches."""

    def __init__(self, module: str, plan: dict[str, object], log: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*die_with_parent(), sys.executable, "-m", module, json.dumps(plan)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        self.steps: list[str] = []
        self._drained = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def wait_until(self, step: str, batch_id: int | None = None) -> None:
        """Until the driver says so, in this batch or in any; fails if it ends first."""
        deadline_s = time.monotonic() + DRIVER_TIMEOUT_S
        while not self._said(step, batch_id):
            assert time.monotonic() < deadline_s, f"not {step} in time: {self._story()}"
            assert not self._drained.is_set() or self._said(step, batch_id), f"ended before {step}: {self._story()}"
            time.sleep(0.02)

    def wait_until_killed(self) -> None:
        assert self._ended() == -9, self._story()

    def wait_until_failed(self) -> str:
        """What it says about it."""
        assert self._ended() == 3, self._story()
        return "\n".join(self.steps[next(n for n, line in enumerate(self.steps) if line.startswith("FAILED")) :])

    def wait_until_ended(self) -> str:
        """What it did, well or not."""
        self._ended()
        return "\n".join(self.steps)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wake(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def _said(self, step: str, batch_id: int | None) -> bool:
        if batch_id is not None:
            return f"{step} {batch_id}" in self.steps
        return any(line.split(" ")[0] == step for line in self.steps)

    def _ended(self) -> int:
        """How the process ended. Not when its output did: Spark's Java holds that, and takes a while to follow."""
        try:
            code = self.process.wait(DRIVER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"the driver does not end: {self._story()}")
        self._drained.wait(DRIVER_TIMEOUT_S if code >= 0 else 0.2)
        return code

    def _story(self) -> str:
        return f"{self.steps[-8:]}\n{self._log.read_text()[-3000:]}"

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.steps.append(line.rstrip("\n"))
        self._drained.set()

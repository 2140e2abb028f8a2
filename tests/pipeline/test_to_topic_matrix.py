"""Real drivers, killed for real, at every step, while a read_committed reader watches all the time.

The matrix of deaths: each step × a death at once and one a little later (in the middle of what follows), with another
number of cores at each start; deaths in aborts; then a zombie that wakes up too late, speculation, executors and
brokers that die. Every row has a random column, so a batch written twice, or half by one driver and half by another,
would show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka.admin import NewTopic

from support.apache_kafka import ApacheKafka, available
from support.committed import CommittedReader
from support.server_process import admin_client, die_with_parent
from support.spark import require_spark
from support.spark_cluster import StandaloneCluster
from support.topic_driver import RETURNED

pytestmark = [pytest.mark.needs_maven, pytest.mark.long, pytest.mark.timeout(3600)]

ROWS = 60
PARTITIONS = 3
DRIVER_TIMEOUT_S = 180.0
CORES = ("local[1]", "local[3]", "local[2]", "local[4]")

AT_START = ("OPENED", "INITIALISED", "MARKER_READ")
COMMITTED_STEPS = ("COMMITTED", RETURNED)
STEPS = (*AT_START, "EVALUATED", "BEGUN", "PRODUCED", "FLUSHED", "MARKED", *COMMITTED_STEPS)

DELAYS_MS = (0, 1, 2, 4, 8, 16, 32)
MANY = 10_000
"""More batches than a process that is killed gets to."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    if reason := available():
        pytest.skip(reason)
    require_spark()
    with ApacheKafka(heap="512M") as server:
        yield server


@dataclass
class Scene:
    """A topic, a checkpoint, a reader that never looks away, and drivers that come and go."""

    kafka: ApacheKafka
    directory: Path
    batches: int = 4
    topic: str = field(default_factory=lambda: f"out-{uuid.uuid4().hex[:8]}")
    reader: CommittedReader = field(init=False)

    def __enter__(self) -> Self:
        admin = admin_client(self.kafka.bootstrap)
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result()
        self.reader = CommittedReader(self.kafka.bootstrap, self.topic, PARTITIONS, ROWS)
        self.reader.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reader.__exit__(kind, error, trace)

    def driver(self, module: str = "support.topic_driver", **plan: object) -> Driver:
        plan = {
            "bootstrap": self.kafka.bootstrap,
            "topic": self.topic,
            "checkpoint": str(self.directory / "checkpoint"),
            "batches": self.batches,
            "rows_per_batch": ROWS,
            "marker_topic": f"markers-{self.topic}",
            **plan,
        }
        return Driver(module, plan, self.directory / "driver.log")

    def attempts(self) -> Path:
        directory = self.directory / "attempts"
        directory.mkdir()
        return directory

    def process(self, **plan: object) -> Driver:
        """A writer without Spark: see `support.topic_process`."""
        return self.driver(module="support.topic_process", **plan)

    def finish_soon(self) -> None:
        """A last writer without Spark, for a few batches behind those that are there."""
        self.batches = len(list((self.directory / "checkpoint").iterdir())) + 3
        self.process().wait_until("DONE")
        self.reader.wait_for(self.batches)

    def finish(self, **plan: object) -> Driver:
        """The last driver, which is let live; then all is there, whole and once."""
        last = self.driver(**plan)
        last.wait_until("DONE")
        self.reader.wait_for(self.batches)
        return last


class Driver:
    """A process that writes, and prints each step that it reaches."""

    def __init__(self, module: str, plan: dict[str, object], log: Path) -> None:
        tests = str(Path(__file__).resolve().parents[1])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
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

    def wait_until(self, line: str) -> None:
        """Until the driver says so; fails if it ends first."""
        deadline_s = time.monotonic() + DRIVER_TIMEOUT_S
        while line not in self.steps:
            assert time.monotonic() < deadline_s, f"not {line} in time: {self._story()}"
            assert not self._drained.is_set() or line in self.steps, f"ended before {line}: {self._story()}"
            time.sleep(0.05)

    def wait_until_killed(self) -> None:
        assert self._ended() == -9, self._story()

    def wait_until_failed(self) -> str:
        assert self._ended() == 3, self._story()
        return "\n".join(self.steps[next(n for n, line in enumerate(self.steps) if line.startswith("FAILED")) :])

    def wake(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

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


def test_writers_killed_at_every_step_and_a_few_moments_after_each(kafka: ApacheKafka, tmp_path: Path) -> None:
    """Without Spark around it, a process is born and killed in a second: the fine grid."""
    with Scene(kafka, tmp_path, batches=MANY) as scene:
        for die_after_ms in DELAYS_MS:
            for die_at in STEPS:
                scene.process(die_at=die_at, die_after_ms=die_after_ms).wait_until_killed()
                scene.reader.check()
        scene.finish_soon()


def test_writers_killed_a_few_moments_into_an_abort(kafka: ApacheKafka, tmp_path: Path) -> None:
    with Scene(kafka, tmp_path, batches=MANY) as scene:
        for die_after_ms in DELAYS_MS:
            for die_at in ("ABORTING", "ABORTED"):
                scene.process(die_at=die_at, die_after_ms=die_after_ms, fail_commit_in=0).wait_until_killed()
                scene.reader.check()
        scene.finish_soon()


@pytest.mark.parametrize("die_after_ms", [0, 15], ids=["at-once", "a-little-later"])
def test_drivers_killed_at_every_step_one_after_the_other(
    kafka: ApacheKafka, tmp_path: Path, die_after_ms: int
) -> None:
    """Each driver finds what the one before it left behind, and dies one step later, on another number of cores."""
    with Scene(kafka, tmp_path, batches=len(STEPS) + 1) as scene:
        passed_over: str | None = None
        for number, die_at in enumerate(STEPS):
            die_in = 0 if die_at in AT_START else number
            cores = CORES[number % len(CORES)]
            driver = scene.driver(master=cores, die_at=die_at, die_in=die_in, die_after_ms=die_after_ms)
            driver.wait_until_killed()
            scene.reader.check()
            if passed_over:
                assert passed_over in driver.steps, "written before, and so passed over"
            passed_over = f"PASSED_OVER {die_in}" if die_at in COMMITTED_STEPS and not die_after_ms else None
        last = scene.finish(master=CORES[-1])
        assert passed_over is None or passed_over in last.steps


def test_drivers_killed_in_the_middle_of_aborts(kafka: ApacheKafka, tmp_path: Path) -> None:
    deaths = [("ABORTING", 0), ("ABORTING", 2), ("ABORTING", 5), ("ABORTED", 0), ("ABORTED", 3)]
    with Scene(kafka, tmp_path, batches=len(deaths) + 1) as scene:
        for batch_id, (die_at, die_after_ms) in enumerate(deaths):
            plan = {"die_at": die_at, "die_in": batch_id, "die_after_ms": die_after_ms, "fail_commit_in": batch_id}
            scene.driver(**plan).wait_until_killed()
            scene.reader.check()
        scene.finish(master=CORES[1])


@pytest.mark.parametrize("pause_at", ["EVALUATED", "FLUSHED", "MARKED", "COMMITTED"])
def test_a_zombie_driver_that_wakes_up_after_another_took_over(
    kafka: ApacheKafka, tmp_path: Path, pause_at: str
) -> None:
    with Scene(kafka, tmp_path) as scene:
        zombie = scene.driver(pauses=[[pause_at, 1]])
        zombie.wait_until(f"{pause_at} 1")
        scene.finish(master=CORES[1])
        zombie.wake()
        told = zombie.wait_until_failed()
        # One that had committed only learns from Spark's own log that it is not alone.
        assert pause_at == "COMMITTED" or "was taken over: another driver runs the same query" in told
        scene.reader.wait_for(scene.batches)


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.efficiency.enabled": "false",
}
CLUSTER = {"master": "local-cluster[2,1,1024]", "config": {**SPECULATION, "spark.executor.memory": "512m"}}


class TwoHosts(StandaloneCluster):
    """Workers that seem to be on two hosts: Spark starts a second attempt only on another host than the first."""

    def _start(self, name: str, arguments: list[str]) -> None:
        if name.endswith(".Worker"):
            assert arguments[0] == "--host"
            arguments = ["--host", f"127.0.0.{len(self._processes) + 1}", *arguments[2:]]
        super()._start(name, arguments)


def test_speculative_attempts_write_nothing_twice(kafka: ApacheKafka, tmp_path: Path) -> None:
    with Scene(kafka, tmp_path) as scene, TwoHosts(workers=2) as cluster:
        attempts = scene.attempts()
        config = {**SPECULATION, "spark.executor.memory": "512m"}
        scene.finish(master=cluster.master, config=config, slow_first_attempt_s=8.0, attempts=str(attempts))
        assert any(path.name.endswith("-0-1") for path in attempts.iterdir()), "no second attempt was made: no test"


def test_an_executor_that_dies_in_a_batch_and_a_driver_that_dies_in_the_next(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    with Scene(kafka, tmp_path) as scene:
        attempts = scene.attempts()
        plan = {**CLUSTER, "attempts": str(attempts)}
        scene.driver(**plan, kill_executor_in=1, die_at="MARKED", die_in=2).wait_until_killed()
        scene.reader.check()
        scene.finish(**plan, kill_executor_in=3)
        assert {"1-0-1", "3-0-1"} <= {path.name for path in attempts.iterdir()}, "no executor died: no test"


def test_brokers_killed_in_the_middle_of_batches(kafka: ApacheKafka, tmp_path: Path) -> None:
    steps = ["BEGUN", "FLUSHED", "MARKED", "COMMITTED"]
    with Scene(kafka, tmp_path, batches=len(steps) + 2) as scene:
        pauses = [[step, number] for number, step in enumerate(steps, 1)]
        driver = scene.driver(pauses=pauses)
        for step, batch_id in pauses:
            driver.wait_until(f"{step} {batch_id}")
            scene.reader.broker_is_down = True
            kafka.kill()
            driver.wake()
            kafka.start()
            scene.reader.broker_is_down = False
        driver.wait_until("DONE")
        scene.reader.wait_for(scene.batches)

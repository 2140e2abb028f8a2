"""Drivers killed for real, at every step, on a table that is compacted all the time: each batch whole and once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.pipeline.lake import compact_table, vacuum_table
from pipeline.lake.tables import parquet_files
from support.server_process import die_with_parent
from support.spark import require_spark
from support.spark_cluster import StandaloneCluster

TESTS = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("driver_process.py")
BATCHES = 8
ROWS = 60
START_TIMEOUT_S = 120
RUN_TIMEOUT_S = 400

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


class Query:
    """A query over some files, each of which is a batch, and its drivers."""

    def __init__(self, directory: Path) -> None:
        self.table = directory / "table"
        self.directory = directory
        self.attempts = 0
        (directory / "in").mkdir()
        for batch in range(BATCHES):
            lines = [
                json.dumps({"id": ROWS * batch + row, "batch": batch, "at": f"2026-01-{1 + row % 3:02}T00:00:00Z"})
                for row in range(ROWS)
            ]
            file = directory / "in" / f"{batch}.json"
            file.write_text("\n".join(lines))
            os.utime(file, (1_000_000 + batch, 1_000_000 + batch))

    def start(self, master: str, tasks: int, **settings: Any) -> subprocess.Popen[str]:
        self.attempts += 1
        chosen = {
            "master": master, "tasks": tasks, "table": str(self.table), "input": str(self.directory / "in"),
            "checkpoint": str(self.directory / "checkpoint"), "attempt": f"attempt {self.attempts}", **settings,
        }  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "SPARK_LOCAL_IP": "127.0.0.1"}
        with (self.directory / f"driver-{self.attempts}.log").open("w") as events:
            return subprocess.Popen(
                [*die_with_parent(), sys.executable, str(DRIVER), json.dumps(chosen)],
                stdout=subprocess.PIPE,
                stderr=events,
                text=True,
                env=environment,
                start_new_session=True,
            )

    def run(self, master: str, tasks: int, **settings: Any) -> tuple[int, list[str]]:
        """A driver from its start to its end: how it ended, and the steps it told."""
        process = self.start(master, tasks, **settings)
        try:
            output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        finally:
            end(process)
        self.check()
        return process.returncode, output.splitlines()

    def events(self) -> str:
        return "\n".join(file.read_text()[-3000:] for file in sorted(self.directory.glob("driver-*.log")))

    def check(self, *, complete: bool = False) -> int:
        """Each batch that is there is whole, once, and of one attempt. Returns how many there are."""
        if not DeltaTable.is_deltatable(str(self.table)) and not complete:
            return 0
        rows = pa.table(DeltaTable(str(self.table)).scan(columns=["id", "batch", "attempt"]).read_all()).to_pylist()
        counts = Counter(row["batch"] for row in rows)
        assert counts == dict.fromkeys(counts, ROWS), f"{counts}\n{self.events()}"
        assert len({row["id"] for row in rows}) == len(rows)
        assert len({(row["batch"], row["attempt"]) for row in rows}) == len(counts), "a batch is a mix of attempts"
        if complete:
            assert len(counts) == BATCHES, self.events()
        return len(counts)


def end(process: subprocess.Popen[str]) -> None:
    """The driver with its JVM and its workers; nothing is left running after a test."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    require_spark()
    return Query(tmp_path)


@contextmanager
def watched(query: Query, *, compacting: bool) -> Iterator[list[int]]:
    """Checks the table all the time and, if asked, compacts it all the time. Gives what it did."""
    stop = threading.Event()
    failures: list[BaseException] = []
    done = [0, 0]

    def job(work: str) -> None:
        try:
            while not stop.wait(0.05):
                if not DeltaTable.is_deltatable(str(query.table)):
                    continue
                if work == "compact":
                    done[1] += compact_table(query.table).files_removed
                else:
                    query.check()
                    done[0] += 1
        except BaseException as error:
            failures.append(error)

    jobs = ["check", "compact", "compact"] if compacting else ["check"]
    threads = [threading.Thread(target=job, args=(work,)) for work in jobs]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def test_batches_are_whole_and_once_through_kills_at_every_step_and_compactions(query: Query) -> None:
    """kill -9 of Python and JVM together; each start has another number of cores and tasks; one column is random."""
    with watched(query, compacting=True) as done:
        code, steps = query.run("local[2]", 2, kill_at=[0, "written"])
        assert code == -signal.SIGKILL, query.events()
        assert steps == ["0 started", "0 written"]
        assert query.check() == 0, "complete files, and nothing to see"

        code, steps = query.run("local[1]", 3, kill_at=[0, "committed"])
        assert code == -signal.SIGKILL, query.events()
        assert query.check() == 1, "in the table, and Spark does not know it"

        code, steps = query.run("local[3]", 1, kill_while_writing=2)
        assert code == -signal.SIGKILL, query.events()
        assert steps[0] == "0 repeated"

        code, steps = query.run("local[1]", 2, kill_at=[3, "started"])
        assert code == -signal.SIGKILL, query.events()

        code, steps = query.run("local[2]", 4, kill_at=[5, "committed"])
        assert code == -signal.SIGKILL, query.events()
        assert query.check() == 6

        code, steps = query.run("local[2]", 2)
        assert code == 0, query.events()
        assert steps[0] == "5 repeated"
    query.check(complete=True)
    assert done[0] > 10
    assert done[1] > 0, "there was something to compact, too"

    named = {path.removeprefix(f"{query.table}/") for path in DeltaTable(str(query.table)).file_uris()}
    left = set(parquet_files(query.table)) - named
    assert left, "attempts that were killed leave files"
    found = vacuum_table(query.table, retention_hours=0, allow_short_retention=True)
    assert set(found.files) == left
    assert set(parquet_files(query.table)) == named
    query.check(complete=True)


@pytest.mark.parametrize("step", ["started", "written"])
def test_a_driver_that_sleeps_while_another_takes_over_changes_nothing(query: Query, step: str) -> None:
    zombie = query.start("local[1]", 2, stop_at=[1, step])
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while _state(zombie.pid) != "T":
            assert time.monotonic() < deadline, query.events()
            assert zombie.poll() is None, query.events()
            time.sleep(0.05)
        code, _ = query.run("local[2]", 1)
        assert code == 0, query.events()
        query.check(complete=True)
        os.killpg(zombie.pid, signal.SIGCONT)
        zombie.communicate(timeout=RUN_TIMEOUT_S)
        assert zombie.returncode != 0, "it learns that it is not the query's driver any more"
    finally:
        end(zombie)
    assert "StaleCheckpoint" in (query.directory / "driver-1.log").read_text()
    query.check(complete=True)


class TwoHosts(StandaloneCluster):
    """Spark runs a second attempt only on another host than the first, so each worker has an address of its own."""

    def _start(self, name: str, arguments: list[str]) -> None:
        if name.endswith("Worker"):
            host = arguments.index("--host") + 1
            arguments = [*arguments[:host], f"127.0.0.{1 + len(self._processes)}", *arguments[host + 1 :]]
        super()._start(name, arguments)


@pytest.mark.parametrize("misbehaviour", ["stall", "kill"])
def test_attempts_of_tasks_that_stall_or_lose_their_executor_leave_nothing_in_the_table(
    query: Query, misbehaviour: str
) -> None:
    """A cluster of two workers, with speculation on: a stalled task runs a second time beside itself."""
    config = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.0",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.executor.memory": "512m",
    }
    once = query.directory / "once"
    with TwoHosts(2) as cluster:
        code, _ = query.run(cluster.master, 2, config=config, misbehaviour=misbehaviour, once=str(once))
        assert code == 0, query.events() + cluster.logs()
    attempts = (query.directory / "once.attempts").read_text().split()
    assert "1" in attempts, "a task was tried a second time"
    query.check(complete=True)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

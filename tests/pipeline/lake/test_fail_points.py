"""Drivers killed for real, at every step, on a table that is compacted all the time: each batch whole and once.

| | with files written | after the commit, before Spark's log | before, and while files are written |
|---|---|---|---|
| the driver killed | `…_kills_at_every_step_and_compactions` | the same | the same |
| an executor killed | `test_executors_killed…` | the same | the same, `…_lose_their_executor…` |
| the broker killed | `test_a_broker_killed…` | the same | the same |
| a zombie | `…_sleeps_while_another…`, `test_two_drivers…` | the same | the same |
| speculation | `…_tasks_that_stall…` | the same | the same |

Two compactions run all the time in each, one column is random, and each start has another number of cores. A table has
no aborts: files that no commit names are what is left of an attempt.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from penstock.pipeline.lake import compact_table, vacuum_table
from pipeline.lake.tables import parquet_files
from support.penstock import PenstockServer
from support.records import create_topic
from support.server_process import die_with_parent
from support.spark import require_spark
from support.spark_cluster import StandaloneCluster
from support.waiting import wait_until

TESTS = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("driver_process.py")
BATCHES = 8
ROWS = 60
START_TIMEOUT_S = 300
RUN_TIMEOUT_S = 600

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


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
        python_path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": python_path, "SPARK_LOCAL_IP": "127.0.0.1"}
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
            while not stop.wait(0.05 if work == "check" else 0.2):
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


@pytest.mark.parametrize("step", ["started", "written", "committed"])
def test_a_driver_that_sleeps_while_another_takes_over_changes_nothing(query: Query, step: str) -> None:
    with watched(query, compacting=True):
        zombie = query.start("local[1]", 2, stops=[[1, step]])
        try:
            wait_until_stopped(query, zombie)
            code, _ = query.run("local[2]", 1)
            assert code == 0, query.events()
            query.check(complete=True)
            assert goes_on(zombie) != 0, "it learns that it is not the query's driver any more"
        finally:
            end(zombie)
    # One that had committed learns it from Spark's own log.
    assert step == "committed" or "StaleCheckpoint" in (query.directory / "driver-1.log").read_text()
    query.check(complete=True)


@pytest.mark.parametrize("step", ["started", "written", "committed"])
def test_two_drivers_that_run_at_the_same_time_write_each_batch_once(query: Query, step: str) -> None:
    """Both stand at a step and go on together; whatever becomes of them, a third one comes to the end."""
    with watched(query, compacting=True):
        both: list[Any] = []
        try:
            for master in ("local[1]", "local[2]"):
                # Behind a commit of the first, the second has passed that batch over.
                batch = 2 if step == "committed" and both else 1
                both.append(query.start(master, 2, stops=[[batch, step]]))
                wait_until_stopped(query, both[-1])
            for process in both:
                os.killpg(process.pid, signal.SIGCONT)
            for process in both:
                process.communicate(timeout=RUN_TIMEOUT_S)
        finally:
            for process in both:
                end(process)
        code, _ = query.run("local[3]", 1)
        assert code == 0, query.events()
    query.check(complete=True)


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.executor.memory": "512m",
}


@pytest.mark.parametrize("misbehaviour", ["stall", "kill"])
def test_attempts_of_tasks_that_stall_or_lose_their_executor_leave_nothing_in_the_table(
    query: Query, misbehaviour: str
) -> None:
    """A cluster of two workers, with speculation on: a stalled task runs a second time beside itself.

    The first driver dies with its files written, the second with its batch committed, each after such a task.
    """
    with StandaloneCluster(2, hosts=True) as cluster, watched(query, compacting=True):
        for number, kill_at in enumerate([[0, "written"], [2, "committed"], None]):
            once = query.directory / f"once-{number}"
            wanted = {} if kill_at is None else {"kill_at": kill_at}
            code, steps = query.run(
                cluster.master, 2, config=SPECULATION, misbehaviour=misbehaviour, once=str(once), **wanted
            )
            assert code == (0 if kill_at is None else -signal.SIGKILL), query.events() + cluster.logs()
            attempts = (query.directory / f"{once.name}.attempts").read_text().split()
            assert len(set(attempts)) < len(attempts), "a task was tried a second time"
        assert steps[0] == "2 repeated"
    query.check(complete=True)


def test_executors_killed_at_every_step_change_nothing(query: Query) -> None:
    """All of them at once, while the driver stands before the files, behind them, and behind the commit."""
    stops = [[1, "started"], [3, "written"], [5, "committed"]]
    with StandaloneCluster(2) as cluster, watched(query, compacting=True):
        driver = query.start(cluster.master, 2, config={"spark.executor.memory": "512m"}, stops=stops)
        try:
            for _ in stops:
                wait_until_stopped(query, driver)
                for executor in cluster.executors():
                    executor.kill()
                os.killpg(driver.pid, signal.SIGCONT)
                wait_until(lambda: _state(driver.pid) != "T")
            assert goes_on(driver) == 0, query.events() + cluster.logs()
        finally:
            end(driver)
    query.check(complete=True)


def test_a_broker_killed_at_every_step_costs_no_row(query: Query) -> None:
    """From a topic; the broker dies while the driver stands, and comes back after it went on."""
    stops = [[1, "started"], [3, "written"], [5, "committed"]]
    with PenstockServer() as broker, watched(query, compacting=True):
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        create_topic(broker.bootstrap, "rows")
        for _ in range(BATCHES * ROWS):
            producer.produce("rows", b"row")
        assert producer.flush(30) == 0
        source = {"bootstrap": broker.bootstrap, "topic": "rows", "rows_per_batch": ROWS}
        driver = query.start("local[2]", 2, stops=stops, **source)
        try:
            for _ in stops:
                wait_until_stopped(query, driver)
                broker.kill()
                os.killpg(driver.pid, signal.SIGCONT)
                wait_until(lambda: _state(driver.pid) != "T")
                broker.start()
            assert goes_on(driver) == 0, query.events()
        finally:
            end(driver)
    query.check(complete=True)


def wait_until_stopped(query: Query, process: subprocess.Popen[str]) -> None:
    """Until the driver has come to its step, and stands still."""

    def stopped() -> bool:
        assert process.poll() is None, query.events()
        return _state(process.pid) == "T"

    wait_until(stopped, timeout_s=START_TIMEOUT_S)


def goes_on(process: subprocess.Popen[str]) -> int:
    """Lets a driver run on to its end, and tells which."""
    os.killpg(process.pid, signal.SIGCONT)
    process.communicate(timeout=RUN_TIMEOUT_S)
    return process.returncode


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

"""A Spark driver in a process of its own that writes to a topic exactly once, and can be told where to die.

    python -m support.topic_driver '{"bootstrap": …, "topic": …, "checkpoint": …, "batches": 5, "die_at": "MARKED"}'

Each step is printed as it is reached, so that whoever started the driver can follow, stop and kill it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.pipeline.to_topic import TopicWriter, to_topic
from penstock.pipeline.transactions import Step
from penstock.spark.home import compiled_modules
from support.spark import LOCAL_CONFIG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

RETURNED = "RETURNED"
"""One step more than the writer has: it has returned, and Spark has not yet written that down."""


class Plan(NamedTuple):
    bootstrap: str
    topic: str
    checkpoint: str
    batches: int
    rows_per_batch: int = 60
    master: str = "local[2]"
    config: dict[str, str] = {}  # noqa: RUF012  # read only
    die_at: str | None = None
    """The step at which this process is killed …"""
    die_in: int = 0
    """… in this batch, or the first after it that gets there …"""
    die_after_ms: int = 0
    """… so much later, from another thread: in the middle of what follows the step."""
    fail_commit_in: int | None = None
    """The first batch from this one on has its first commit refused, which leads to an abort."""
    pauses: list[list[object]] = []  # noqa: RUF012  # read only
    """[step, batch] at which the process waits for a line on its input: a zombie in the making. Without a batch
    ([step, null]), the first time that it gets there."""
    slow_first_attempt_s: float = 0.0
    """Tasks wait this long in their first attempt, so that speculation starts another."""
    kill_executor_in: int | None = None
    """The batch in which one executor is killed, from within a task."""
    attempts: str | None = None
    """A directory in which each attempt at a task leaves a file `<batch>-<partition>-<attempt>.<id of its own>`."""
    marker_topic: str = "__penstock_markers"
    source: str | None = None
    """A topic of one partition whose records are the rows, by their offsets; without one, Spark makes them up."""
    properties: dict[str, str] = {}  # noqa: RUF012  # read only
    """Of the producer."""


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    spark = session(plan)
    rows = source(spark, plan)
    reaper = Reaper(plan)
    writer = writer_of(plan, reaper)
    written: list[int] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        if batch_id >= plan.batches:
            return
        writer(numbered(batch, batch_id, plan), batch_id)
        written.append(batch_id)
        reaper.reached(RETURNED, batch_id)

    if plan.fail_commit_in is not None:
        refuse_a_commit(plan.fail_commit_in)
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", plan.checkpoint).start()
    last = plan.batches - 1
    done = Path(plan.checkpoint) / "commits" / str(last)
    # Its own last batch, for a zombie shares the checkpoint with another that may have got there.
    while query.isActive and not (last in written and done.exists()):
        time.sleep(0.02)
    if (error := query.exception()) is not None:
        print(f"FAILED {error}", flush=True)
        os._exit(3)
    query.stop()
    print("DONE", flush=True)
    writer.close()
    spark.stop()


def session(plan: Plan) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(plan.master).appName("topic-driver")
    for name, value in {**LOCAL_CONFIG, **plan.config}.items():
        builder = builder.config(name, value)
    with compiled_modules():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def source(spark: SparkSession, plan: Plan) -> DataFrame:
    """Rows of whom `value` is the number; batch b has the numbers from b·n to (b+1)·n − 1."""
    if plan.source is None:
        made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", plan.rows_per_batch)
        return made.option("numPartitions", 3).load()
    options = {
        "kafka.bootstrap.servers": plan.bootstrap,
        "subscribe": plan.source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(plan.rows_per_batch),
        "minPartitions": "3",
    }
    return spark.readStream.format("penstock").options(**options).load().selectExpr("offset AS value")


def writer_of(plan: Plan, reaper: Reaper) -> TopicWriter:
    return to_topic(
        plan.bootstrap,
        topic=plan.topic,
        marker_topic=plan.marker_topic,
        properties=plan.properties,
        watch=reaper.watch,
    )


def numbered(batch: DataFrame, batch_id: int, plan: Plan) -> DataFrame:
    """Rows that say which batch and which evaluation they are of, with a column that is never the same twice."""
    from pyspark.sql import functions as F

    if plan.attempts:
        batch = batch.mapInArrow(hampered(plan, batch_id), batch.schema)
    evaluation = F.lit(uuid.uuid4().hex)
    value = F.concat_ws(":", F.lit(batch_id), F.col("value"), evaluation, F.rand())
    return batch.select((F.col("value") % 17).cast("string").alias("key"), value.alias("value"))


def hampered(plan: Plan, batch_id: int) -> Callable[[Iterator[T]], Iterator[T]]:
    """In a task: the first attempt at the first partition is slow, or takes its executor with it."""
    slow_s, kill, attempts = plan.slow_first_attempt_s, plan.kill_executor_in == batch_id, plan.attempts

    def through(batches: Iterator[T]) -> Iterator[T]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        (Path(attempts or "") / f"{batch_id}-{partition}-{attempt}.{context.taskAttemptId()}").touch()
        if partition == attempt == 0:
            if kill:
                os.kill(_parent_of(os.getppid()), signal.SIGKILL)
            time.sleep(slow_s)
        yield from batches

    return through


def _parent_of(pid: int) -> int:
    """The executor is the parent of the daemon that forked this worker."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Reaper:
    """Follows the steps, and ends the process at the one it was told."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pauses: list[list[Any]] = [list(pause) for pause in plan.pauses]

    def watch(self, step: Step, batch_id: int) -> None:
        self.reached(step.name, batch_id)

    def reached(self, name: str, batch_id: int) -> None:
        plan = self._plan
        print(f"{name} {batch_id}", flush=True)
        for pause in ([name, batch_id], [name, None]):
            if pause in self._pauses:
                self._pauses.remove(pause)
                sys.stdin.readline()
                break
        if plan.die_at == name and plan.die_in <= batch_id:
            if plan.die_after_ms:
                threading.Timer(plan.die_after_ms / 1000, _die).start()
            else:
                _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse_a_commit(batch_id: int) -> None:
    """Has the first commit of a batch meet an abortable error, which a broker cannot be asked for."""
    from confluent_kafka import KafkaError, KafkaException

    from penstock.pipeline.transactions import QueryTransactions

    repeat = QueryTransactions._repeat
    refused: list[int] = []

    def repeating(self: QueryTransactions, call: object, timeout_s: float, doing: str) -> None:
        if doing.startswith("commit batch ") and int(doing.split()[-1]) >= batch_id and not refused:
            refused.append(batch_id)
            error = KafkaException(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS, "planted", False, False, True))
            raise self._judged(error, doing) from error
        repeat(self, call, timeout_s, doing)  # type: ignore[arg-type]

    QueryTransactions._repeat = repeating  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()

"""A driver in a process of its own, which can be told where to die. Run with one argument: its settings as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipeline.lake import Step, to_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MISBEHAVIOUR_S = 60.0


def main(settings: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import lit

    from penstock.spark.home import compiled_modules
    from support.spark import LOCAL_CONFIG

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(settings["master"]).appName("penstock-driver")
    for name, value in {**LOCAL_CONFIG, **settings.get("config", {})}.items():
        builder = builder.config(name, value)
    with compiled_modules():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = Path(settings["table"])

    def on_step(step: Step, batch_id: int) -> None:
        print(f"{batch_id} {step.value}", flush=True)
        if [batch_id, step.value] == settings.get("kill_at"):
            _end(signal.SIGKILL)
        if [batch_id, step.value] in settings.get("stops", ()):
            _end(signal.SIGSTOP)
        if step is Step.STARTED and batch_id == settings.get("kill_while_writing"):
            known = set(table.rglob("*.parquet"))
            threading.Thread(target=_kill_when_written, args=(table, known), daemon=True).start()

    rows = _events(spark, settings).repartition(int(settings["tasks"]))
    rows = rows.selectExpr("*", "uuid() AS random").withColumn("attempt", lit(settings["attempt"]))
    if "misbehaviour" in settings:
        rows = rows.mapInArrow(_misbehaving(settings["misbehaviour"], settings["once"]), rows.schema)
    writer = to_table(table, date_column="at", on_step=on_step)
    query = (
        rows.writeStream.foreachBatch(writer)
        .option("checkpointLocation", settings["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _events(spark: SparkSession, settings: dict[str, Any]) -> DataFrame:
    """Rows of a topic, by their offsets, or of files, each of which is a batch."""
    if "topic" not in settings:
        events = spark.readStream.schema("id long, batch long, at timestamp").option("maxFilesPerTrigger", 1)
        return events.json(settings["input"])
    rows_per_batch = settings["rows_per_batch"]
    options = {
        "kafka.bootstrap.servers": settings["bootstrap"],
        "subscribe": settings["topic"],
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(rows_per_batch),
    }
    records = spark.readStream.format("penstock").options(**options).load()
    return records.selectExpr("offset AS id", f"offset div {rows_per_batch} AS batch", "timestamp AS at")


def _kill_when_written(table: Path, known: set[Path]) -> None:
    while set(table.rglob("part-*.parquet")) <= known:
        time.sleep(0.001)
    _end(signal.SIGKILL)


def _end(how: signal.Signals) -> None:
    """Python and the JVM at once: neither can clean up after the other."""
    os.killpg(os.getpgrp(), how)


def _misbehaving(how: str, once: str) -> Any:
    """A task that stalls when it first sees rows, so that Spark tries it a second time, or takes its executor along.

    The rows are given on before that, so that there are files of this attempt.
    """

    from pyspark import TaskContext

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = 0
        for batch in batches:
            count += batch.num_rows
            yield batch
        if not count:
            return
        context = TaskContext.get()
        assert context is not None
        with open(f"{once}.attempts", "a") as attempts:
            # By its place: where an executor took shuffled rows along, the stage is repeated, and counts from 0 again.
            attempts.write(f"{context.stageId()}/{context.partitionId()}\n")
        try:
            os.close(os.open(once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if how == "stall":
            time.sleep(MISBEHAVIOUR_S)
        else:
            daemon = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(daemon, signal.SIGKILL)
            time.sleep(MISBEHAVIOUR_S)

    return run


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

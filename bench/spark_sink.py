"""`python -m bench.spark_sink`: records per second from Spark to a topic, by mode, and what a small batch takes.

| mode | what it is |
|---|---|
| no-op | the same micro-batches, evaluated and dropped: what Spark itself takes |
| at least once | `.format("penstock")`: every task has an idempotent producer |
| exactly once | `penstock.pipeline.to_topic`: one producer in the driver, one transaction per micro-batch |

Rows come from Spark's `rate-micro-batch` source, so that no reader is measured; values are text of 100 or 1,000 bytes
that does not compress away, keys are short. A figure is the median over micro-batches of one run, after some that do
not count, from Spark's own progress (`triggerExecution`: from the start of a trigger to the batch being noted as done).
Exactly once needs brokers with transactions, so it is measured with Apache Kafka; at least once with both brokers.
Nothing is asserted: a time is not a test.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from bench.report import machine
from bench.topics import create_topics
from penstock.pipeline import to_topic
from support.apache_kafka import ApacheKafka, available
from support.penstock import PenstockServer
from support.server_process import ServerProcess
from support.spark import LOCAL_CONFIG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

PARTITIONS = 4
TASKS = 2
WARM_UP_BATCHES = 3
SMALL_ROWS = 100
SMALL_BATCHES = 30
RUN_TIMEOUT_S = 120


class Load(NamedTuple):
    name: str
    rows: int
    value_bytes: int
    batches: int


LOADS = (
    Load("100 B", 200_000, 100, 5),
    Load("1 KB", 40_000, 1000, 5),
    Load("small", SMALL_ROWS, 100, SMALL_BATCHES),
)


class Mode(NamedTuple):
    name: str
    broker: str
    start: Callable[[DataFrame], DataStreamWriter]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_sink", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    found: list[dict[str, object]] = []
    with session() as spark, tempfile.TemporaryDirectory() as directory, brokers(Path(directory)) as servers:
        print(f"{'mode':<15} {'broker':<13} " + " ".join(f"{load.name:>14}" for load in LOADS))
        for mode in modes(servers):
            figures = [measure(spark, mode, load) for load in LOADS]
            texts = [f"{text(*one):>14}" for one in zip(LOADS, figures, strict=True)]
            print(f"{mode.name:<15} {mode.broker:<13} {' '.join(texts)}", flush=True)
            found += [
                {"mode": mode.name, "broker": mode.broker, "load": load.name, "batch_ms": batch_ms, "rows": load.rows}
                for load, batch_ms in zip(LOADS, figures, strict=True)
            ]
    if options.results:
        options.results.write_text(json.dumps({"machine": machine(), "figures": found}, indent=1) + "\n")


def text(load: Load, batch_ms: float) -> str:
    return f"{batch_ms:,.0f} ms p50" if load.rows == SMALL_ROWS else f"{load.rows / batch_ms * 1000:,.0f}/s"


def modes(servers: list[ServerProcess]) -> Iterator[Mode]:
    yield Mode("no-op", "", lambda frame: frame.writeStream.format("noop"))
    for server in servers:
        topic = "at-least-once"
        create_topics(server.bootstrap, {topic: PARTITIONS})
        options = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic}
        yield Mode(
            "at least once",
            server.name,
            lambda frame, options=options: frame.writeStream.format("penstock").options(**options),  # type: ignore[misc]
        )
    for server in servers:
        if isinstance(server, ApacheKafka):
            create_topics(server.bootstrap, {"exactly-once": PARTITIONS})
            with to_topic(server.bootstrap, topic="exactly-once") as writer:
                yield Mode("exactly once", server.name, lambda frame: frame.writeStream.foreachBatch(writer))


def measure(spark: SparkSession, mode: Mode, load: Load) -> float:
    """The median time of a micro-batch, in ms."""
    from pyspark.sql import functions as F

    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", load.rows)
        .option("numPartitions", TASKS)
        .load()
    )
    # Eight random letters, again and again: neither all alike nor noise.
    word = F.substring(F.sha2(F.col("value").cast("string"), 256), 1, 8)
    value = F.substring(F.repeat(word, load.value_bytes // 8 + 1), 1, load.value_bytes)
    frame = rows.select(F.col("value").cast("string").cast("binary").alias("key"), value.cast("binary").alias("value"))
    wanted = WARM_UP_BATCHES + load.batches
    with tempfile.TemporaryDirectory() as checkpoint:
        query = mode.start(frame).option("checkpointLocation", checkpoint).start()
        for _ in range(RUN_TIMEOUT_S * 10):
            if query.awaitTermination(cast(int, 0.1)) or len(query.recentProgress) >= wanted:
                break
        query.stop()
        progress = [one for one in query.recentProgress if one.numInputRows == load.rows][WARM_UP_BATCHES:wanted]
    assert progress, f"{mode.name} made no progress: {query.exception()}"
    return statistics.median(one.durationMs["triggerExecution"] for one in progress)


@contextmanager
def session() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{TASKS}]").appName("bench-spark-sink")
    for name, value in LOCAL_CONFIG.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@contextmanager
def brokers(directory: Path) -> Iterator[list[ServerProcess]]:
    """Penstock, and Apache Kafka where it can be had."""
    with PenstockServer(directory=directory) as penstock:
        if reason := available():
            print(f"without exactly once: {reason}")
            yield [penstock]
        else:
            with ApacheKafka(directory=directory) as kafka:
                yield [penstock, kafka]


if __name__ == "__main__":
    main(sys.argv[1:])

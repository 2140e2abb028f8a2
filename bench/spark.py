"""`python -m bench.spark`: records per second out of a topic into Spark, beside Spark's own Kafka connector.

Three sides read the same topics from the same broker, Penstock, in the same Spark session, `local[2]`: Penstock's
source, the same source through confluent-kafka (its fallback), and the connector of Spark, fetched with Maven where
that is possible. Records are JSON events of 1,000 and of 100 bytes with a key, lz4-compressed in batches as producers
make them; they go to no sink at all (`noop`), to Parquet files, zstd-compressed, or to a Delta table (`to_table`, for
every side). The sides take turns; of several rounds, after one that does not count, the median is told. The broker,
Spark and its Python share the machine's cores.

Then, with `--streams`: how long a micro-batch of a hundred records takes, and how long it takes from the command to the
first batch that is committed. Nothing is asserted: a time is not a test.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from bench.payloads import write_payloads
from bench.topics import create_topics
from penstock.pipeline.lake import to_table
from support import spark_kafka
from support.penstock import PenstockServer

MIB = 1024 * 1024
PARTITIONS = 2
RECORDS = {1000: 400_000, 100: 3_000_000}
PAYLOADS = 20_000
SINKS = ("noop", "parquet", "delta")
MICRO_BATCH_RECORDS = 100
MICRO_BATCHES = 120
WARM_UP_BATCHES = 60
"""Before them Java still compiles what every micro-batch does."""
JOB = Path(__file__).with_name("spark_job.py")

CONFIG = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # As `penstock.spark.build_session` has it.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.session.timeZone": "UTC",
}


class Side(NamedTuple):
    name: str
    format: str
    options: dict[str, str]


PENSTOCK = Side("penstock", "penstock", {})
CONFLUENT = Side("confluent-kafka", "penstock", {"penstock.client": "confluent"})
CONNECTOR = Side("Spark's connector", "kafka", {})


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records; 0.1 for a look")
    parser.add_argument("--streams", action="store_true", help="micro-batches and time to the first one, too")
    parser.add_argument("--results", type=Path, help="a file for the numbers, as JSON")
    given = parser.parse_args(arguments)
    reason = spark_kafka.available()
    sides = [PENSTOCK, CONFLUENT] + ([] if reason else [CONNECTOR])
    print(f"without Spark's own connector: {reason}" if reason else f"connector: {spark_kafka.versions()}")
    results: dict[str, Any] = {"connector": None if reason else spark_kafka.versions(), "read": {}, "streams": {}}
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as text, session(with_connector=not reason) as spark:
        directory = Path(text)
        with PenstockServer(directory=directory) as broker:
            results["spark"] = spark.version
            for record_bytes, count in RECORDS.items():
                fill(broker.bootstrap, topic_of(record_bytes), record_bytes, int(count * given.scale), directory)
            for record_bytes, count in RECORDS.items():
                for sink in SINKS:
                    rates = read_rates(
                        spark, broker.bootstrap, sides, record_bytes, int(count * given.scale), sink, given.rounds,
                        directory,
                    )  # fmt: skip
                    results["read"][f"{record_bytes} B to {sink}"] = rates
                    tell(record_bytes, sink, rates)
            if given.streams:
                results["streams"] = streams(spark, broker.bootstrap, sides, directory)
    if given.results is not None:
        given.results.write_text(json.dumps(results, indent=1) + "\n")


# Reading


def read_rates(
    spark: SparkSession,
    bootstrap: str,
    sides: Sequence[Side],
    record_bytes: int,
    count: int,
    sink: str,
    rounds: int,
    directory: Path,
) -> dict[str, list[float]]:
    """Records per second, of each side and round."""
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            frame = reader(spark, bootstrap, side, topic_of(record_bytes))
            target = directory / "written"
            started_s = time.perf_counter()
            write(frame, sink, target)
            spent_s = time.perf_counter() - started_s
            if sink != "noop" and number == 0:
                written = spark.read.option("recursiveFileLookup", "true").parquet(str(target)).count()
                assert written == count, f"{side.name} read every record"
            shutil.rmtree(target, ignore_errors=True)
            if number:
                rates[side.name].append(count / spent_s)
    return rates


def reader(spark: SparkSession, bootstrap: str, side: Side, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | side.options
    return spark.read.format(side.format).options(**options).load()


def write(frame: DataFrame, sink: str, target: Path) -> None:
    match sink:
        case "noop":
            frame.write.mode("overwrite").format("noop").save()
        case "parquet":
            frame.write.parquet(str(target))
        case _:
            to_table(target, app_id="bench")(frame, 0)


def tell(record_bytes: int, sink: str, rates: dict[str, list[float]]) -> None:
    ours = statistics.median(rates[PENSTOCK.name])
    for name, values in rates.items():
        rate = statistics.median(values)
        ratio = "" if name == PENSTOCK.name else f"   penstock is {ours / rate:.2f} × that"
        print(f"{record_bytes:>5} B to {sink:<8} {name:<18} {rate:>12,.0f} records/s{ratio}", flush=True)


# Streams


def streams(spark: SparkSession, bootstrap: str, sides: Sequence[Side], directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side in sides:  # whoever comes first runs code that Java has not compiled yet
        micro_batches(spark, bootstrap, side, directory / "warm-up")
    for side in sides:
        times_ms = micro_batches(spark, bootstrap, side, directory)
        found[f"micro-batch of {MICRO_BATCH_RECORDS}, {side.name}"] = times_ms
        print(f"micro-batch of {MICRO_BATCH_RECORDS} to noop, {side.name}: p50 {statistics.median(times_ms):.0f} ms")
    for side in sides:
        times_s = [first_batch_s(bootstrap, side, directory) for _ in range(2)]
        found[f"first batch, {side.name}"] = times_s
        print(f"from the command to the first batch, {side.name}: {times_s[0]:.1f} s, then {times_s[1]:.1f} s")
    return found


def micro_batches(spark: SparkSession, bootstrap: str, side: Side, directory: Path) -> list[float]:
    """How long triggers took that had something to do, in ms; the first ones do not count."""
    topic = topic_of(1000)
    options = {
        "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(MICRO_BATCH_RECORDS),
    }  # fmt: skip
    stream = spark.readStream.format(side.format).options(**(options | side.options)).load()
    checkpoint = directory / f"checkpoint-{side.name.replace(' ', '-')}"
    query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        times: dict[int, float] = {}
        while len(times) < MICRO_BATCHES:
            times |= {one.batchId: one.durationMs["triggerExecution"] for one in query.recentProgress}
            time.sleep(0.2)
    finally:
        query.stop()
    return [times[batch] for batch in sorted(times)][WARM_UP_BATCHES:]


def first_batch_s(bootstrap: str, side: Side, directory: Path) -> float:
    """A new process: Python, Java, Spark, the source, one batch of the topic's newest records."""
    jars = [] if side.format == "penstock" else [",".join(map(str, spark_kafka.jars()))]
    checkpoint = tempfile.mkdtemp(dir=directory)
    options = json.dumps({"kafka.bootstrap.servers": bootstrap, "subscribe": topic_of(1000)} | side.options)
    started_s = time.perf_counter()
    subprocess.run(
        [sys.executable, str(JOB), side.format, options, checkpoint, *jars],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return time.perf_counter() - started_s


# What they read


def topic_of(record_bytes: int) -> str:
    return f"events-{record_bytes}"


def fill(bootstrap: str, topic: str, record_bytes: int, count: int, directory: Path) -> None:
    create_topics(bootstrap, {topic: PARTITIONS})
    path = directory / "payloads"
    write_payloads(path, record_bytes=max(record_bytes, 1000), record_count=PAYLOADS)
    text = path.read_bytes()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "compression.type": "lz4",
            "batch.size": MIB,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": MIB,
        }
    )
    for number in range(count):
        start = number * record_bytes % (len(text) - record_bytes)
        while True:
            try:
                producer.produce(
                    topic, text[start : start + record_bytes], b"user-%07d" % (number * 104_729 % 1_000_000),
                    partition=number % PARTITIONS,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0, "everything arrived"


@contextmanager
def session(*, with_connector: bool) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in CONFIG.items():
        builder = builder.config(name, value)
    if with_connector:
        builder = builder.config("spark.jars", ",".join(map(str, spark_kafka.jars())))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])

"""`python -m bench.spark_lake`: what a table costs. Records per second by writer, and micro-batches by sink.

*Throughput*: records with the columns of a topic (key, value, topic, partition, offset, timestamp; JSON events of 1,000
or 100 bytes) are read from Parquet and written again: to nothing, by Spark's own Parquet writer, by Spark's writer with
a Delta commit of its files (the way not taken), and by `to_table`. What reading costs is in all of them, and alone in
the first. Writers take turns; of the rounds the median counts. Beside the clock, the processor time of all processes is
told, which means something on a busy machine, too.

*Micro-batches*: a query over Spark's own rate source, 1,000 rows a batch, to each sink; the median of Spark's
`triggerExecution`, warm-up left out. Nothing is asserted: a time is not a test.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.payloads import write_payloads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_BYTES = {1000: 200_000, 100: 1_500_000}
"""Size of a value → how many records of it a round writes."""
ROUNDS = 5
BATCHES = 25
WARM_UP_BATCHES = 5
BATCH_ROWS = 1000
PARTITIONS = 4
FIRST_US = 1_767_225_600_000_000
"""2026-01-01"""


def session(cores: int) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]").appName("penstock-bench-lake")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def make_records(directory: Path, record_bytes: int, count: int) -> Path:
    """A topic's records, as Parquet without compression: cheap to read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    payloads = directory / "payloads"
    write_payloads(payloads, record_bytes=1000, record_count=20_000)
    text = payloads.read_bytes()
    target = directory / f"records-{record_bytes}"
    target.mkdir()
    for partition in range(PARTITIONS):
        numbers = range(partition, count, PARTITIONS)
        starts = [number * record_bytes % (len(text) - 2 * record_bytes) for number in numbers]
        table = pa.table(
            {
                "key": pa.array([b"user-%010d" % (number * 104_729 % 1_000_000) for number in numbers], pa.binary()),
                "value": pa.array([text[start : start + record_bytes] for start in starts], pa.binary()),
                "topic": pa.array(["orders"] * len(numbers)),
                "partition": pa.array([partition] * len(numbers), pa.int32()),
                "offset": pa.array(range(len(numbers)), pa.int64()),
                "timestamp": pa.array([FIRST_US + number * 250 for number in numbers], pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, target / f"{partition}.parquet", compression="none", use_dictionary=False)
    return target


def to_nothing(frame: DataFrame, target: Path) -> None:
    frame.write.format("noop").mode("overwrite").save()


def spark_parquet(frame: DataFrame, target: Path) -> None:
    frame.write.parquet(str(target))


def spark_parquet_committed(frame: DataFrame, target: Path) -> None:
    """Spark writes the files, the driver reads their footers and commits them: the design that was not chosen."""
    import pyarrow.parquet as pq
    from deltalake import Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    frame.write.parquet(str(target))
    actions = []
    for file in sorted(target.glob("part-*.parquet")):
        rows = pq.read_metadata(file).num_rows
        statistics_text = json.dumps({"numRecords": rows})
        actions.append(AddAction(file.name, file.stat().st_size, {}, int(time.time() * 1000), True, statistics_text))
    create_table_with_add_actions(str(target), Schema.from_json(frame.schema.json()), actions)


def delta(frame: DataFrame, target: Path, **options: Any) -> None:
    from penstock.pipeline.lake import to_table

    to_table(target, app_id="bench", **options)(frame, 0)


BESIDE = "Spark's Parquet, zstd"
WRITERS: dict[str, Callable[[DataFrame, Path], None]] = {
    "nothing": to_nothing,
    BESIDE: spark_parquet,
    "Spark's Parquet, committed": spark_parquet_committed,
    "Delta (to_table)": delta,
    "Delta, by date": functools.partial(delta, date_column="timestamp"),
}


def processor_s() -> float:
    """What this process, the JVM and Spark's Python workers have used so far."""
    here = psutil.Process()
    used = 0.0
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return used


def throughput(
    spark: SparkSession, directory: Path, record_bytes: int, count: int, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Records per second of the clock, and per second of a processor."""
    source = make_records(directory, record_bytes, count)
    frame = spark.read.parquet(str(source))
    taken: dict[str, list[float]] = {name: [] for name in WRITERS}
    used: dict[str, list[float]] = {name: [] for name in WRITERS}
    for round_number in range(rounds + 1):
        for name, write in WRITERS.items():
            target = directory / uuid.uuid4().hex
            started, used_before = time.perf_counter(), processor_s()
            write(frame, target)
            if round_number:
                taken[name].append(time.perf_counter() - started)
                used[name].append(processor_s() - used_before)
            shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(source)
    by_clock = {name: count / statistics.median(times) for name, times in taken.items()}
    by_processor = {name: count / statistics.median(times) for name, times in used.items()}
    return by_clock, by_processor


def micro_batches(spark: SparkSession, directory: Path, sink: str, batches: int) -> float:
    """The median of a batch, in milliseconds."""
    from penstock.pipeline.lake import to_table

    target, checkpoint = directory / uuid.uuid4().hex, directory / uuid.uuid4().hex
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH_ROWS).option("numPartitions", 2)
    writing = stream.load().writeStream.option("checkpointLocation", str(checkpoint))
    if sink == "nothing":
        writing = writing.format("noop")
    elif sink == "Spark's Parquet":
        writing = writing.format("parquet").option("path", str(target))
    elif sink == "foreachBatch, nothing":
        writing = writing.foreachBatch(lambda frame, batch_id: to_nothing(frame, target))
    else:
        date_column = "timestamp" if "date" in sink else None
        writing = writing.foreachBatch(to_table(target, date_column=date_column))
    query = writing.start()
    while len([one for one in query.recentProgress if one["numInputRows"]]) < batches + WARM_UP_BATCHES:
        assert query.isActive, query.exception()
        time.sleep(0.1)
    query.stop()
    times = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return statistics.median(times[WARM_UP_BATCHES:])


SINKS = ("nothing", "foreachBatch, nothing", "Spark's Parquet", "Delta (to_table)", "Delta, by date")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_lake", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batches", type=int, default=BATCHES, help="0 leaves micro-batches out")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--results", type=Path, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    spark = session(options.cores)
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-lake-") as name:
        directory = Path(name)
        for record_bytes, count in RECORD_BYTES.items():
            by_clock, by_processor = throughput(spark, directory, record_bytes, count, options.rounds)
            figures[f"records/s of {record_bytes} B"] = by_clock
            figures[f"records/processor second of {record_bytes} B"] = by_processor
            print(f"\nrecords/s of {record_bytes} B, {options.cores} cores, by the clock and by processor time")
            for writer, rate in by_clock.items():
                per_processor = by_processor[writer]
                print(
                    f"  {writer:30} {rate:12,.0f}  {rate / by_clock[BESIDE]:6.2f} x"
                    f" {per_processor:12,.0f}  {per_processor / by_processor[BESIDE]:6.2f} x"
                )
        if options.batches:
            found = {sink: micro_batches(spark, directory, sink, options.batches) for sink in SINKS}
            figures["micro-batch p50, ms"] = found
            print(f"\nmicro-batch of {BATCH_ROWS} rows, p50 of {options.batches}, ms")
            for sink, median_ms in found.items():
                print(f"  {sink:30} {median_ms:12,.0f}")
    spark.stop()
    if options.results:
        options.results.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Asks Spark's own Kafka connector what `tests/spark/parity.py` asks, and keeps its answers as the fixture.

    python tools/record_spark_parity.py [FILE]

Needs Maven for the connector and for Apache Kafka, which is the broker here: rows that both sides only agree on because
of a broker's mistake would prove nothing.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from py4j.protocol import Py4JJavaError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: E402

from penstock.client import (  # noqa: E402
    LATEST,
    ClientSettings,
    Cluster,
    IsolationLevel,
    TopicPartition,
    fetch_range,
)
from spark import parity  # noqa: E402
from support import apache_kafka, spark_kafka  # noqa: E402
from support.spark import LOCAL_CONFIG  # noqa: E402

QUICKLY_COMPACTED = {"log.cleaner.backoff.ms": "100"}


def main(path: Path) -> None:
    for reason in (apache_kafka.available(), spark_kafka.available()):
        if reason:
            raise SystemExit(reason)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, spark_kafka.jars())))
    for name, value in LOCAL_CONFIG.items():
        builder = builder.config(name, value)
    with apache_kafka.ApacheKafka(heap="512M", properties=QUICKLY_COMPACTED) as kafka:
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        parity.fill(kafka.bootstrap)
        answers = {
            "connector": spark_kafka.versions() | {"spark": spark.version},
            "rows": {case.name: ask(spark, kafka.bootstrap, case) for case in parity.CASES},
            "refused": {
                name: refusal(spark, kafka.bootstrap, stream, dict(options))
                for name, (stream, options) in parity.REFUSED.items()
            },
            "logs": logs(spark, kafka.bootstrap),
            "placed": {str(count): placed(spark, kafka.bootstrap, count) for count in parity.KEY_COUNTS},
        }
        spark.stop()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(answers, indent=None, separators=(",", ":"), ensure_ascii=False) + "\n")


def logs(spark: SparkSession, bootstrap: str) -> dict[str, Any]:
    """The bytes of logs, and the rows that they hold by isolation level."""
    parity.fill_logs(bootstrap)
    found: dict[str, Any] = {}
    for topic in (parity.TRANSACTIONS, parity.COMPACTED):
        deadline_s = time.monotonic() + parity.COMPACTION_TIMEOUT_S
        while True:
            before = stored(bootstrap, topic)
            rows = {level: ask(spark, bootstrap, parity.log_case(topic, level))["rows"] for level in parity.ISOLATIONS}
            has_gaps = len(rows["read_uncommitted"]) < before["high_watermark"]
            if has_gaps and stored(bootstrap, topic) == before:
                break
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{topic} is not compacted, or never done")
        found[topic] = before | {"rows": rows}
    return found


def stored(bootstrap: str, topic: str) -> dict[str, Any]:
    """Whole record batches as brokers send them, and what they say of aborted transactions."""
    with Cluster(ClientSettings.from_properties({"bootstrap.servers": bootstrap})) as cluster:
        end = cluster.list_offsets({(topic, 0): LATEST})[TopicPartition(topic, 0)].offset
        pieces = list(fetch_range(cluster, topic, 0, 0, end, isolation=IsolationLevel.READ_COMMITTED))
    return {
        "high_watermark": end,
        "batches": [base64.b64encode(bytes(piece.records)).decode() for piece in pieces],
        "aborted": sorted({one for piece in pieces for one in piece.aborted}),
    }


def ask(spark: SparkSession, bootstrap: str, case: parity.Case, format: str = "kafka") -> dict[str, Any]:
    """The rows; of streams also where each micro-batch ended."""
    options = {"kafka.bootstrap.servers": bootstrap, **case.options}
    if not case.stream:
        frame = spark.read.format(format).options(**options).load()
        return {"rows": parity.readable((row.asDict(True) for row in frame.collect()), case.without)}
    rows: list[dict[str, Any]] = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(row.asDict(True) for row in batch.collect())

    with tempfile.TemporaryDirectory() as checkpoint:
        stream = spark.readStream.format(format).options(**options).load()
        query = stream.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        ends = [json.loads(progress.sources[0].endOffset) for progress in running.recentProgress]
    return {"rows": parity.readable(rows, case.without), "ends": ends}


def refusal(spark: SparkSession, bootstrap: str, stream: bool, options: dict[str, str], format: str = "kafka") -> str:
    """What is said, from the sentence on that names the problem."""
    given = {"kafka.bootstrap.servers": bootstrap, **options}
    try:
        if not stream:
            spark.read.format(format).options(**given).load().collect()
        else:
            with tempfile.TemporaryDirectory() as checkpoint:
                frame = spark.readStream.format(format).options(**given).load()
                query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
                query.processAllAvailable()
    except PySparkException as error:
        return _first_lines(str(error))
    except Py4JJavaError as error:
        return _first_lines(str(error.java_exception.getMessage()))
    raise SystemExit(f"not refused: {options}")


def _first_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[:12])[:2000]


def placed(spark: SparkSession, bootstrap: str, count: int, format: str = "kafka") -> list[int]:
    """The partition of each key, written without one."""
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    frame = spark.createDataFrame([(key, key) for key in parity.placed_keys()], schema).coalesce(1)
    topic = parity.keys_topic(count)
    frame.write.format(format).option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
    read = spark.read.format(format).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    found = {bytes(row.key): row.partition for row in read.collect()}
    return [found[key] for key in parity.placed_keys()]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else parity.FIXTURE)

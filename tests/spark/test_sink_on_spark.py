"""The sink in a real Spark, to a real broker."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from penstock.cli.impact import murmur2_partition
from support.penstock import PenstockServer
from support.records import create_topic, read_topic
from support.server_process import free_ports
from support.spark import require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(240)

PARTITIONS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    require_spark()
    with PenstockServer({"auto.create.topics.enable": "false"}) as server:
        yield server.bootstrap


@pytest.fixture
def new_topic(broker: str) -> Callable[[], str]:
    return lambda: create_topic(broker, f"t-{uuid.uuid4().hex[:12]}", PARTITIONS)


def write(frame: DataFrame, broker: str, **options: str) -> None:
    frame.write.format("penstock").option("kafka.bootstrap.servers", broker).options(**options).mode("append").save()


def test_rows_become_records_with_all_their_parts(
    spark: SparkSession, broker: str, new_topic: Callable[[], str]
) -> None:
    one, two = new_topic(), new_topic()
    rows = [
        (one, "a", "1", 2, [("h", bytearray(b"x")), ("h", None)], "left out"),
        (one, None, None, 0, None, ""),
        (two, "b", "", 1, [], ""),
    ]
    schema = (
        "topic string, key string, value string, partition int, headers array<struct<key:string,value:binary>>, "
        "extra string"
    )
    write(spark.createDataFrame(rows, schema), broker)
    assert read_topic(broker, one) == [
        (0, None, None, None, one),
        (2, b"a", b"1", [("h", b"x"), ("h", None)], one),
    ]
    assert [(record.partition, record.key, record.value) for record in read_topic(broker, two)] == [(1, b"b", b"")]


def test_keys_are_placed_where_java_places_them_and_the_option_overrides_the_column(
    spark: SparkSession, broker: str, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    frame = spark.range(2_000, numPartitions=4).selectExpr(
        "'nowhere' AS topic", "CAST(concat('key-', id) AS BINARY) AS key", "CAST(id AS STRING) AS value"
    )
    write(frame, broker, topic=topic)
    records = read_topic(broker, topic)
    assert Counter(int(record.value or b"-1") for record in records) == Counter(range(2_000))
    assert {record.partition for record in records} == set(range(PARTITIONS))
    for record in records:
        assert record.key is not None
        assert record.partition == murmur2_partition(record.key, PARTITIONS)


def test_a_stream_appends_each_micro_batch_and_goes_on_where_it_stopped(
    spark: SparkSession, broker: str, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = new_topic()
    (tmp_path / "in").mkdir()
    for value in ("first", "second"):
        (tmp_path / "in" / f"{value}.txt").write_text(f"{value}\n")
        (
            spark.readStream.text(str(tmp_path / "in"))
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", broker)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
    assert sorted(record.value or b"" for record in read_topic(broker, topic)) == [b"first", b"second"]


def test_complete_mode_appends_the_whole_result_and_update_mode_is_refused(
    spark: SparkSession, broker: str, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = new_topic()
    (tmp_path / "in").mkdir()
    counts = spark.readStream.text(str(tmp_path / "in")).groupBy("value").count()
    rows = counts.selectExpr("value AS key", "CAST(count AS STRING) AS value")
    writer = (
        rows.writeStream.format("penstock")
        .option("kafka.bootstrap.servers", broker)
        .option("topic", topic)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    for name in ("one", "two"):
        (tmp_path / "in" / name).write_text("a\n")
        writer.outputMode("complete").start().awaitTermination()
    assert [(record.key, record.value) for record in read_topic(broker, topic)] == [(b"a", b"1"), (b"a", b"2")]
    with pytest.raises(Exception, match=r"(?i)update"):
        writer.option("checkpointLocation", str(tmp_path / "other")).outputMode("update").start().awaitTermination()


def test_what_is_wrong_comes_first_and_without_frames(
    spark: SparkSession, broker: str, new_topic: Callable[[], str]
) -> None:
    row = spark.createDataFrame([("a", -1)], "value string, partition int")
    for frame, options, words in (
        (row, {"topik": "x"}, "option 'topik' is not known to the sink: did you mean 'topic'?"),
        (row.drop("value"), {"topic": "x"}, "Required attribute 'value' not found"),
        (row, {"topic": "x", "kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"}, "cannot write to 127.0.0.1"),
        (row, {"topic": new_topic()}, "Invalid partition: -1"),
    ):
        with pytest.raises(Exception, match=words) as caught:
            write(frame, broker, **options)
        assert "Traceback" not in str(caught.value)
        assert "\tat org.apache" not in str(caught.value).split(words)[0]
    with pytest.raises(Exception, match="Save mode Overwrite not allowed"):
        row.write.format("penstock").option("kafka.bootstrap.servers", broker).mode("overwrite").save()

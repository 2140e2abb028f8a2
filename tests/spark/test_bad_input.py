"""What is wrong, told first and in one line, by a real Spark on real brokers; nothing lost, nothing half written."""

from __future__ import annotations

import shutil
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'penstock-streaming[spark]'")

from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from client.secured_kafka import USER, Certificates, SecuredKafka, login
from penstock.pipeline import load_pipeline, read_table, to_table, to_topic
from penstock.pipeline.checking import check_cluster
from penstock.pipeline.failures import reason_of
from penstock.wire.records import HEADER_SIZE
from support.apache_kafka import available
from support.penstock import PenstockServer
from support.records import create_topic, read_topic
from support.server_process import free_ports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

LOGIN_REFUSED = "refused the login with SASL PLAIN"
GUESS = "the-wrong-one"


def told(wrong: Callable[[], object]) -> str:
    """The first line of what somebody is told; what follows may be Spark's."""
    with pytest.raises(Exception) as caught:
        wrong()
    text = str(caught.value)
    first = text.splitlines()[0]
    assert "Traceback" not in first
    assert "\tat " not in first
    return first


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    if reason := available():
        pytest.skip(reason)
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    with SecuredKafka(Certificates(tmp_path_factory.mktemp("certificates"))) as running:
        yield running


@pytest.mark.needs_maven
def test_a_wrong_password_is_told_by_source_sinks_and_pipelines_and_never_repeated(
    spark: SparkSession, kafka: SecuredKafka, tmp_path: Path
) -> None:
    topic = create_topic(kafka.bootstrap, f"t-{uuid.uuid4().hex[:8]}")
    address = kafka.addresses["SASL_PLAINTEXT"]
    secrets = {"security.protocol": "SASL_PLAINTEXT", **login("PLAIN", username=USER, password=GUESS)}
    options = {f"kafka.{name}": value for name, value in {"bootstrap.servers": address, **secrets}.items()}
    rows = spark.sql("SELECT 'k' AS key, 'v' AS value")

    def stream() -> None:
        frame = spark.readStream.format("penstock").options(**options, subscribe=topic).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(120)

    ways = {
        "batch": lambda: spark.read.format("penstock").options(**options, subscribe=topic).load().count(),
        "stream": stream,
        "sink": lambda: rows.write.format("penstock").options(**options, topic=topic).mode("append").save(),
        "to_topic": lambda: to_topic(address, topic=topic, query_id="q", properties=secrets)(rows, 0),
    }
    for name, way in ways.items():
        said = told(way)
        assert "login" in said or "Authentication" in said, f"{name}: {said}"
        assert GUESS not in said, name

    file = tmp_path / "a.sql"
    settings = "".join(f"SET kafka.{name} = '{value}';\n" for name, value in secrets.items())
    file.write_text(f"SET bootstrap.servers = '{address}';\nSET checkpoint = '{tmp_path}/c';\n{settings}"
                    f"CREATE STREAM a (x INT) WITH (topic = '{topic}');\n"
                    "CREATE TABLE b WITH (path = 'b') AS SELECT x FROM a;\n")  # fmt: skip
    [found] = check_cluster(load_pipeline(file))
    assert LOGIN_REFUSED in found.message
    assert "kafka.sasl" in found.fix
    assert GUESS not in found.message
    assert read_topic(kafka.bootstrap, topic) == []


def test_a_broker_that_cannot_be_reached_is_named(spark: SparkSession, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = {"kafka.bootstrap.servers": address, "subscribe": "t", "kafka.default.api.timeout.ms": "1000"}
    said = told(lambda: spark.read.format("penstock").options(**options).load().count())
    assert f"cannot reach a Kafka cluster at {address}" in said


# A corrupt batch


def test_a_corrupt_batch_stops_the_query_before_it_and_repaired_it_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with PenstockServer() as broker:
        topic = create_topic(broker.bootstrap, f"t-{uuid.uuid4().hex[:8]}")
        for batch in range(3):
            producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1000})
            for number in range(10):
                producer.produce(topic, b"%d" % (10 * batch + number), partition=0)
            assert producer.flush(30) == 0
        broker.stop()
        [log] = broker.data_dir.glob(f"{topic}-0/*.log")
        whole = log.read_bytes()
        log.write_bytes(with_a_flipped_bit_in_batch(whole, 1))
        broker.start()

        def run() -> None:
            options = {
                "kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "10",
            }  # fmt: skip
            frame = spark.readStream.format("penstock").options(**options).load()
            query = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").writeStream
            query = query.foreachBatch(to_table(tmp_path / "table")).trigger(availableNow=True)
            query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)

        with pytest.raises(StreamingQueryException) as caught:
            run()
        reason = reason_of(str(caught.value))
        assert f"{topic}-0: the batch at offset 10 is corrupt" in reason
        assert "move the leadership" in reason
        assert numbers(read_table(spark, tmp_path / "table")) == list(range(10)), "what is before it, whole"

        broker.stop()
        log.write_bytes(whole)
        broker.start()
        run()
    assert numbers(read_table(spark, tmp_path / "table")) == list(range(30))


def with_a_flipped_bit_in_batch(log: bytes, wanted: int) -> bytes:
    position = 0
    for _ in range(wanted):
        (length,) = struct.unpack_from(">i", log, position + 8)
        position += 12 + length
    damaged = bytearray(log)
    damaged[position + HEADER_SIZE + 5] ^= 1
    return bytes(damaged)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.n for row in frame.collect())

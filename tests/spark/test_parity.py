"""Row for row what Spark's own Kafka connector reads, over a matrix of options; its rows were recorded once.

Batches are planned and read here without Spark, which changes nothing about rows; some go through Spark all the same,
as streams do. Where Maven is reachable, the recording itself is checked against the connector.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from client.scripted import MemoryLog, ScriptedBroker
from penstock.spark.backend import SourcePartition
from penstock.spark.batch_reader import plan
from penstock.spark.errors import SourceError
from penstock.spark.filters import Bounds
from penstock.spark.lookup import Lookup
from penstock.spark.offsets import OURS
from penstock.spark.options import SourceOptions, batch_options, stream_options
from penstock.spark.reading import read_range
from penstock.wire.messages.fetch import AbortedTransaction
from penstock.wire.records import iter_batches
from spark import parity
from spark.engine import Checkpoint, Run
from support import apache_kafka, spark_kafka
from support.penstock import PenstockServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
RECORDED: dict[str, Any] = json.loads(parity.FIXTURE.read_text()) if parity.FIXTURE.exists() else {}
BATCHES = [case for case in parity.CASES if not case.stream]
STREAMS = [case for case in parity.CASES if case.stream]
SAME_CHARACTERS = 40
"""Of a refusal: what is refused. What can be done about it may be told differently."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with PenstockServer() as server:
        parity.fill(server.bootstrap)
        yield server.bootstrap


def planned(options: SourceOptions) -> list[SourcePartition]:
    lookup = Lookup(options)
    try:
        return plan(options, lookup, Bounds())
    finally:
        lookup.close()


def read(bootstrap: str, case: parity.Case) -> list[list[object]]:
    options = batch_options({"kafka.bootstrap.servers": bootstrap, **case.options})
    batches = [batch for part in planned(options) for batch in read_range(options, part)]
    return parity.readable(pa.Table.from_batches(batches).to_pylist() if batches else [], case.without)


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case.name)
def test_batches_have_the_same_rows(bootstrap: str, case: parity.Case) -> None:
    assert read(bootstrap, case) == RECORDED["rows"][case.name]["rows"]


@pytest.mark.parametrize("isolation", parity.ISOLATIONS)
@pytest.mark.parametrize("topic", [parity.TRANSACTIONS, parity.COMPACTED])
def test_aborted_transactions_markers_and_gaps_give_the_same_rows(topic: str, isolation: str) -> None:
    check_log(RECORDED["logs"][topic], topic, isolation)


def check_log(recorded: dict[str, Any], topic: str, isolation: str) -> None:
    """The recorded bytes of a log, from a broker that sends them, a few at a time."""
    with ScriptedBroker() as broker:
        log = MemoryLog(broker, topic=topic)
        markers: list[tuple[int, int]] = []
        for piece in recorded["batches"]:
            for header, batch in iter_batches(base64.b64decode(piece)):
                log.append(bytes(batch))
                if header.is_control:
                    markers.append((header.producer_id, header.base_offset))
        log.high_watermark = recorded["high_watermark"]
        log.aborted = [AbortedTransaction(producer_id=who, first_offset=first) for who, first in recorded["aborted"]]
        log.aborted_until = {
            (who, first): next(at for producer, at in markers if producer == who and at > first)
            for who, first in recorded["aborted"]
        }
        case = parity.log_case(topic, isolation)
        for options in ({}, {"kafka.max.partition.fetch.bytes": "200"}, {"minPartitions": "7"}):
            narrow = parity.Case(case.name, {**case.options, **options})
            assert read(broker.bootstrap, narrow) == recorded["rows"][isolation]


def test_the_fallback_has_the_same_rows(bootstrap: str) -> None:
    for case in BATCHES[:4]:
        fallback = parity.Case(case.name, {**case.options, "penstock.client": "confluent"}, without=case.without)
        assert read(bootstrap, fallback) == RECORDED["rows"][case.name]["rows"]


def test_a_batch_has_the_same_rows_in_spark(spark: SparkSession, bootstrap: str) -> None:
    case = BATCHES[0]
    frame = spark.read.format("penstock").options(**{"kafka.bootstrap.servers": bootstrap, **case.options}).load()

    rows = parity.readable((row.asDict(True) for row in frame.collect()), case.without)

    assert rows == RECORDED["rows"][case.name]["rows"]


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_streams_have_the_same_rows_and_steps(bootstrap: str, case: parity.Case) -> None:
    checkpoint = Checkpoint()

    rows = Run(stream_options({"kafka.bootstrap.servers": bootstrap, **case.options}), checkpoint).to_the_end()

    assert parity.readable(rows, case.without) == RECORDED["rows"][case.name]["rows"]
    assert [positions(json.loads(end)) for end in checkpoint.ends] == RECORDED["rows"][case.name]["ends"]


def test_a_stream_has_the_same_rows_and_steps_in_spark(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    case = next(case for case in STREAMS if case.name == "a stream in steps from offsets")
    rows: list[dict[str, Any]] = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(row.asDict(True) for row in batch.collect())

    options = {"kafka.bootstrap.servers": bootstrap, **case.options}
    stream = spark.readStream.format("penstock").options(**options).load()
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(120)
    ends = [positions(json.loads(progress.sources[0].endOffset)) for progress in running.recentProgress]

    assert parity.readable(rows, case.without) == RECORDED["rows"][case.name]["rows"]
    assert ends == RECORDED["rows"][case.name]["ends"]


def positions(offset: dict[str, Any]) -> dict[str, Any]:
    return {topic: place for topic, place in offset.items() if topic != OURS}


@pytest.mark.parametrize("name", list(parity.REFUSED))
def test_what_spark_refuses_is_refused_in_its_words(bootstrap: str, name: str) -> None:
    stream, given = parity.REFUSED[name]
    given = {"kafka.bootstrap.servers": bootstrap, **given}

    with pytest.raises(SourceError) as refused:
        planned(stream_options(given) if stream else batch_options(given))

    said = _words(str(refused.value))
    assert any(
        said_there[:SAME_CHARACTERS] in said
        for line in RECORDED["refused"][name].splitlines()
        if len(said_there := _words(line.removeprefix("assertion failed: "))) > 10
    ), f"Spark: {RECORDED['refused'][name]}\nhere: {refused.value}"


def _words(text: str) -> str:
    return " ".join(text.lower().replace(":", " ").split())


def test_keys_go_to_the_same_partitions(spark: SparkSession, bootstrap: str) -> None:
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    keys = parity.placed_keys()
    for count in parity.KEY_COUNTS:
        topic = parity.keys_topic(count)
        frame = spark.createDataFrame([(key, key) for key in keys], schema).coalesce(1)
        frame.write.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).mode(
            "append"
        ).save()
        options = batch_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        placed = {
            row["key"]: row["partition"]
            for part in planned(options)
            for batch in read_range(options, part)
            for row in batch.to_pylist()
        }
        assert [placed[key] for key in keys] == RECORDED["placed"][str(count)]


@pytest.mark.long
@pytest.mark.needs_maven
@pytest.mark.timeout(600)
def test_the_recording_is_what_the_connector_reads(tmp_path: Path) -> None:
    for reason in (apache_kafka.available(), spark_kafka.available()):
        if reason:
            pytest.skip(reason)
    fresh = tmp_path / "parity.json"

    subprocess.run([sys.executable, str(ROOT / "tools" / "record_spark_parity.py"), str(fresh)], check=True)

    found = json.loads(fresh.read_text())
    for part in ("rows", "placed", "refused"):
        assert found[part] == RECORDED[part], part
    assert found["logs"][parity.TRANSACTIONS]["rows"] == RECORDED["logs"][parity.TRANSACTIONS]["rows"]
    for topic, log in found["logs"].items():
        for isolation in parity.ISOLATIONS:
            check_log(log, topic, isolation)

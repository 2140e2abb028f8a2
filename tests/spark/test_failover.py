"""A leader dies, of three real brokers, while it is read from and between micro-batches: every record, once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from client.scripted import TOPIC, MemoryLog, ScriptedBroker
from penstock.spark.backend import SourcePartition
from penstock.spark.options import batch_options, stream_options
from penstock.spark.reading import read_range
from penstock.spark.stream_reader import StreamReader
from penstock.wire.records import Record, build_batch
from support.cluster import PenstockCluster
from support.records import create_topic, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

COUNT = 5_000
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def cluster() -> Iterator[PenstockCluster]:
    with PenstockCluster() as running:
        yield running


@pytest.fixture
def topic(cluster: PenstockCluster) -> str:
    name = create_topic(cluster.bootstrap, f"t-{uuid.uuid4().hex[:8]}", replication_factor=3)
    write(cluster.bootstrap, name, COUNT)
    return name


def kill_leader(cluster: PenstockCluster, topic: str) -> None:
    """When the others have everything: what only the dead one has would have to be waited for."""
    cluster.wait(lambda: len(cluster.in_sync(topic)[0]) == 3, "be in sync")
    cluster.kill(cluster.leaders(topic)[0])


def test_a_task_goes_on_at_the_next_leader() -> None:
    """The same with brokers that are told what to say: soon done, and the leader is dead at an exact moment."""
    with ScriptedBroker() as first, ScriptedBroker() as second:
        log = MemoryLog(first, second)
        for index in range(20):
            some = [Record(timestamp=1, value=b"%d" % number) for number in range(10)]
            log.append(build_batch(some, base_offset=10 * index))
        servers = {"kafka.bootstrap.servers": f"{first.bootstrap},{second.bootstrap}", "subscribe": TOPIC}
        quickly = {"kafka.retry.backoff.ms": "1", "kafka.max.partition.fetch.bytes": "1"}
        found: list[int] = []
        for batch in read_range(batch_options(servers | quickly), SourcePartition(TOPIC, 0, 3, 195)):
            if not found:
                log.leader = 1
                first.stop()
            found += batch["offset"].to_pylist()
    assert found == list(range(3, 195))


@pytest.mark.long
def test_a_leader_that_dies_is_followed_by_tasks_and_by_the_driver(cluster: PenstockCluster, topic: str) -> None:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "penstock.client": "penstock"}
    # Some 20 KB at once, so that most of the range is still to be asked for when the leader dies.
    narrow = batch_options(given | {"kafka.max.partition.fetch.bytes": "20000", "kafka.retry.backoff.ms": "20"})
    found: list[int] = []
    for batch in read_range(narrow, SourcePartition(topic, 0, 0, COUNT)):
        if not found:
            kill_leader(cluster, topic)
        found += batch["offset"].to_pylist()
    assert found == list(range(COUNT))

    reader = StreamReader(stream_options(given | {"startingOffsets": "earliest"}))
    try:
        first = reader.latestOffset(reader.initialOffset(), ALL)
        kill_leader(cluster, topic)
        write(cluster.bootstrap, topic, 10)
        second = reader.latestOffset(first, ALL)
        (part,) = reader.partitions(first, second)
        assert [row for batch in reader.read(part) for row in batch["offset"].to_pylist()] == list(
            range(COUNT, COUNT + 10)
        )
    finally:
        reader.stop()


@pytest.mark.long
def test_a_query_goes_on_when_leaders_die_between_and_within_its_batches(
    spark: SparkSession, cluster: PenstockCluster, topic: str, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("penstock").options(**options, maxOffsetsPerTrigger="1000").load()
    taken: list[int] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        if batch_id in (1, 3):
            kill_leader(cluster, topic)
        taken.extend(row.offset for row in batch.select("offset").collect())

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
    running = query.trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(200), "it does not end"
    finally:
        running.stop()

    assert taken == list(range(COUNT))

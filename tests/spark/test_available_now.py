"""AvailableNow ends, whatever happens to the topics meanwhile: Spark's questions, put to the source without Spark.

`test_source_on_spark.py` has some of the same inside Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.spark.errors import DataLossError
from penstock.spark.options import stream_options
from spark.engine import Checkpoint, Run
from support.records import is_decided, open_transaction, write
from support.server_process import ServerProcess
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

Row = tuple[str, int, int]
"""(topic, partition, offset)."""


def run(
    server: ServerProcess, checkpoint: Checkpoint, between: Callable[[int], None] | None = None, **options: str
) -> list[Row]:
    given = {"kafka.bootstrap.servers": server.bootstrap, "startingOffsets": "earliest"} | options
    rows = Run(stream_options(given), checkpoint).to_the_end(between)
    return [(row["topic"], row["partition"], row["offset"]) for row in rows]


def offsets_of(rows: list[Row], topic: str, partition: int = 0) -> list[int]:
    return [offset for name, number, offset in rows if (name, number) == (topic, partition)]


def test_what_comes_while_it_runs_is_left_to_the_next_run(
    server: ServerProcess, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic, checkpoint = new_topic(), Checkpoint()
    write(server.bootstrap, topic, 30)

    def more(_: int) -> None:
        if len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 1:
            admin.create_partitions([NewPartitions(topic, 2)])[topic].result(timeout=20)
            wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 2)
        write(server.bootstrap, topic, 7, partition=1)
        write(server.bootstrap, topic, 5)

    first = run(server, checkpoint, more, subscribe=topic, maxOffsetsPerTrigger="10")
    second = run(server, checkpoint, subscribe=topic, maxOffsetsPerTrigger="10")

    assert offsets_of(first, topic) == list(range(30))
    assert offsets_of(first, topic, 1) == []
    assert offsets_of(second, topic) == list(range(30, 45))
    assert offsets_of(second, topic, 1) == list(range(21))


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
def test_a_topic_that_goes_while_it_runs(
    server: ServerProcess, admin: AdminClient, new_topic: Callable[..., str], again: bool
) -> None:
    going, staying, checkpoint = new_topic(), new_topic(), Checkpoint()
    write(server.bootstrap, going, 20)
    write(server.bootstrap, staying, 20)
    options: dict[str, Any] = {"subscribe": f"{going},{staying}", "maxOffsetsPerTrigger": "10"}

    def delete(batch: int) -> None:
        if batch == 1 and len(checkpoint.ends) == 2:
            admin.delete_topics([going])[going].result(timeout=20)
            wait_until(lambda: going not in admin.list_topics(timeout=10).topics)
            if again:
                new_topic(name=going)
                write(server.bootstrap, going, 40)

    with pytest.raises(DataLossError, match=f"of {going}-0"):
        run(server, checkpoint, delete, **options)
    assert checkpoint.committed == 1

    lenient = run(server, checkpoint, failOnDataLoss="false", **options)
    assert offsets_of(lenient, staying) == list(range(5, 20))
    assert offsets_of(lenient, going) == (list(range(40)) if again else [])
    assert run(server, checkpoint, failOnDataLoss="false", **options) == []


def test_a_topic_that_went_while_nothing_ran(
    server: ServerProcess, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic, checkpoint = new_topic(), Checkpoint()
    write(server.bootstrap, topic, 10)
    run(server, checkpoint, subscribe=topic)
    admin.delete_topics([topic])[topic].result(timeout=20)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics)
    new_topic(name=topic)
    write(server.bootstrap, topic, 10)

    with pytest.raises(DataLossError, match=f"Topic {topic} was deleted and created again"):
        run(server, checkpoint, subscribe=topic)
    rows = run(server, checkpoint, subscribe=topic, failOnDataLoss="false")
    assert offsets_of(rows, topic) == list(range(10)), "as long as the old one was, and still another"


def test_a_compacted_log(server: ServerProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001", min_compaction_lag_ms="0"
    )

    def read(**options: Any) -> list[int]:
        return offsets_of(run(server, Checkpoint(), subscribe=topic, **options), topic)

    def has_a_gap() -> bool:
        # Segments are closed by what is written after their time.
        write(server.bootstrap, topic, 20, keys=3)
        found = read()
        return len(found) < found[-1] - 20

    wait_until(has_a_gap, timeout_s=60)
    found = read(maxOffsetsPerTrigger="5", minPartitions="3")

    # Compaction goes on: what comes last is there, and nothing comes twice or out of order.
    assert found == sorted(set(found))
    assert found[-1] == read()[-1]


def test_data_that_retention_deleted(server: ServerProcess, admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic, checkpoint = new_topic(), Checkpoint()
    write(server.bootstrap, topic, 10)
    run(server, checkpoint, subscribe=topic)
    write(server.bootstrap, topic, 10)
    place = Place(topic, 0, 15)
    admin.delete_records([place])[place].result(timeout=20)

    with pytest.raises(DataLossError, match="offset 10 is not in the log, which holds 15 to 20"):
        run(server, checkpoint, subscribe=topic)
    rows = run(server, checkpoint, subscribe=topic, failOnDataLoss="false")
    assert offsets_of(rows, topic) == list(range(15, 20))


@pytest.mark.usefixtures("transactional_server")
def test_transactions_that_were_all_aborted(server: ServerProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    for _ in range(3):
        open_transaction(server.bootstrap, topic, 10).abort_transaction(30)
    committed: dict[str, Any] = {
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": "4",
    }

    assert run(server, Checkpoint(), **committed) == []
    assert len(run(server, Checkpoint(), subscribe=topic)) == 30


@pytest.mark.usefixtures("transactional_server")
def test_a_transaction_that_stays_open(server: ServerProcess, new_topic: Callable[..., str]) -> None:
    topic, checkpoint = new_topic(), Checkpoint()
    write(server.bootstrap, topic, 5)
    committed: dict[str, Any] = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    open_one = open_transaction(server.bootstrap, topic, 10)
    write(server.bootstrap, topic, 5)

    before = run(server, checkpoint, **committed)
    everything = run(server, Checkpoint(), subscribe=topic)
    open_one.commit_transaction(30)
    wait_until(lambda: is_decided(server.bootstrap, topic))
    after = run(server, checkpoint, **committed)

    assert offsets_of(before, topic) == list(range(5))
    assert offsets_of(everything, topic) == list(range(20))
    assert offsets_of(after, topic) == list(range(5, 20))

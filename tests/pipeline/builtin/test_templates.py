"""The files of `penstock pipeline init --from NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.pipeline import load_pipeline, run_pipeline, validate
from penstock.pipeline.builtin import TEMPLATES
from penstock.pipeline.checking import check_declarations
from support.records import create_topic, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = {
    "archive",
    "windows",
    "top-k",
    "deduplicate",
    "sessions",
    "join",
    "roll-up",
    "metrics",
    "replay",
    "repartition",
}


def test_each_built_in_pipeline_has_one() -> None:
    assert set(TEMPLATES) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_template_is_a_pipeline_as_it_is_written(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    chosen = TEMPLATES[name]
    pipeline = load_pipeline(written(name, tmp_path), overrides={"BOOTSTRAP": "elsewhere:9092", "TOPIC": "things"})
    assert check_declarations(pipeline) == []
    assert pipeline.bootstrap_servers == "elsewhere:9092"
    assert [source.topic for source in pipeline.sources] == ["things"]
    assert pipeline.sinks
    assert chosen.summary
    assert not chosen.summary.endswith(".")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(NAMES))
def test_spark_finds_nothing_wrong_with_a_template(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow
    from deltalake import write_deltalake

    monkeypatch.chdir(tmp_path)
    rows = pyarrow.table({"product_id": ["p1"], "name": ["pan"], "category": ["kitchen"]})
    write_deltalake(tmp_path / "lake" / "products", rows)
    assert validate(load_pipeline(written(name, tmp_path)), spark, cluster=False) == []


@pytest.mark.long
def test_a_template_runs_as_it_is_written(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deduplication, of all: state, dead letters, and a topic that is written."""
    monkeypatch.chdir(tmp_path)
    admin = AdminClient({"bootstrap.servers": broker})
    names = [topic, f"{topic}.dead", f"{topic}.unique"]
    for future in admin.create_topics([NewTopic(one, 1, 1) for one in names]).values():
        future.result(20)
    producer = Producer({"bootstrap.servers": broker})
    for order_id in ("o1", "o2", "o1", "o3"):
        value = f'{{"order_id":"{order_id}","product":"pan","amount":5.5,"ordered_at":"2026-01-05T08:00:00Z"}}'
        producer.produce(topic, value)
    producer.produce(topic, "nonsense")
    producer.flush(20)
    pipeline = load_pipeline(
        written("deduplicate", tmp_path), overrides={"BOOTSTRAP": broker, "TOPIC": topic, "trigger": "once"}
    )
    run_pipeline(pipeline, spark=spark)
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([f"{topic}.unique", f"{topic}.dead"])
    found = [message for message in consumer.consume(4, timeout=30) if message.error() is None]
    consumer.close()
    assert sorted(message.key() or b"" for message in found) == [b"", b"o1", b"o2", b"o3"]


@pytest.mark.long
def test_records_of_a_key_keep_their_order_in_a_topic_with_more_partitions(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create_topic(broker, topic, 2)
    create_topic(broker, f"{topic}.wide", 5)
    producer = Producer({"bootstrap.servers": broker})
    overrides = {"BOOTSTRAP": broker, "TOPIC": topic, "TARGET": f"{topic}.wide", "trigger": "once"}
    overrides["records_per_trigger"] = "100"
    for first in (0, 15):
        for number in range(first, first + 15):
            for key in range(20):
                producer.produce(topic, b"%d" % number, b"key %d" % key, headers={"n": b"%d" % number})
        assert producer.flush(20) == 0
        run_pipeline(load_pipeline(written("repartition", tmp_path), overrides=overrides), spark=spark)
    by_key: dict[bytes | None, list[int]] = {}
    places: dict[bytes | None, set[int]] = {}
    for one in read_topic(broker, f"{topic}.wide"):
        assert one.value is not None
        assert one.headers == [("n", one.value)]
        by_key.setdefault(one.key, []).append(int(one.value))
        places.setdefault(one.key, set()).add(one.partition)
    assert by_key == {b"key %d" % key: list(range(30)) for key in range(20)}
    assert {len(found) for found in places.values()} == {1}
    assert len(set.union(*places.values())) > 2


def written(name: str, directory: Path) -> Path:
    chosen = TEMPLATES[name]
    path = directory / f"{name}{chosen.suffix}"
    path.write_text(chosen.text, encoding="utf-8")
    return path

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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = {"archive", "windows", "top-k", "deduplicate", "sessions", "join", "replay"}


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


def written(name: str, directory: Path) -> Path:
    chosen = TEMPLATES[name]
    path = directory / f"{name}{chosen.suffix}"
    path.write_text(chosen.text, encoding="utf-8")
    return path

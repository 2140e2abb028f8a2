"""From a topic that somebody else fills to a pipeline, its explanation and a backfill: Spark and a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from cli.running import Run
from penstock.cli import exit_codes
from penstock.pipeline import load_pipeline, read_table, run_pipeline, validate
from penstock.pipeline.backfilling import narrowed, save, settle_backfill
from support.penstock import PenstockServer
from support.records import create_topic
from support.retention import KEPT_FOR_EVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockServer]:
    with PenstockServer(KEPT_FOR_EVER) as server:
        yield server


def fill(bootstrap: str, topic: str, records: int) -> None:
    """One order in each minute from noon, as its own time and as the record's."""
    create_topic(bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(records):
        at = NOON + timedelta(minutes=number)
        order = {"id": f"o{number}", "amount": 1.25, "at": at.isoformat(), "tags": ["new"]}
        producer.produce(
            topic, json.dumps(order), key=f"o{number}", partition=number % 2, timestamp=round(at.timestamp() * 1000)
        )
    producer.flush()


def test_a_file_made_of_a_topic_runs_and_a_range_of_it_runs_again(
    run: Run, spark: SparkSession, broker: PenstockServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(broker.bootstrap, "orders", 60)
    made = run("pipeline", "init", "--from-topic", "orders", "-b", broker.bootstrap)
    assert made.code == 0, made.messages
    assert "wrote orders.sql: 4 columns, at as the time of the event in 60 records of orders" in made.messages
    path = tmp_path / "orders.sql"
    # Spark's process keeps the directory in which it was started: names for it are absolute.
    checkpoint = f"checkpoint={tmp_path}/checkpoints/orders"
    pipeline = load_pipeline(path, overrides={"trigger": "once", "checkpoint": checkpoint.partition("=")[2]})
    assert validate(pipeline, spark) == []
    status = run_pipeline(pipeline, spark=spark)
    assert status.queries["orders_rows"].rows_read == 60
    rows = read_table(spark, "lake/orders_rows").collect()
    assert sorted(row.record_key for row in rows) == sorted(f"o{number}" for number in range(60))
    words = " ".join(run("pipeline", "explain", "orders.sql", "--no-spark", "--set", checkpoint).output.split())
    assert f"Topic orders at {broker.bootstrap} (2 partitions, 60 records), as JSON." in words
    assert "Resumes after batch 0: orders-0 at 30, orders-1 at 30." in words
    assert "Exactly once: each batch is one commit" in words
    assert {(row.amount, tuple(row.tags)) for row in rows} == {(1.25, ("new",))}

    times = ["--from", "2026-01-31T12:10Z", "--to", "2026-01-31T12:20Z", "--set", checkpoint]
    planned = run("pipeline", "backfill", "orders.sql", *times, "--into", "again", "--dry-run", "--json")
    document = json.loads(planned.output)
    assert (document["offsets"], document["queries"][0]["path"]) == (10, "again/orders_rows")
    assert document["ranges"]["orders"]["starts"] == {"orders": {"0": 5, "1": 5}}
    assert not (tmp_path / document["checkpoint"]).exists(), "a dry run leaves nothing behind"
    refused = run("pipeline", "backfill", "orders.sql", *times)
    assert refused.code == exit_codes.USAGE
    assert "--in-place" in refused.messages

    # The range is settled before the run, and a run that follows takes the same one.
    moments = (NOON + timedelta(minutes=10), NOON + timedelta(minutes=20))
    bounded, found = settle_backfill(narrowed(pipeline, into="again"), *moments)
    save(bounded, found)
    bounded, found = settle_backfill(narrowed(pipeline, into="again"), *moments)
    assert not found.is_new
    assert run_pipeline(bounded, spark=spark).queries["orders_rows"].rows_read == 10
    rows = read_table(spark, "again/orders_rows").collect()
    assert sorted(row.id for row in rows) == [f"o{number}" for number in range(10, 20)]
    save(bounded, replace(found, done=True))
    done = run("pipeline", "backfill", "orders.sql", *times, "--into", "again")
    assert (done.code, done.messages.strip()) == (0, "nothing to do: this backfill is done")


def test_a_topic_that_cannot_be_sampled_is_told_plainly(
    run: Run, broker: PenstockServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create_topic(broker.bootstrap, "payments", 1)
    empty = run("pipeline", "init", "--from-topic", "payments", "-b", broker.bootstrap)
    assert empty.code == exit_codes.NOT_FOUND
    assert "the topic payments has no records to look at" in empty.messages
    missing = run("pipeline", "init", "--from-topic", "paymens", "-b", broker.bootstrap)
    assert missing.code == exit_codes.NOT_FOUND
    assert "did you mean payments?" in missing.messages
    assert list(tmp_path.iterdir()) == []

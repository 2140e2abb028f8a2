"""A checkpoint made a pipeline's own, and "latest" settled in it. A real broker, no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from penstock.pipeline.checkpoints import LocalDirectory
from penstock.pipeline.claiming import claim, completed
from penstock.pipeline.identity import FILE_NAME, Identity
from penstock.pipeline.model import Pipeline
from penstock.pipeline.sql_file import parse_sql
from support.penstock import PenstockServer
from support.server_process import admin_client


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockServer]:
    with PenstockServer() as server:
        yield server


def pipeline(broker: PenstockServer, words: str) -> Pipeline:
    text = f"""SET bootstrap.servers = '{broker.bootstrap}';
        CREATE STREAM s (x INT) WITH ({words}, starting = 'latest');
        CREATE TABLE t WITH (sink = 'noop') AS SELECT * FROM s"""
    return parse_sql(text, name="p")


def create(broker: PenstockServer, topic: str, records: int) -> None:
    admin = admin_client(broker.bootstrap)
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for _ in range(records):
        producer.produce(topic, b"{}", partition=0)
    producer.flush()


@pytest.mark.parametrize("words", ["topic = 'one.a'", "pattern = '^one'"])
def test_latest_is_settled_once_and_what_came_later_is_read_whole(
    broker: PenstockServer, tmp_path: Path, words: str
) -> None:
    name = "one" if "topic" in words else "two"
    words = words.replace("one", name)
    create(broker, f"{name}.a", 3)
    directory = LocalDirectory(tmp_path)
    assert json.loads(claim(pipeline(broker, words), directory)["s"]) == {f"{name}.a": {"0": 3}}
    create(broker, f"{name}.b", 5)
    admin = admin_client(broker.bootstrap)
    for future in admin.create_partitions([NewPartitions(f"{name}.a", 2)]).values():
        future.result()
    expected = {f"{name}.a": {"0": 3, "1": -2}}
    if "pattern" in words:
        expected[f"{name}.b"] = {"0": -2}
    assert json.loads(claim(pipeline(broker, words), directory)["s"]) == expected
    stored = Identity.from_json((tmp_path / FILE_NAME).read_text())
    assert json.loads(stored.starting["s"]) == {f"{name}.a": {"0": 3}}


def test_a_pattern_without_topics_starts_with_what_comes(broker: PenstockServer, tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path)
    words = "pattern = '^later'"
    assert claim(pipeline(broker, words), directory) == {"s": "latest"}
    create(broker, "later.a", 2)
    assert json.loads(claim(pipeline(broker, words), directory)["s"]) == {"later.a": {"0": -2}}


def test_partitions_that_are_gone_are_not_named() -> None:
    settled = {"a": {"0": 5, "1": 6}, "gone": {"0": 7}}
    assert completed(settled, {"a": [0]}) == {"a": {"0": 5}}

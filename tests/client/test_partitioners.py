"""Keys live where Java's producers put them, whoever writes: other Python clients, librdkafka, and what Java did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import impact
from penstock.client import Producer
from penstock.client.partitioners import murmur2, murmur2_partition

PARITY = Path(__file__).parents[1] / "spark" / "fixtures" / "parity.json"


def java_placements() -> dict[int, list[int]]:
    """Where Java's producer put `java_keys`, for each number of partitions; recorded from Spark's Kafka sink."""
    placed: dict[str, list[int]] = json.loads(PARITY.read_text())["placed"]
    return {int(count): partitions for count, partitions in placed.items()}


def java_keys() -> list[bytes]:
    """The keys that were placed: of many lengths, because murmur2 treats the last bytes of a key on their own."""
    lengths = [bytes((7 * length + index) % 256 for index in range(length)) for length in range(1, 40)]
    return [*lengths, *(b"user-%d" % number for number in range(60))]


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_every_client_agrees_on_a_key(key: bytes, partitions: int) -> None:
    aiokafka = pytest.importorskip("aiokafka.partitioner")
    kafka = pytest.importorskip("kafka.partitioner.default")
    mine = murmur2_partition(key, partitions)
    assert mine == confluent_kafka.murmur2(key, partitions)
    assert mine == impact.murmur2_partition(key, partitions)
    everything = list(range(partitions))
    assert mine == aiokafka.DefaultPartitioner()(key, everything, everything)
    assert mine == (kafka.murmur2(key) & 0x7FFFFFFF) % partitions, "kafka-python's"


def test_hashes_are_javas() -> None:
    """Kafka's own UtilsTest has these."""
    expected = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in expected} == {key: value & 0xFFFFFFFF for key, value in expected.items()}


@pytest.mark.parametrize(("count", "placed"), java_placements().items())
def test_keys_go_where_java_put_them(
    bootstrap: str, create_topic: Callable[..., str], count: int, placed: list[int]
) -> None:
    topic = create_topic(count)
    with Producer(bootstrap) as producer:
        deliveries = [producer.send(topic, b"v", key) for key in java_keys()]
        producer.flush(20)
    assert [delivery.result().partition for delivery in deliveries] == placed
    assert [murmur2_partition(key, count) for key in java_keys()] == placed
    assert len(set(placed)) == count


def test_an_empty_key_is_a_key(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic(7)
    with Producer(bootstrap) as producer:
        found = {producer.send(topic, b"v", b"").result(60).partition for _ in range(5)}
    assert found == {murmur2_partition(b"", 7)}

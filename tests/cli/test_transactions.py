"""`penstock transactions list`, `describe`, `producers`, `find-hanging`, `abort` against a cluster."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from cli.running import Run
from penstock.cli import exit_codes
from penstock.client import LATEST, ClientSettings, Cluster, IsolationLevel
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import Record, build_batch
from support.waiting import wait_until

UNVERIFIED = "transaction.partition.verification.enable"
PRODUCE_VERSION = 11
"""The last version in which the client registers partitions with the coordinator itself."""


@pytest.fixture
def orders(on: Run, topic: str) -> str:
    assert on("topics", "create", topic, "--partitions", 2).code == exit_codes.OK
    return topic


def begin(bootstrap: str, name: str, topic: str) -> Producer:
    """A producer with an open transaction that has a record in both partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 60_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0
    return producer


def shown(run: Run, *arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.code == exit_codes.OK, result.messages
    return json.loads(result.output)


def test_an_open_transaction_is_listed_and_described_until_it_ends(on: Run, bootstrap: str, orders: str) -> None:
    name = f"id-of-{orders}"
    producer = begin(bootstrap, name, orders)
    (listed,) = [one for one in shown(on, "transactions", "list") if one["transactional_id"] == name]
    assert listed["state"] == "Ongoing"
    pattern = f"id-of-{orders[:-3]}.*"
    assert shown(on, "transactions", "list", "--state", "ongoing", "--pattern", pattern) == [listed]
    assert listed in shown(on, "transactions", "list", "--producer-id", listed["producer_id"])
    wait_until(lambda: listed in shown(on, "transactions", "list", "--longer-than", "1ms"))
    assert listed not in shown(on, "transactions", "list", "--longer-than", "1h")
    assert listed not in shown(on, "transactions", "list", "--state", "Empty")
    (described,) = shown(on, "transactions", "describe", name)
    assert described["state"] == "Ongoing"
    assert described["coordinator"] == listed["coordinator"]
    assert described["timeout_ms"] == 60_000
    assert described["partitions"] == [{"topic": orders, "partition": 0}, {"topic": orders, "partition": 1}]
    assert 0 <= described["duration_ms"] < 60_000
    one, two = shown(on, "transactions", "producers", orders)
    assert (one["producer_id"], one["start_offset"], two["start_offset"]) == (listed["producer_id"], 0, 0)
    producer.commit_transaction(30)
    wait_until(lambda: shown(on, "transactions", "describe", name)[0]["state"] == "CompleteCommit")
    ended = shown(on, "transactions", "producers", orders, "--partition", 1)
    assert [one["start_offset"] for one in ended] == [None]
    table = on("transactions", "describe", name)
    assert f"{name}\t" in table.output
    assert "CompleteCommit" in table.output


def test_an_id_that_does_not_exist_is_refused_by_name(on: Run, orders: str) -> None:
    result = on("transactions", "describe", "no-such-id")
    assert result.code == exit_codes.NOT_FOUND
    assert "penstock transactions list" in result.messages
    assert on("transactions", "abort", "--transactional-id", "no-such-id", "--yes").code == exit_codes.NOT_FOUND
    assert on("transactions", "list", "--state", "Sleeping").code == exit_codes.USAGE
    assert on("transactions", "abort", "--topic", orders).code == exit_codes.USAGE
    gone = on("transactions", "abort", "--topic", orders, "--partition", 0, "--start-offset", 5, "--yes")
    assert gone.code == exit_codes.NOT_FOUND


def test_abort_by_id_ends_the_transaction_and_fences_its_producer(on: Run, bootstrap: str, orders: str) -> None:
    name = f"id-of-{orders}"
    producer = begin(bootstrap, name, orders)
    assert on("transactions", "abort", "--transactional-id", name, "--yes").code == exit_codes.OK
    wait_until(lambda: {one["start_offset"] for one in shown(on, "transactions", "producers", orders)} == {None})
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    assert caught.value.args[0].fatal()


def test_abort_by_place_ends_a_transaction_in_this_partition(on: Run, bootstrap: str, orders: str) -> None:
    producer = begin(bootstrap, f"id-of-{orders}", orders)
    place = ("--topic", orders, "--partition", 1, "--start-offset", 0)
    assert on("transactions", "abort", *place).code == exit_codes.USAGE, "asks first"
    assert on("transactions", "abort", *place, "--yes").code == exit_codes.OK
    one, two = shown(on, "transactions", "producers", orders)
    assert (one["start_offset"], two["start_offset"]) == (0, None)
    producer.abort_transaction(30)


def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted(
    on: Run, bootstrap: str, orders: str, request: pytest.FixtureRequest
) -> None:
    if "apache-kafka" not in request.node.callspec.id:
        assert not write_unregistered(bootstrap, orders), "Penstock always verifies, so nothing can hang"
        assert on("transactions", "find-hanging", "--max-transaction-timeout", "0s").code == exit_codes.OK
        return
    assert on("configs", "alter", "--all-brokers", "--add", f"{UNVERIFIED}=false").code == exit_codes.OK
    try:
        wait_until(lambda: write_unregistered(bootstrap, orders))
    finally:
        assert on("configs", "alter", "--all-brokers", "--delete", UNVERIFIED).code == exit_codes.OK
    alive = begin(bootstrap, f"id-of-{orders}", orders)
    assert on("transactions", "find-hanging", "--topic", orders).code == exit_codes.OK, "too young to hang"
    found = on("transactions", "find-hanging", "--topic", orders, "--max-transaction-timeout", "0s", "--json")
    assert found.code == exit_codes.UNHEALTHY
    (hanging,) = json.loads(found.output)
    assert (hanging["producer_id"], hanging["partition"], hanging["start_offset"]) == (PRODUCER_ID, 0, 0)
    with Cluster(ClientSettings.from_properties({"bootstrap.servers": bootstrap})) as cluster:
        assert last_stable_offset(cluster, orders) == 0
        alive.abort_transaction(30)
        assert last_stable_offset(cluster, orders) == 0
        place = ("--topic", orders, "--partition", 0, "--start-offset", 0)
        assert on("transactions", "abort", *place).code == exit_codes.USAGE, "asks first"
        assert on("transactions", "abort", *place, "--yes").code == exit_codes.OK
        wait_until(lambda: last_stable_offset(cluster, orders) > 0)
    again = on("transactions", "find-hanging", "--topic", orders, "--max-transaction-timeout", "0s")
    assert again.code == exit_codes.OK


PRODUCER_ID = 2**40
"""Of a producer that never asked a coordinator."""


def write_unregistered(bootstrap: str, topic: str) -> bool:
    """Writes a record of a transaction that the coordinator was never told of; False if the broker refuses it."""
    record = Record(value=b"hangs", timestamp=time.time_ns() // 1_000_000 - 1000)
    batch = build_batch([record], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0, transactional=True)
    part = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        transactional_id="unregistered",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[part])],
    )
    with Cluster(ClientSettings.from_properties({"bootstrap.servers": bootstrap})) as cluster:
        connection = cluster.leader(topic, 0)
        answer = connection.receive(connection.send(request, version=PRODUCE_VERSION), ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code == 0


def last_stable_offset(cluster: Cluster, topic: str) -> int:
    found = cluster.list_offsets({(topic, 0): LATEST}, isolation=IsolationLevel.READ_COMMITTED)
    return next(iter(found.values())).offset

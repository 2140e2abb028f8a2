"""Faults as clients see them, and what a cluster makes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.testing import Cluster


@pytest.fixture
def one() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    impatient = {"broker.session.timeout.ms": "1000", "replica.lag.time.max.ms": "1000"}
    with Cluster(3, settings=impatient) as cluster:
        yield cluster


@pytest.fixture
def topic(three: Cluster) -> Iterator[str]:
    """A topic of three healthy brokers, which are healthy again afterwards."""
    yield three.new_topic()
    three.heal_all()
    for node in three.nodes:
        if not node.is_alive:
            node.start()
        node.slow_disk(0)
        node.resume()
    three.await_ready()


def test_a_killed_broker_comes_back_with_what_was_acknowledged(one: Cluster) -> None:
    topic = one.new_topic()
    one.produce(topic, ["a", "b"])
    one.node(1).kill()
    assert not one.node(1).is_alive
    with pytest.raises(KafkaException):
        one.produce(topic, ["lost"], message_timeout_ms=300)
    one.node(1).start()
    one.produce(topic, ["c"])
    assert [record.value for record in one.consume(topic)] == [b"a", b"b", b"c"]


def test_another_broker_leads_when_the_leader_is_killed(three: Cluster, topic: str) -> None:
    three.produce(topic, ["a"])
    leader = three.leader(topic)
    leader.kill()
    three.produce(topic, ["b"])
    assert three.leader(topic) is not leader
    assert [record.value for record in three.consume(topic, 2)] == [b"a", b"b"]
    leader.start()
    three.wait_until(lambda: three.in_sync(topic) == [1, 2, 3])


def test_another_controller_takes_over_when_the_active_one_is_killed(three: Cluster, topic: str) -> None:
    controller = three.controller
    controller.kill()
    assert three.controller is not controller
    three.wait_until(lambda: controller.id not in three.in_sync(topic))
    three.create_topic(f"{topic}-after", replication_factor=2)


def test_a_paused_broker_answers_late_but_keeps_its_connections(one: Cluster) -> None:
    topic = one.new_topic()
    one.produce(topic, ["before"])
    node = one.node(1)
    with node.paused():
        assert node.state == "paused"
        with pytest.raises(KafkaException):
            one.produce(topic, ["no answer"], message_timeout_ms=300, retries=0)
    assert node.state == "running"
    one.produce(topic, ["after"])
    assert [record.value for record in one.consume(topic)][-1] == b"after"


def test_a_paused_broker_can_be_killed(one: Cluster) -> None:
    one.node(1).pause()
    one.node(1).kill()
    one.node(1).start()
    one.create_topic("t")


def test_a_broker_that_is_paused_for_long_loses_its_place(three: Cluster, topic: str) -> None:
    leader = three.leader(topic)
    leader.pause()
    three.wait_until(lambda: leader.id not in three.in_sync(topic))
    three.produce(topic, ["a"])
    leader.resume()
    three.wait_until(lambda: three.in_sync(topic) == [1, 2, 3])
    assert [record.value for record in three.consume(topic)] == [b"a"]


def test_a_slow_disk_makes_writes_take_longer(one: Cluster) -> None:
    topic = one.new_topic()

    def latency_s() -> float:
        started_s = time.monotonic()
        one.produce(topic, ["x"])
        return time.monotonic() - started_s

    latency_s()
    one.node(1).slow_disk(250)
    assert latency_s() >= 0.25
    one.node(1).slow_disk(0)
    one.wait_until(lambda: latency_s() < 0.25)  # one of them, on a busy machine


def test_a_follower_that_is_cut_off_leaves_the_in_sync_replicas_and_comes_back(three: Cluster, topic: str) -> None:
    leader = three.leader(topic)
    cut_off = next(node.id for node in three.nodes if node is not leader)
    three.isolate(cut_off)
    three.wait_until(lambda: cut_off not in three.in_sync(topic))
    three.produce(topic, ["a"])
    three.heal_all()
    three.wait_until(lambda: three.in_sync(topic) == [1, 2, 3])


def test_a_cut_between_two_brokers_is_not_seen_by_clients(three: Cluster, topic: str) -> None:
    leader = three.leader(topic).id
    one, other = (node.id for node in three.nodes if node.id != leader)
    three.cut(one, other)
    three.produce(topic, ["a"], message_timeout_ms=10_000)
    three.heal(one, other)
    assert [record.value for record in three.consume(topic)] == [b"a"]


def test_a_leader_that_is_cut_off_from_the_others_cannot_acknowledge(three: Cluster, topic: str) -> None:
    leader = three.leader(topic)
    three.isolate(leader.id)
    settings = {"bootstrap_servers": leader.address, "message_timeout_ms": 1000}
    with pytest.raises(KafkaException):
        three.produce(topic, ["to the old leader alone"], **settings)


def test_what_was_on_its_way_to_a_client_arrives_after_the_cut(one: Cluster) -> None:
    topic = one.new_topic()
    settings = one.client_settings(group_id="g", fetch_wait_max_ms=100, socket_timeout_ms=30_000)
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    one.produce(topic, ["before"])
    assert [message.value() for message in consumer.consume(1, 60)] == [b"before"]
    node = one.node(1)
    node.cut_clients()
    assert consumer.poll(0.3) is None
    with pytest.raises(KafkaException):
        one.produce(topic, ["lost"], message_timeout_ms=300, retries=0)
    node.heal_clients()
    one.produce(topic, ["after"])
    assert [message.value() for message in consumer.consume(1, 60)][-1] in (b"lost", b"after")
    consumer.close()


def test_a_stopped_cluster_starts_again_with_its_data(three: Cluster, topic: str) -> None:
    three.produce(topic, ["a"])
    three.stop()
    assert not any(node.is_alive for node in three.nodes)
    three.start()
    assert [record.value for record in three.consume(topic, 1)] == [b"a"]

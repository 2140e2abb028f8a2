"""A cluster inside the test process: what it offers, and that it leaves nothing behind."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from penstock.testing import Cluster, NodeFailed, Record
from support.waiting import wait_until

READY_S = 1.0


@pytest.mark.parametrize("brokers", [1, 3])
def test_it_is_ready_in_well_under_a_second(brokers: int) -> None:
    """The best of some: other tests share the machine."""
    took_s = []
    for _ in range(20):
        started_s = time.monotonic()
        with Cluster(brokers):
            took_s.append(time.monotonic() - started_s)
        if took_s[-1] < READY_S:
            break
    assert min(took_s) < READY_S, took_s


def test_nothing_is_left_behind() -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    with Cluster(1):
        pass  # what is made once per process is made now
    before, threads = descriptors(), set(threading.enumerate())
    for _ in range(3):
        with Cluster(3) as cluster:
            cluster.create_topic("t", 3)
            cluster.produce("t", ["a", "b"])
            assert len(cluster.consume("t")) == 2
            assert cluster.directory.exists()
    assert set(threading.enumerate()) <= threads
    # Clients that other tests have left behind look for their brokers now and then.
    wait_until(lambda: descriptors() <= before)
    assert not cluster.directory.exists()


def test_a_cluster_that_does_not_start_leaves_nothing_behind_either() -> None:
    threads = set(threading.enumerate())
    cluster = Cluster(1, settings={"log.segment.bytes": "-5"})
    with pytest.raises(NodeFailed, match=r"log\.segment\.bytes"), cluster:
        pass
    assert set(threading.enumerate()) <= threads
    assert not cluster.directory.exists()


def test_records_come_back_as_they_were_sent() -> None:
    with Cluster() as cluster:
        topic = cluster.new_topic("orders with spaces", partitions=2)
        sent = [
            Record(b"v", b"k", (("h", b"1"), ("h", None)), 1_700_000_000_000),
            Record(None, b"k"),
            Record(b"third", partition=1),
        ]
        placed = cluster.produce(topic, [*sent, "text", ("key", "pair"), b"bytes"])
        read = cluster.consume(topic)
        assert sorted(read, key=str) == sorted(placed, key=str)
        assert {(record.partition, record.offset) for record in read} == {(r.partition, r.offset) for r in placed}
        found = next(record for record in read if record.headers)
        assert (found.value, found.key, found.headers, found.timestamp_ms) == (
            b"v",
            b"k",
            (("h", b"1"), ("h", None)),
            1_700_000_000_000,
        )
        assert placed[2].partition == 1
        assert {record.key for record in read if record.value is None} == {b"k"}


def test_names_of_new_topics_differ_and_settings_reach_the_brokers() -> None:
    with Cluster(settings={"auto.create.topics.enable": "false", "message.max.bytes": "500"}) as cluster:
        assert cluster.new_topic("a") != cluster.new_topic("a")
        topic = cluster.create_topic("small", config={"retention.ms": "1000"})
        with pytest.raises(KafkaException, match="too large"):
            cluster.produce(topic, ["x" * 1000])
        with pytest.raises(KafkaException):
            cluster.consume("absent")


def test_waiting_for_records_that_do_not_come_says_how_many_did() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", ["a"])
        with pytest.raises(TimeoutError, match="only 1 of 2 records"):
            cluster.consume("t", 2, timeout_s=3)


def test_a_group_of_the_application_works() -> None:
    with Cluster() as cluster:
        topic = cluster.new_topic()
        cluster.produce(topic, ["a", "b"])
        for expected in ([b"a", b"b"], [b"c"]):
            consumer = Consumer(cluster.client_settings(group_id="app", auto_offset_reset="earliest"))
            consumer.subscribe([topic])
            assert [message.value() for message in consumer.consume(len(expected), 15)] == expected
            consumer.commit(asynchronous=False)
            consumer.close()
            cluster.produce(topic, ["c"])


def test_two_brokers_have_one_controller_and_two_copies() -> None:
    with Cluster(2) as cluster:
        topic = cluster.new_topic()
        assert cluster.in_sync(topic) == [1, 2]
        assert cluster.controller.id == 1


def test_a_dead_nodes_port_is_kept_for_it() -> None:
    with Cluster() as cluster:
        node = cluster.node(1)
        node.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", node.port))
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", node.port))
        node.start()
        assert cluster.bootstrap_servers == node.address


def test_data_is_kept_where_it_was_asked_to_be(tmp_path: Path) -> None:
    with Cluster(directory=tmp_path / "data") as cluster:
        cluster.create_topic("t")
    assert (tmp_path / "data" / "node-1" / "t-0").is_dir()
    with pytest.raises(ValueError, match="is not empty"):
        Cluster(directory=tmp_path / "data")


@pytest.mark.parametrize("brokers", [0, 10])
def test_a_cluster_has_one_to_nine_brokers(brokers: int) -> None:
    with pytest.raises(ValueError, match="1 to 9"):
        Cluster(brokers)


def test_what_makes_no_sense_is_refused_with_the_reason() -> None:
    with Cluster() as cluster:
        with pytest.raises(ValueError, match="no node 2"):
            cluster.node(2)
        with pytest.raises(ValueError, match="itself"):
            cluster.cut(1, 1)
        with pytest.raises(NodeFailed, match="is already running"):
            cluster.node(1).start()
        cluster.node(1).kill()
        with pytest.raises(NodeFailed, match="is not running"):
            cluster.node(1).pause()


def test_an_error_that_a_process_would_not_survive_ends_the_node_alone() -> None:
    with Cluster() as cluster:
        node = cluster.node(1)
        runtime = node._alive()
        runtime.in_loop(runtime.fatal, "the disk is gone")
        cluster.wait_until(lambda: not node.is_alive)
        assert 'reason="the disk is gone"' in node.log
        node.start()
        cluster.create_topic("t")


def test_an_idempotent_producer_loses_and_repeats_nothing_while_a_broker_restarts() -> None:
    with Cluster(3) as cluster:
        topic = cluster.new_topic(partitions=3)
        failed: list[object] = []
        producer = Producer(cluster.client_settings(enable_idempotence=True, linger_ms=0))
        for number in range(300):
            producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error))
            if number == 100:
                cluster.node(2).restart()
        producer.flush()
        assert failed == [None] * 300
        cluster.wait_until(lambda: cluster.in_sync(topic) == [1, 2, 3])
        assert sorted(int(record.value or b"") for record in cluster.consume(topic)) == list(range(300))

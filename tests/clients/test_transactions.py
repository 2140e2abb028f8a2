"""Transactions with unmodified clients: a read-process-write loop that commits, aborts, and fences its predecessor."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from penstock.testing import Cluster
from support import npm
from support.penstock import PenstockServer

KAFKAJS_VERSION = "2.2.4"
TIMEOUT_S = 30
PATIENCE = 60
"""Polls of a second until a partition must have ended."""


@pytest.fixture
def name() -> str:
    return f"x-{uuid.uuid4().hex[:8]}"


def values(bootstrap: str, topic: str, partitions: int = 2, *, committed: bool = True) -> list[bytes]:
    """All values up to the end, sorted."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended = [], 0
    for _ in range(PATIENCE):
        message = reader.poll(1)
        while message is not None:
            error = message.error()
            ended += error is not None and error.code() == KafkaError._PARTITION_EOF
            if error is None:
                found.append(message.value() or b"")
            message = reader.poll(0) if ended < partitions else None
        if ended == partitions:
            break
    reader.close()
    assert ended == partitions, "a partition does not end: its last stable offset stays behind"
    return sorted(found)


def offset_of(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    consumer.close()
    assert found.error is None
    return int(found.offset)


# -- librdkafka --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


def read_process_write(bootstrap: str, source: str, sink: str, name: str) -> None:
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        plain.produce(source, b"%d" % number)
    assert plain.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([source])
    read: list[bytes] = []
    while len(read) < 5:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value() or b"")
    old = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    old.init_transactions(TIMEOUT_S)

    def transact(producer: Producer, tag: bytes, *, commit: bool) -> None:
        producer.begin_transaction()
        for number, value in enumerate(read):
            producer.produce(sink, tag + value, partition=number % 2)
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
        assert producer.flush(TIMEOUT_S) == 0  # an abort drops records that were not sent yet
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)

    transact(old, b"a", commit=False)
    assert offset_of(bootstrap, name, source) < 0
    transact(old, b"c", commit=True)
    assert offset_of(bootstrap, name, source) == 5
    old.begin_transaction()
    old.produce(sink, b"zombie", partition=0)
    old.flush(TIMEOUT_S)
    new = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    new.init_transactions(TIMEOUT_S)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    transact(new, b"d", commit=True)
    wanted = [tag + value for tag in (b"c", b"d") for value in read]
    assert values(bootstrap, sink) == sorted(wanted)
    everything = [tag + value for tag in (b"a", b"c", b"d") for value in read] + [b"zombie"]
    assert values(bootstrap, sink, committed=False) == sorted(everything)
    consumer.close()


def test_librdkafka_reads_processes_and_writes(
    server: PenstockServer, new_topic: Callable[..., str], name: str
) -> None:
    read_process_write(server.bootstrap, new_topic(), new_topic(2), name)


def test_librdkafka_does_so_on_three_brokers(three: Cluster, name: str) -> None:
    bootstrap = three.bootstrap_servers
    topics = [NewTopic(f"{name}-in", 1, 3), NewTopic(f"{name}-out", 2, 3)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)
    read_process_write(bootstrap, f"{name}-in", f"{name}-out", name)


def test_a_timeout_above_the_maximum_is_refused(server: PenstockServer, name: str) -> None:
    settings = {"bootstrap.servers": server.bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_001}
    with pytest.raises(KafkaException) as refused:
        Producer(settings).init_transactions(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


# -- other clients -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_aiokafka(server: PenstockServer, new_topic: Callable[..., str], name: str) -> None:
    source, sink = new_topic(), new_topic(2)

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=name)
        await producer.start()
        try:
            for tag, aborts in ((b"a", True), (b"c", False)):
                await producer.begin_transaction()
                for number in range(4):
                    await producer.send_and_wait(sink, b"%s%d" % (tag, number), partition=number % 2)
                await producer.send_offsets_to_transaction({AioPartition(source, 0): 7 if aborts else 9}, name)
                await (producer.abort_transaction() if aborts else producer.commit_transaction())
        finally:
            await producer.stop()

    asyncio.run(run())
    assert values(server.bootstrap, sink) == [b"c0", b"c1", b"c2", b"c3"]
    assert len(values(server.bootstrap, sink, committed=False)) == 8
    assert offset_of(server.bootstrap, name, source) == 9


@pytest.mark.filterwarnings("ignore")
def test_kafka_python(server: PenstockServer, new_topic: Callable[..., str], name: str) -> None:
    source, sink = new_topic(), new_topic(2)
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=name)
    producer.init_transactions()
    for tag, aborts in ((b"a", True), (b"c", False)):
        producer.begin_transaction()
        sent = [producer.send(sink, b"%s%d" % (tag, number), partition=number % 2) for number in range(4)]
        producer.flush(TIMEOUT_S)
        assert all(one.succeeded() for one in sent)
        offsets = {PythonPartition(source, 0): OffsetAndMetadata(7 if aborts else 9, "", -1)}
        producer.send_offsets_to_transaction(offsets, name)
        (producer.abort_transaction if aborts else producer.commit_transaction)()
    producer.close()
    assert values(server.bootstrap, sink) == [b"c0", b"c1", b"c2", b"c3"]
    assert len(values(server.bootstrap, sink, committed=False)) == 8
    assert offset_of(server.bootstrap, name, source) == 9


@pytest.mark.needs_npm
def test_kafkajs(server: PenstockServer, new_topic: Callable[..., str], name: str) -> None:
    if reason := npm.package_missing("kafkajs", KAFKAJS_VERSION):
        pytest.skip(reason)
    source, sink = new_topic(), new_topic(2)
    script = Path(__file__).with_name("kafkajs_transactions.js")
    done = subprocess.run(
        ["node", str(script), server.bootstrap, source, sink, name],
        env={**os.environ, "NODE_PATH": str(npm.CACHE / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == "done"
    assert values(server.bootstrap, sink) == [b"c0", b"c1", b"c2", b"c3"]
    assert len(values(server.bootstrap, sink, committed=False)) == 8
    assert offset_of(server.bootstrap, name, source) == 9

"""librdkafka's `client.rack`: a consumer reads from the broker in its rack, and from another when that one dies."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.config import RACK_AWARE_SELECTOR
from support.racked_cluster import RackedCluster

pytestmark = pytest.mark.long

RACKS = ("a", "b", "c")
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
COUNT = 2_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[RackedCluster]:
    settings = [{"broker.rack": rack, "replica.selector.class": RACK_AWARE_SELECTOR} for rack in RACKS]
    with RackedCluster(settings) as running:
        yield running


def fill(cluster: RackedCluster, topic: str) -> int:
    """A topic with three replicas; returns who leads it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20})
    for number in range(COUNT):
        producer.produce(topic, b"%0500d" % number)
    assert producer.flush(60) == 0
    leader = admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader
    assert leader is not None
    return leader


def consumer_in(cluster: RackedCluster, rack: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"g-{rack}-{topic}",
            "client.rack": rack,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return consumer


def read(consumer: Consumer, upto: int, found: list[int] | None = None) -> list[int]:
    found = [] if found is None else found
    deadline_s = time.monotonic() + 60
    while len(found) < upto and time.monotonic() < deadline_s:
        for message in consumer.consume(500, timeout=1.0):
            if message.error() is None:
                found.append(int(message.value() or b"-1"))
    return found


def sent_by(cluster: RackedCluster) -> list[float]:
    return [member.metric(BYTES_OUT) if member.alive() else 0.0 for member in cluster.members]


def test_a_consumer_reads_from_the_broker_in_its_rack(cluster: RackedCluster) -> None:
    leader = fill(cluster, "near")
    for node, rack in enumerate(RACKS, 1):
        before = sent_by(cluster)
        consumer = consumer_in(cluster, rack, "near")
        assert read(consumer, COUNT) == list(range(COUNT))
        consumer.close()
        sent = [after - earlier for after, earlier in zip(sent_by(cluster), before, strict=True)]
        assert sent[node - 1] > 0.9 * sum(sent), f"rack {rack}, leader {leader}: {sent}"


def test_a_reader_whose_near_broker_dies_goes_on_elsewhere(cluster: RackedCluster) -> None:
    leader = fill(cluster, "dies")
    node = next(n for n in (1, 2, 3) if n != leader)
    consumer = consumer_in(cluster, RACKS[node - 1], "dies")
    found = read(consumer, 1)
    cluster.members[node - 1].kill()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(COUNT, COUNT + 100):
        producer.produce("dies", b"%0500d" % number)
    assert producer.flush(60) == 0
    assert read(consumer, COUNT + 100, found) == list(range(COUNT + 100))
    consumer.close()
    cluster.members[node - 1].start()

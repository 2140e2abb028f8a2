"""kill -9 under load: nothing that was acknowledged is lost, in any setting, and order is kept."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.penstock import PenstockServer

KILLS = 2
ACKNOWLEDGED_BEFORE_KILL = 2_000


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="default"),
        pytest.param({"log.flush.interval.messages": "1"}, id="flush-every-message", marks=pytest.mark.long),
        pytest.param({"log.segment.bytes": "1048576"}, id="many-rolls", marks=pytest.mark.long),
    ],
)
def test_kill_under_load_loses_nothing_acknowledged_and_repeats_nothing(settings: dict[str, str]) -> None:
    with PenstockServer(settings) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
        acknowledged: dict[int, list[int]] = {0: [], 1: []}
        sent = 0

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged[message.partition() or 0].append(int((message.value() or b"")[:12]))

        producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        for _ in range(KILLS):
            goal = sum(map(len, acknowledged.values())) + ACKNOWLEDGED_BEFORE_KILL
            while sum(map(len, acknowledged.values())) < goal:
                for _ in range(100):
                    producer.produce("t", b"%012d" % sent + b"x" * 200, partition=sent % 2, on_delivery=report)
                    sent += 1
                producer.poll(0.01)
            server.kill()
            server.start()
        assert producer.flush(60) == 0
        assert sum(map(len, acknowledged.values())) == sent

        stored = read_all(server.bootstrap, "t", sent)
        for partition in (0, 1):
            assert stored[partition] == [number for number in range(sent) if number % 2 == partition]


def read_all(bootstrap: str, topic: str, count: int) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in (0, 1)])
    found: dict[int, list[int]] = {0: [], 1: []}
    try:
        while sum(map(len, found.values())) < count:
            batch = consumer.consume(5_000, timeout=15)
            assert batch, f"only {sum(map(len, found.values()))} of {count} are there"
            for message in batch:
                assert message.error() is None
                found[message.partition() or 0].append(int((message.value() or b"")[:12]))
    finally:
        consumer.close()
    return found

"""What an idempotent producer does when a batch fails while others are under way: sends them again, and how.

A broker stores a batch once for each producer epoch and sequence. If a client gives a batch a new epoch without knowing
whether it was stored, it is stored twice, and no broker can tell. librdkafka does so (confluentinc/librdkafka#4953),
Java does not. docs/reference/client.md says so: when the second test fails, change that.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.chaos.copies import Blame
from penstock.chaos.ledger import Ledger, decode, encode
from penstock.chaos.load import Load
from support import java
from support.penstock import PenstockServer
from support.ports import free_ports
from support.produce_proxy import HELD, LOST, OVER, ProduceProxy
from support.server_process import die_with_parent

TOPIC = "t"
SOURCE = Path(java.__file__).parent / "java_sources" / "NumberedProducer.java"
STORED = [(0, b"first"), (0, b"warm-up"), (0, b"third"), (1, b"second"), (1, b"warm-up")]

Send = Callable[[int, bytes], None]


@contextmanager
def proxied() -> Iterator[tuple[ProduceProxy, str]]:
    """A broker that clients reach through the proxy alone."""
    (port,) = free_ports(1)
    server = PenstockServer({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    with ProduceProxy(port, int(server.bootstrap.rpartition(":")[2])) as proxy, server:
        bootstrap = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
        yield proxy, bootstrap


def go_through(proxy: ProduceProxy, send: Send, values: tuple[bytes, ...] = (b"first", b"second", b"third")) -> None:
    """The first is not stored, the second is and the client does not know, the third must wait for the first."""
    first, second, third = values
    proxy.arm()
    send(0, first)
    proxy.await_step(HELD)
    send(1, second)
    proxy.await_step(LOST)
    send(0, third)
    proxy.await_step(OVER)


def stored(bootstrap: str) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(2)])
    found, ends = [], 0
    while ends < 2:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ends += 1
        else:
            found.append((message.partition() or 0, (message.value() or b"").strip()))
    consumer.close()
    return sorted(found)


@pytest.mark.long
def test_java_stores_a_batch_once_though_another_was_out_of_order() -> None:
    if reason := java.unavailable():
        pytest.skip(reason)
    with proxied() as (proxy, bootstrap):
        properties = [f"bootstrap.servers={bootstrap}", "linger.ms=0", "retry.backoff.ms=100"]
        process = subprocess.Popen(
            [*die_with_parent(), *java.command(SOURCE, heap="128M"), TOPIC, *properties],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None

        def send(partition: int, value: bytes) -> None:
            assert process.stdin is not None
            process.stdin.write(f"0 {partition} {value.decode()}\n")

        for partition in range(2):
            send(partition, b"warm-up")
        for _ in range(2):
            process.stdout.readline()
        go_through(proxy, send)
        process.stdin.close()
        offsets = [int(line.split()[2]) for line in process.stdout]
        assert process.wait(60) == 0
        assert len(offsets) == 3
        assert -1 not in offsets
        assert stored(bootstrap) == sorted(STORED)


def test_librdkafka_stores_it_twice() -> None:
    with proxied() as (proxy, bootstrap):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 100}
        )
        failed: list[object] = []

        def send(partition: int, value: bytes) -> None:
            producer.produce(
                TOPIC, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)

        for partition in range(2):
            send(partition, b"warm-up")
        assert producer.flush(30) == 0
        go_through(proxy, send)
        assert producer.flush(60) == 0
        assert failed == []
        assert stored(bootstrap) == sorted([*STORED, (1, b"second")])


def test_chaos_tells_that_it_was_the_client_with_the_epochs_as_evidence() -> None:
    with proxied() as (proxy, bootstrap):
        load = Load(
            {"bootstrap.servers": bootstrap}, TOPIC, "unused", partitions=2, producers=1, members=1, rate=1,
            value_bytes=0, group_protocol="classic",
        )  # fmt: skip
        ledger = load.ledger = Ledger(2)  # without the readers, which are not started
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 100}
        )

        def send(partition: int, value: bytes) -> None:
            name = decode(value)
            assert name is not None

            def delivered(error: KafkaError | None, message: Message) -> None:
                load.delivered(name, partition, None if error is not None else message.offset())

            producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
            producer.poll(0)

        for partition in range(2):
            send(partition, encode(ledger.sent(0, partition)))
        assert producer.flush(30) == 0
        first, second, third = (ledger.sent(0, partition) for partition in (0, 1, 0))
        go_through(proxy, send, (encode(first), encode(second), encode(third)))
        assert producer.flush(60) == 0
        ends = load.ends()
        verdict = ledger.judge(load.stored(ends), lambda: load.stamps(ends))
        assert verdict.holds, verdict
        assert verdict.counts.resent == 1
        (run,) = verdict.copies
        assert (run.blame, run.first.partition, run.first.number, run.count) == (Blame.CLIENT, 1, second.number, 1)
        assert run.stamp is not None
        assert run.stamp_again is not None
        assert run.stamp_again.producer_id == run.stamp.producer_id
        assert run.stamp_again.epoch == run.stamp.epoch + 1

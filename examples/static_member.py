"""A worker with a name of its own: it may restart, and the group waits for it instead of sharing its partitions out.

For workers that hold state per partition (a cache, files) which is dear to move. The price: when one is gone for good,
its partitions wait until its session is over.
"""

from __future__ import annotations

import argparse
import signal

from confluent_kafka import Consumer, KafkaException, TopicPartition

parser = argparse.ArgumentParser(description="A worker that restarts without a rebalance of its group.")
parser.add_argument("--bootstrap", default="127.0.0.1:9092")
parser.add_argument("--topic", default="orders")
parser.add_argument("--group", default="shipping-static")
parser.add_argument("--name", required=True, help="the worker's own; no two may run with the same")
options = parser.parse_args()
running = True


def stop(*_: object) -> None:
    global running
    running = False


def gained(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    print(f"{options.name} gained {sorted(partition.partition for partition in partitions)}", flush=True)


def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    print(f"{options.name} lost {sorted(partition.partition for partition in partitions)}", flush=True)


signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
consumer = Consumer(
    {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "group.instance.id": options.name,
        "session.timeout.ms": 45_000,  # a restart has to be quicker than this
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
consumer.subscribe([options.topic], on_assign=gained, on_revoke=lost)
try:
    while running:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.fatal():  # another worker with the same name has taken over
                raise SystemExit(f"{options.name}: {error}")
            continue
        print(f"{options.name} {message.topic()}[{message.partition()}]@{message.offset()}", flush=True)
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException as problem:
            print(f"{options.name} not committed: {problem}", flush=True)
finally:
    consumer.close()  # a named worker does not leave its group by this

"""A worker of a group: start it in as many terminals as you like, and they share the topic's partitions.

It commits after the work is done ("at least once"): a worker that is killed leaves work that another one does again,
but none that nobody does. Make the work such that doing it twice does no harm.
"""

from __future__ import annotations

import argparse
import signal

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

parser = argparse.ArgumentParser(description="A worker of a group that shares a topic's partitions.")
parser.add_argument("--bootstrap", default="127.0.0.1:9092")
parser.add_argument("--topic", default="orders")
parser.add_argument("--group", default="shipping")
parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic")
COMMIT_EVERY_RECORDS = 50


def work(message: Message) -> None:
    """Whatever is to be done for one record; if it raises, the record is not committed."""
    print(f"{message.topic()}[{message.partition()}]@{message.offset()}: {message.value().decode()}", flush=True)


class Worker:
    def __init__(self, options: argparse.Namespace) -> None:
        self.topic = options.topic
        self.running = True
        self.done: dict[tuple[str, int], int] = {}
        settings = {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "group.protocol": options.protocol,
            "auto.offset.reset": "earliest",  # where a group begins that has committed nothing yet
            "enable.auto.commit": False,  # commits say "done", and only this program knows what is done
        }
        if options.protocol == "classic":
            # Partitions that stay with their worker go on while others move (KIP-429).
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        self.consumer = Consumer(settings)

    def run(self) -> None:
        self.consumer.subscribe([self.topic], on_assign=self.gained, on_revoke=self.giving_back, on_lost=self.lost)
        try:
            while self.running:
                message = self.consumer.poll(0.5)
                if message is None:
                    self.commit()
                elif message.error():
                    print(f"waiting: {message.error()}", flush=True)
                else:
                    work(message)
                    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
                    self.done[topic, partition] = offset + 1
                    if offset % COMMIT_EVERY_RECORDS == 0:
                        self.commit()
        finally:
            self.commit()
            self.consumer.close()  # leaves the group, so that the others need not wait for the session to end

    def commit(self) -> None:
        if not self.done:
            return
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in self.done.items()]
        try:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            # The broker is away, or this worker was thrown out of the group: the work may be done again.
            print(f"not committed yet: {problem}", flush=True)
        else:
            self.done.clear()

    def gained(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        print(f"gained {sorted(partition.partition for partition in partitions)}", flush=True)

    def giving_back(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.commit()  # before another worker starts where this one left off
        self.lost(consumer, partitions)

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.done.pop((partition.topic, partition.partition), None)
        print(f"lost {sorted(partition.partition for partition in partitions)}", flush=True)

    def stop(self, *_: object) -> None:
        self.running = False


worker = Worker(parser.parse_args())
signal.signal(signal.SIGINT, worker.stop)
signal.signal(signal.SIGTERM, worker.stop)
worker.run()

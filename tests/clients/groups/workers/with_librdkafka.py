"""A member of a group through librdkafka: processes, then commits; also before it gives a partition away."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from report import Orders

COMMIT_EVERY_RECORDS = 20


class Member:
    def __init__(self, orders: Orders) -> None:
        self.orders, self.report = orders, orders.report
        self.done: dict[int, int] = {}
        settings = orders.settings
        config = {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "client.id": settings["member"],
            "group.protocol": settings["protocol"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if settings["protocol"] == "consumer":
            config["group.remote.assignor"] = settings["assignor"]
        else:
            config["partition.assignment.strategy"] = settings["assignor"]
            config["session.timeout.ms"] = settings["session_timeout_ms"]
            config["heartbeat.interval.ms"] = settings["heartbeat_interval_ms"]
        if "instance_id" in settings:
            config["group.instance.id"] = settings["instance_id"]
        self.consumer = Consumer(config)

    def run(self) -> None:
        self.consumer.subscribe(
            [self.orders.settings["topic"]], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )
        while not self.orders.stopping:
            message = self.consumer.poll(0.05)
            if message is None:
                self.commit()
            elif (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
            else:
                partition, offset = message.partition() or 0, message.offset() or 0
                self.report.processed(partition, offset, message.value())
                self.done[partition] = offset + 1
                if offset % COMMIT_EVERY_RECORDS == 0:
                    self.commit()
        self.commit()
        self.consumer.close()

    def commit(self) -> None:
        if not self.done:
            return
        topic = self.orders.settings["topic"]
        offsets = [TopicPartition(topic, partition, offset) for partition, offset in self.done.items()]
        try:
            committed = self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            # A coordinator that moves or restarts, a rebalance: the next commit has these offsets too.
            print("commit:", problem, flush=True)
            return
        for partition in committed:
            if partition.error is None:
                self.report.committed(partition.partition, partition.offset)
        self.done.clear()

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.report.gained([partition.partition for partition in partitions])

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.commit()
        self.lost(consumer, partitions)

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.done.pop(partition.partition, None)
        self.report.lost([partition.partition for partition in partitions])


if __name__ == "__main__":
    orders = Orders()
    try:
        Member(orders).run()
    except KafkaException as problem:
        fenced = isinstance(problem.args[0], KafkaError) and problem.args[0].code() == KafkaError._FENCED
        orders.report.failed("fenced" if fenced else problem)
        sys.exit(1)

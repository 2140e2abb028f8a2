"""A table in a topic: python table.py set KEY VALUE | delete KEY | show

The topic is compacted: of every key the newest value stays, for ever, and a record without a value (a "tombstone")
deletes its key. Whoever reads the topic from its beginning has the table, and who reads on has every change to it.
"""

from __future__ import annotations

import argparse

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

parser = argparse.ArgumentParser(description="A table in a compacted topic.")
parser.add_argument("--bootstrap", default="127.0.0.1:9092")
parser.add_argument("--topic", default="temperatures")
commands = parser.add_subparsers(dest="command", required=True)
setting = commands.add_parser("set", help="write a row")
setting.add_argument("key")
setting.add_argument("value")
deleting = commands.add_parser("delete", help="delete a row")
deleting.add_argument("key")
commands.add_parser("show", help="print the table")
PARTITIONS = 3


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    compacted = NewTopic(topic, PARTITIONS, 1, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([compacted])[topic].result()
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def write(bootstrap: str, topic: str, key: str, value: str | None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(topic, key=key, value=value)
    if producer.flush(30):
        raise SystemExit(f"{bootstrap} did not take the record within 30 seconds")


def read(bootstrap: str, topic: str) -> dict[str, str]:
    """Reads the topic from its beginning to where it ends now. No group is needed: every reader reads everything."""
    table: dict[str, str] = {}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True})
    partitions = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    unread = len(partitions)
    while unread:
        message = consumer.poll(1)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            unread -= 1
        elif message.value() is None:
            table.pop(message.key().decode(), None)
        else:
            table[message.key().decode()] = message.value().decode()
    consumer.close()
    return table


options = parser.parse_args()
create(options.bootstrap, options.topic)
match options.command:
    case "set":
        write(options.bootstrap, options.topic, options.key, options.value)
    case "delete":
        write(options.bootstrap, options.topic, options.key, None)
    case "show":
        for key, value in sorted(read(options.bootstrap, options.topic).items()):
            print(f"{key} = {value}")

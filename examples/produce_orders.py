"""Writes orders, for the other examples to work on: python produce_orders.py --count 1000

Orders of one customer have the customer as their key, so they are in one partition and stay in order.
"""

from __future__ import annotations

import argparse
import json

from confluent_kafka import KafkaError, Message, Producer

parser = argparse.ArgumentParser(description="Writes orders, for the other examples to work on.")
parser.add_argument("--bootstrap", default="127.0.0.1:9092")
parser.add_argument("--topic", default="orders")
parser.add_argument("--count", type=int, default=100)
options = parser.parse_args()

stored = 0


def delivered(error: KafkaError | None, message: Message) -> None:
    """Called once per record, when the broker has it or when the producer has given up."""
    global stored
    if error is not None:
        raise SystemExit(f"order {message.key()!r} was not stored: {error}")
    stored += 1


# Idempotence makes a record that had to be sent twice be stored once.
producer = Producer({"bootstrap.servers": options.bootstrap, "enable.idempotence": True})
for number in range(options.count):
    order = {"order": number, "customer": f"customer-{number % 20}", "items": number % 5 + 1}
    while True:
        try:
            producer.produce(options.topic, key=str(order["customer"]), value=json.dumps(order), on_delivery=delivered)
            break
        except BufferError:
            producer.poll(0.1)  # more is waiting than the producer may hold: let it send
    producer.poll(0)
producer.flush()
print(f"stored {stored} orders in {options.topic}")

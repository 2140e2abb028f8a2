"""Invoices for orders, each exactly once, whatever is killed and when: from one topic to another, in transactions.

The invoices and the offsets of the orders commit together. Kill it with `kill -9` and start it again with the same
name: readers of committed records (the default of `penstock.client` and `penstock consume`) see one invoice per order.

    python examples/read_process_write.py --name billing-1
    python examples/read_process_write.py --name billing-2       a second worker shares the partitions
"""

from __future__ import annotations

import argparse
import json
import signal
import time

from confluent_kafka import Message

from penstock.client import Consumer, Producer, ProducerFenced, TransactionAborted, TransactionFatal

parser = argparse.ArgumentParser(description="Writes an invoice for each order, exactly once.")
parser.add_argument("--bootstrap", default="127.0.0.1:9092")
parser.add_argument("--topic", default="orders")
parser.add_argument("--to", default="invoices")
parser.add_argument("--group", default="billing")
parser.add_argument("--name", default="billing-1", help="of this worker; two that run at a time need two names")
parser.add_argument("--batch", type=int, default=100, help="records of a transaction, at most")

running = True


def stop(*_: object) -> None:
    global running
    running = False


def invoice(order: Message) -> str:
    return json.dumps({"invoice": json.loads(order.value() or b"{}")["order"]})


def work(options: argparse.Namespace) -> None:
    """Reads, processes and writes until stopped. Raises TransactionFatal if this producer cannot continue."""
    settings = {
        "auto.offset.reset": "earliest",
        "max.poll.records": options.batch,
        "group.instance.id": options.name,  # a successor with this name gets the same partitions at once
    }
    with (
        Producer(options.bootstrap, transactional_id=options.name, transaction_timeout_ms=10_000) as producer,
        Consumer(options.bootstrap, options.topic, options.group, settings) as consumer,
    ):
        producer.init_transactions()
        while running:
            orders = consumer.poll(0.25)
            if not orders:
                continue
            try:
                with producer.transaction(consumer):
                    for order in orders:
                        producer.send(options.to, invoice(order), order.key())
                print(f"committed {len(orders)}", flush=True)
            except TransactionAborted as aborted:
                if aborted.permanent:
                    raise  # the same records would fail again
                print(f"aborted: {aborted}", flush=True)  # the next poll delivers the same orders again
                time.sleep(0.1)


def main(options: argparse.Namespace) -> None:
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    while running:
        try:
            work(options)
        except ProducerFenced:
            raise SystemExit(f"another worker with the name {options.name} has taken over") from None
        except TransactionFatal as failed:
            # A new producer learns the outcome, and a new consumer begins at what was committed.
            print(f"starting over: {failed}", flush=True)


main(parser.parse_args())

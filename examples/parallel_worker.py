"""A worker that does sixteen orders at a time, those of a customer one after another, and none of them twice.

It commits only what is finished. Orders that cannot be worked on are tried three times and then put aside, in another
topic.
"""

from __future__ import annotations

import argparse
import signal
import sys

from confluent_kafka import Message

from penstock.client import Consumer, DeadLetters, Idempotent, Processor, Producer, RecentIds, serve_metrics

parser = argparse.ArgumentParser(description="A worker that does several orders at a time.")
parser.add_argument("--bootstrap", default="127.0.0.1:9092")
parser.add_argument("--topic", default="orders")
parser.add_argument("--group", default="shipping-parallel")
parser.add_argument("--workers", type=int, default=16)
parser.add_argument("--metrics", default="127.0.0.1:0", help="where Prometheus finds the metrics")


def work(message: Message) -> None:
    """Whatever is to be done for one record."""
    order = (message.value() or b"").decode()
    # In one piece: print writes the end of the line by itself, and other workers may come in between.
    sys.stdout.write(f"{message.topic()}[{message.partition()}]@{message.offset()}: {order}\n")
    sys.stdout.flush()


def main(options: argparse.Namespace) -> None:
    with (
        Producer(options.bootstrap) as producer,
        Consumer(options.bootstrap, options.topic, options.group, auto_offset_reset="earliest") as consumer,
        serve_metrics(options.metrics, consumer.metrics, producer.metrics) as metrics,
    ):
        print(f"metrics at {metrics.url}", flush=True)
        processor = Processor(
            consumer,
            Idempotent(work, RecentIds(100_000)),
            workers=options.workers,
            attempts=3,
            on_failure=DeadLetters(producer, f"{options.topic}.dead"),
        )
        signal.signal(signal.SIGINT, lambda *_: processor.stop())
        signal.signal(signal.SIGTERM, lambda *_: processor.stop())
        processor.run()


main(parser.parse_args())

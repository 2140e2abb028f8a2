"""What penstock.client costs over bare confluent-kafka: the same loop, the same settings, the same broker.

    python -m bench.client_layer                    # --help names what can be chosen

Sides alternate; the median of the ratios within each round counts. Records a second and CPU of the client for a record
are told: on a machine with few cores the broker takes part of the first, but none of the second.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from penstock.client import AsyncConsumer, AsyncProducer, Consumer, Producer
from penstock.client.options import consumer_options, producer_options
from support.penstock import PenstockServer

PARTITIONS = 6
KEYS = [b"key-%d" % number for number in range(1000)]
TOPIC = "layer"


class Sample:
    def __init__(self, records: int, elapsed_s: float, cpu_s: float) -> None:
        self.per_s = records / elapsed_s
        self.cpu_us = cpu_s / records * 1e6


def measured(records: int, run: Callable[[], None]) -> Sample:
    started_s, cpu_s = time.perf_counter(), time.process_time()
    run()
    return Sample(records, time.perf_counter() - started_s, time.process_time() - cpu_s)


def native(properties: dict[str, Any], *, producer: bool) -> dict[str, Any]:
    """The layer's settings, for the bare client."""
    options = (producer_options if producer else consumer_options)("unused", properties, {})
    return {**options.native, "bootstrap.servers": properties["bootstrap.servers"]}


def bare_produce(bootstrap: str, count: int, value: bytes, settings: dict[str, Any]) -> Sample:
    failures: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = confluent_kafka.Producer(native({"bootstrap.servers": bootstrap, **settings}, producer=True))
    producer.list_topics(TOPIC)

    def run() -> None:
        for number in range(count):
            while True:
                try:
                    producer.produce(TOPIC, value, KEYS[number % 1000], on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()

    sample = measured(count, run)
    assert not failures
    return sample


def layer_produce(bootstrap: str, count: int, value: bytes, settings: dict[str, Any]) -> Sample:
    with Producer(bootstrap, settings) as producer:
        producer.native.list_topics(TOPIC)

        def run() -> None:
            for number in range(count):
                producer.send(TOPIC, value, KEYS[number % 1000])
            producer.flush()

        return measured(count, run)


def async_produce(bootstrap: str, count: int, value: bytes, settings: dict[str, Any]) -> Sample:
    async def main() -> Sample:
        async with AsyncProducer(bootstrap, settings) as producer:
            producer.native.list_topics(TOPIC)
            started_s, cpu_s = time.perf_counter(), time.process_time()
            for number in range(count):
                await producer.send(TOPIC, value, KEYS[number % 1000])
            await producer.flush()
            return Sample(count, time.perf_counter() - started_s, time.process_time() - cpu_s)

    return asyncio.run(main())


def bare_consume(bootstrap: str, count: int, value: bytes, settings: dict[str, Any]) -> Sample:
    properties = {"bootstrap.servers": bootstrap, "group.id": "bare", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(native(properties, producer=False))
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])

    def run() -> None:
        left = count
        while left:
            for message in consumer.consume(min(500, left), 1.0):
                if message.error() is None:
                    message.value()
                    left -= 1

    try:
        return measured(count, run)
    finally:
        consumer.close()


def layer_consume(bootstrap: str, count: int, value: bytes, settings: dict[str, Any]) -> Sample:
    with Consumer(bootstrap, group="layer", auto_offset_reset="earliest") as consumer:
        consumer.assign({(TOPIC, number): 0 for number in range(PARTITIONS)})

        def run() -> None:
            left = count
            for message in consumer:
                message.value()
                left -= 1
                if not left:
                    return

        return measured(count, run)


def async_consume(bootstrap: str, count: int, value: bytes, settings: dict[str, Any]) -> Sample:
    async def main() -> Sample:
        async with AsyncConsumer(bootstrap, group="async", auto_offset_reset="earliest") as consumer:
            await consumer.assign({(TOPIC, number): 0 for number in range(PARTITIONS)})
            started_s, cpu_s, left = time.perf_counter(), time.process_time(), count
            async for message in consumer:
                message.value()
                left -= 1
                if not left:
                    break
            return Sample(count, time.perf_counter() - started_s, time.process_time() - cpu_s)

    return asyncio.run(main())


CASES = ((bare_produce, layer_produce, async_produce), (bare_consume, layer_consume, async_consume))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=1000, help="of a value")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-bytes", type=int, default=16_384, help="batch.size of both sides")
    given = parser.parse_args()
    console = Console()
    value = b"v" * given.bytes
    settings = {"batch.size": given.batch_bytes}
    table = Table("", "records/s", "CPU µs a record", "of bare: records/s", "of bare: CPU")
    with PenstockServer() as server, Progress(console=console, transient=True) as progress:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
        task = progress.add_task("", total=len(CASES) * 3 * (given.rounds + 1))
        for sides in CASES:
            rounds: list[list[Sample]] = []
            for number in range(given.rounds + 1):
                samples = []
                for side in sides:
                    progress.update(task, description=side.__name__, advance=1)
                    samples.append(side(server.bootstrap, given.records, value, settings))
                if number:  # the first one warms up
                    rounds.append(samples)
            for index, side in enumerate(sides):
                mine = [samples[index] for samples in rounds]
                speed = statistics.median(samples[index].per_s / samples[0].per_s for samples in rounds)
                cpu = statistics.median(samples[index].cpu_us / samples[0].cpu_us for samples in rounds)
                table.add_row(
                    side.__name__.replace("_", " "), f"{statistics.median(one.per_s for one in mine):,.0f}",
                    f"{statistics.median(one.cpu_us for one in mine):.2f}", f"{speed:.2f} ×", f"{cpu:.2f} ×",
                )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()

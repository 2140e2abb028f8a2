"""A worker for asyncio: up to MANY records are worked on at the same time, and committed when all of them are done."""

from __future__ import annotations

import argparse
import asyncio
import signal

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError

parser = argparse.ArgumentParser(description="An asyncio worker of a group.")
parser.add_argument("--bootstrap", default="127.0.0.1:9092")
parser.add_argument("--topic", default="orders")
parser.add_argument("--group", default="shipping-async")
MANY = 20


async def work(record: ConsumerRecord) -> None:
    """A call to a database or a web service, say."""
    await asyncio.sleep(0.01)
    print(f"{record.topic}[{record.partition}]@{record.offset}: {record.value.decode()}", flush=True)


async def main(options: argparse.Namespace) -> None:
    consumer = AIOKafkaConsumer(
        options.topic,
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    await consumer.start()
    try:
        while not ending.is_set():
            batches = await consumer.getmany(timeout_ms=500, max_records=MANY)
            await asyncio.gather(*(work(record) for records in batches.values() for record in records))
            done = {partition: records[-1].offset + 1 for partition, records in batches.items()}
            if done:
                try:
                    await consumer.commit(done)
                except KafkaError as problem:
                    # The partitions may be another worker's by now, who does these records again.
                    print(f"not committed: {problem!r}", flush=True)
    finally:
        await consumer.stop()


asyncio.run(main(parser.parse_args()))

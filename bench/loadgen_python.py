"""The load generator where there is no C compiler: the options and answers of `loadgen.c`, in Python.

It is slower, and what it takes from the shared cores is missing to the broker, so its figures compare the sides with
each other but not with figures of the other client.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
    libversion,
)

CHUNK_MESSAGES = 1000
STALL_TIMEOUT_S = 120
FIRST_TIMEOUT_S = 180
_STAMP = struct.Struct("<qq")


class Deliveries:
    """Counts delivery reports, and keeps the time of the first."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.first_error = ""
        self.first_at_ns = 0

    def on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error.str()
            return
        if self.delivered == 0:
            self.first_at_ns = time.monotonic_ns()
        self.delivered += 1

    @property
    def settled(self) -> int:
        return self.delivered + self.failed


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    {"produce": _produce, "consume": _consume, "latency": _latency, "first": _first}[options.mode](options)


def _produce(options: argparse.Namespace) -> None:
    values = _payloads(options)
    deliveries = Deliveries()
    producer = Producer(_configuration(options, "P"))
    warmup = 0 if options.run else 1
    if warmup:
        producer.produce(options.topic, values[0], on_delivery=deliveries.on_delivery)
        _await(producer, deliveries, 1)
        if deliveries.failed:
            _die(f"first message: {deliveries.first_error}")
    _ready_then_go()
    cpu_before_s, start_s = _cpu_s(), time.monotonic()
    for first in range(0, options.messages, CHUNK_MESSAGES):
        numbers = range(first, min(first + CHUNK_MESSAGES, options.messages))
        chunk: list[dict[str, object]] = [{"value": values[number % len(values)]} for number in numbers]
        if options.run:
            for number, message in zip(numbers, chunk, strict=True):
                message["partition"] = number // options.run % options.partitions
        while chunk:
            try:
                producer.produce_batch(options.topic, chunk, on_delivery=deliveries.on_delivery)
            except BufferError:
                producer.poll(0.01)
                continue
            # The queue was full for these: keep them, in their order, until there is room.
            chunk = [{k: v for k, v in message.items() if k != "_error"} for message in chunk if "_error" in message]
            producer.poll(0.01 if chunk else 0)
    _await(producer, deliveries, warmup + options.messages)
    messages = deliveries.delivered - warmup
    _say(
        messages=messages, failed=deliveries.failed, bytes=messages * options.size,
        elapsed_s=time.monotonic() - start_s, client_cpu_s=_cpu_s() - cpu_before_s, first_error=deliveries.first_error,
    )  # fmt: skip


def _consume(options: argparse.Namespace) -> None:
    consumer = _consumer(options)
    _ready_then_go()
    cpu_before_s, start_s = _cpu_s(), time.monotonic()
    consumer.assign([TopicPartition(options.topic, number, OFFSET_BEGINNING) for number in range(options.partitions)])
    messages = total_bytes = 0
    while messages < options.messages:
        chunk = consumer.consume(CHUNK_MESSAGES, timeout=STALL_TIMEOUT_S)
        if not chunk:
            _die("stalled: no message for too long")
        for message in chunk:
            if error := message.error():
                _die(f"consume: {error}")
            messages += 1
            total_bytes += len(message.value() or b"")
    _say(
        messages=messages, failed=0, bytes=total_bytes,
        elapsed_s=time.monotonic() - start_s, client_cpu_s=_cpu_s() - cpu_before_s,
    )  # fmt: skip


def _latency(options: argparse.Namespace) -> None:
    values = _payloads(options)
    deliveries = Deliveries()
    producer, consumer = Producer(_configuration(options, "P")), _consumer(options)
    warmup = options.rate * options.warmup
    total = warmup + options.rate * options.duration
    latencies_ms: list[float] = []
    came_through, finished = threading.Event(), threading.Event()

    def receive() -> None:
        while not finished.is_set():
            message = consumer.poll(0.1)
            at_ns = time.monotonic_ns()
            if message is None or message.error():
                continue
            sequence, sent_at_ns = _STAMP.unpack_from(message.value() or b"")
            came_through.set()
            if sequence >= warmup:
                latencies_ms.append((at_ns - sent_at_ns) / 1e6)

    def serve() -> None:
        while not finished.is_set():
            producer.poll(0.1)

    def send(sequence: int) -> None:
        value = _STAMP.pack(sequence, time.monotonic_ns()) + values[sequence % len(values)][_STAMP.size :]
        producer.produce(options.topic, value, partition=0, on_delivery=deliveries.on_delivery)

    consumer.assign([TopicPartition(options.topic, 0, OFFSET_END)])
    threads = [threading.Thread(target=receive), threading.Thread(target=serve)]
    for thread in threads:
        thread.start()
    try:
        deadline_s = time.monotonic() + STALL_TIMEOUT_S
        while not came_through.wait(0.05):
            send(-1)
            if time.monotonic() > deadline_s:
                _die("stalled: no probe came through")
        _ready_then_go()
        cpu_before_s, start_s = _cpu_s(), time.monotonic()
        for sequence in range(total):
            time.sleep(max(0.0, start_s + sequence / options.rate - time.monotonic()))
            send(sequence)
        producer.flush(10)
        patience_s = time.monotonic() + 10
        while len(latencies_ms) < total - warmup and time.monotonic() < patience_s:
            time.sleep(0.001)
    finally:
        finished.set()
        for thread in threads:
            thread.join()
    cuts = statistics.quantiles(latencies_ms, n=1000, method="inclusive")
    _say(
        messages=len(latencies_ms), missing=total - warmup - len(latencies_ms), failed=deliveries.failed,
        elapsed_s=time.monotonic() - start_s, client_cpu_s=_cpu_s() - cpu_before_s,
        p50_ms=cuts[499], p90_ms=cuts[899], p99_ms=cuts[989], p999_ms=cuts[998], max_ms=max(latencies_ms),
    )  # fmt: skip


def _first(options: argparse.Namespace) -> None:
    deliveries = Deliveries()
    producer = Producer(_configuration(options, "P"))
    _ready_then_go()
    producer.produce(options.topic, _payloads(options)[0], on_delivery=deliveries.on_delivery)
    deadline_s = time.monotonic() + FIRST_TIMEOUT_S
    while not deliveries.settled and time.monotonic() < deadline_s:
        producer.poll(0.01)
    if not deliveries.delivered:
        _die(f"first message: {deliveries.first_error or 'not acknowledged in time'}")
    _say(acknowledged_at_ns=deliveries.first_at_ns)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["produce", "consume", "latency", "first"])
    parser.add_argument("-t", dest="topic", required=True)
    parser.add_argument("-f", dest="payloads", type=Path)
    names = ["messages", "size", "partitions", "run", "rate", "warmup", "duration"]
    for letter, name in zip("nsprRwd", names, strict=True):
        parser.add_argument(f"-{letter}", dest=name, type=int, default=0)
    for letter in "XPC":
        parser.add_argument(f"-{letter}", action="append", default=[])
    return parser.parse_args(arguments)


def _configuration(options: argparse.Namespace, letter: str) -> dict[str, str | int | float | bool]:
    given: list[str] = options.X + getattr(options, letter)
    return {name: value for name, _, value in (one.partition("=") for one in given)}


def _consumer(options: argparse.Namespace) -> Consumer:
    # The Python client wants a group even where partitions are assigned by hand; it is never joined.
    return Consumer({"group.id": "bench", "enable.auto.commit": False, **_configuration(options, "C")})


def _payloads(options: argparse.Namespace) -> list[bytes]:
    data: bytes = options.payloads.read_bytes()
    return [data[at : at + options.size] for at in range(0, len(data) - options.size + 1, options.size)]


def _await(producer: Producer, deliveries: Deliveries, count: int) -> None:
    seen, seen_at_s = -1, time.monotonic()
    while deliveries.settled < count:
        producer.poll(0.1)
        if deliveries.settled != seen:
            seen, seen_at_s = deliveries.settled, time.monotonic()
        elif time.monotonic() - seen_at_s > STALL_TIMEOUT_S:
            _die("stalled: no delivery report for too long")


def _ready_then_go() -> None:
    _say(event="ready", librdkafka=libversion()[0])
    if not sys.stdin.readline():
        sys.exit(0)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def _die(why: str) -> NoReturn:
    _say(error=why)
    sys.exit(1)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KafkaException as error:
        _die(str(error))

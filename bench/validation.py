"""What it costs a broker to check every record: the same batches with full validation and with headers alone.

Each request is one batch of 1,000 records of 1 KB, made beforehand and sent again and again over raw sockets, so that
nearly all of the work is the broker's. Kafka always checks every record; its figure stands beside the first.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import cycle, islice

from bench import processes, wire
from bench.client import LoadFailed
from bench.model import Better, Case, Metric, Sample, Side
from bench.payloads import RECORD_BYTES, records
from bench.runner import Bench
from bench.topics import create_topics, delete_topic
from penstock.wire.compression import Codec
from penstock.wire.records import Record, build_batch
from support.server_process import ServerProcess

PROPERTY = "penstock.produce.validation"
PARTITIONS = 4
RECORDS_PER_BATCH = 1_000
BATCHES = 8
"""Different ones, so that the broker does not find all of a batch in its processor's cache."""
REQUESTS = 2_000
IN_FLIGHT_MAX = 4
STALL_TIMEOUT_S = 60
GB = 1e9


class Validation(Case):
    metrics = (
        Metric("cpu_s_per_gb", "broker CPU, every record checked", "s/GB", Better.LOWER, digits=3),
        Metric("header_cpu_s_per_gb", "broker CPU, headers alone", "s/GB", Better.LOWER, digits=3),
        Metric("ratio", "the one to the other", "", Better.LOWER, digits=3),
    )
    under_load = True

    def __init__(self, codec: Codec) -> None:
        self.name = f"produce-validation-{codec.name.lower()}"
        self.title = f"produce 1 KB, batches of 1 MB, {codec.name.lower()}: checking every record"
        self._codec = codec

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "requests": bench.scaled(REQUESTS),
            "records_per_batch": RECORDS_PER_BATCH,
            "record_bytes": RECORD_BYTES,
            "partitions": PARTITIONS,
            "in_flight": IN_FLIGHT_MAX,
            "acks": "all",
        }

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = bench.shared(side)
        assert broker is not None
        count = bench.scaled(REQUESTS)
        full = cpu_s_per_gb(broker, self._codec, count, {PROPERTY: "full"} if side is Side.PENSTOCK else {})
        if side is not Side.PENSTOCK:
            return {"cpu_s_per_gb": full}
        header = cpu_s_per_gb(broker, self._codec, count, {PROPERTY: "header"})
        return {"cpu_s_per_gb": full, "header_cpu_s_per_gb": header, "ratio": full / header}


def cpu_s_per_gb(broker: ServerProcess, codec: Codec, count: int, config: Mapping[str, str]) -> float:
    """Broker CPU for each gigabyte of records, before compression."""
    topic = f"bench-validation-{codec.name.lower()}"
    create_topics(broker.bootstrap, {topic: PARTITIONS}, config=config)
    try:
        frames = _frames(topic, codec)
        _send_all(broker.bootstrap, frames, len(frames))
        before_s = processes.fine_cpu_s(broker.pid)
        _send_all(broker.bootstrap, frames, count)
        spent_s = processes.fine_cpu_s(broker.pid) - before_s
    finally:
        delete_topic(broker, topic)
    return spent_s / (count * RECORDS_PER_BATCH * RECORD_BYTES / GB)


def _frames(topic: str, codec: Codec) -> list[wire.ProduceFrame]:
    values = cycle(records())
    now_ms = time.time_ns() // 1_000_000
    frames = []
    for number in range(BATCHES):
        sent = [
            Record(timestamp=now_ms + index // 10, value=value)
            for index, value in enumerate(islice(values, RECORDS_PER_BATCH))
        ]
        frames.append(wire.produce_batch_frame(topic, number % PARTITIONS, build_batch(sent, codec=codec)))
    return frames


def _send_all(bootstrap: str, frames: list[wire.ProduceFrame], count: int) -> None:
    with ExitStack() as stack:
        connection = stack.enter_context(wire.connect(bootstrap))
        connection.setblocking(False)
        waiting = islice(cycle(frames), count)
        unsent = memoryview(b"")
        sent = answered = 0
        answers = bytearray()
        size = frames[0].response_bytes
        while answered < count:
            if not unsent and sent < count and sent - answered < IN_FLIGHT_MAX:
                unsent = memoryview(next(waiting).request)
                sent += 1
            readable, writable, _ = select.select([connection], [connection] if unsent else [], [], STALL_TIMEOUT_S)
            if not readable and not writable:
                raise LoadFailed("stalled: no answer for too long")
            if writable:
                unsent = unsent[connection.send(unsent) :]
            if readable:
                received = connection.recv(65_536)
                if not received:
                    raise LoadFailed("the broker closed the connection")
                answers += received
                while len(answers) >= size:
                    code = answers[frames[0].error_code_at : frames[0].error_code_at + 2]
                    if any(code):
                        raise LoadFailed(f"the broker answered with error code {int.from_bytes(code, 'big')}")
                    del answers[:size]
                    answered += 1

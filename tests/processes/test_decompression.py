"""Requests that decompress to gigabytes, sent to a real broker: its memory stays within what its limits say."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.records import Record, build_batch
from support.penstock import PenstockServer
from support.raw_produce import RawProducer

MB = 1 << 20
BOMBS = 40
BOMB_BYTES = 200 * MB
BUDGET_BYTES = 32 * MB
COPIES_MAX = 3
"""As `penstock.decompression.bytes.max` says of itself."""
REST_BYTES = 64 * MB
"""Buffers, and what an allocator keeps."""


@pytest.fixture(scope="module")
def server() -> Iterator[PenstockServer]:
    limits = {"penstock.decompression.bytes.max": str(BUDGET_BYTES)}
    with PenstockServer(limits) as running:
        yield running


@pytest.mark.parametrize("compression_type", ["producer", "uncompressed", "lz4"])
def test_forty_bombs_in_one_request_take_no_more_memory_than_the_budget(
    server: PenstockServer, compression_type: str
) -> None:
    topic = f"bombs-{compression_type}"
    created = NewTopic(topic, BOMBS, 1, config={"compression.type": compression_type})
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([created])[topic].result(30)
    now_ms = time.time_ns() // 1_000_000
    bomb = build_batch([Record(timestamp=now_ms, value=bytes(BOMB_BYTES))], codec=Codec.ZSTD)
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    with RawProducer(server.bootstrap) as producer:
        answers = producer.produce_all(topic, [(index, bomb) for index in range(BOMBS)])
        assert {answer.error_code for answer in answers} == {ErrorCode.MESSAGE_TOO_LARGE}
        assert peak_rss(process.pid) - before < COPIES_MAX * BUDGET_BYTES + REST_BYTES
        fine = build_batch([Record(timestamp=now_ms, value=bytes(MB // 2))], codec=Codec.ZSTD)
        assert producer.produce(topic, fine).error_code == 0


def peak_rss(pid: int) -> int:
    """The most that the process ever had in memory."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024

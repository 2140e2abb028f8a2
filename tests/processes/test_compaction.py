"""A compacted topic in a real process with a real client: compaction under load, kill -9 in the middle of it."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.penstock import PenstockServer

KEYS = 500
SETTINGS = {"log.cleaner.backoff.ms": "50", "log.segment.delete.delay.ms": "100"}
TOPIC = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
VALUE_BYTES = 1_000
NOISE = Random(1).randbytes(1 << 20)
"""So that segments fill up although they are compressed."""
TIMEOUT_S = 60


class Writer:
    """Writes a number into one key after the other, and knows what was acknowledged."""

    def __init__(self, server: PenstockServer) -> None:
        self.sent = 0
        self.acknowledged: dict[bytes, int] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 2,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            at = self.sent * 7_919 % (len(NOISE) - VALUE_BYTES)
            value = b"%012d" % self.sent + NOISE[at : at + VALUE_BYTES]
            self._producer.produce("t", value, key=b"k%d" % (self.sent % KEYS), on_delivery=self._report)
            self.sent += 1
            if not self.sent % 100:
                self._producer.poll(0.001)

    def flush(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0

    def _report(self, error: KafkaError | None, message: Message) -> None:
        assert error is None
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        self.acknowledged[key] = max(self.acknowledged.get(key, -1), int(value[:12]))


def read_table(bootstrap: str) -> tuple[dict[bytes, int], int]:
    """What a consumer that begins at the start has in the end, and how many records that took."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=TIMEOUT_S)
    table: dict[bytes, int] = {}
    found = 0
    last = -1
    while consumer.position([TopicPartition("t", 0)])[0].offset < end:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        key, value, offset = message.key(), message.value(), message.offset()
        assert key is not None
        assert value is not None
        assert offset is not None
        assert offset > last
        last = offset
        table[key] = int(value[:12])
        found += 1
    consumer.close()
    return table, found


def stored_bytes(server: PenstockServer) -> int:
    directory = Path(server.data_dir) / "t-0"
    sizes = []
    for file in directory.glob("*.log"):
        with suppress(FileNotFoundError):  # compaction has just taken it away
            sizes.append(file.stat().st_size)
    return sum(sizes)


def await_small(server: PenstockServer, limit_bytes: int) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while stored_bytes(server) > limit_bytes:
        assert time.monotonic() < deadline_s, f"{stored_bytes(server)} bytes after {TIMEOUT_S} s"
        time.sleep(0.05)


def await_files(server: PenstockServer, writer: Writer, pattern: str) -> None:
    """Until a compaction is under way: it writes, or has just put something in its place.

    One may have come and gone before anyone looked: what is written meanwhile makes for another.
    """
    directory = Path(server.data_dir) / "t-0"
    deadline_s = time.monotonic() + TIMEOUT_S
    for look in count():
        if any(directory.glob(pattern)):
            return
        assert time.monotonic() < deadline_s, f"no compaction within {TIMEOUT_S} s"
        if look % 100 == 99:
            writer.write(100)
        time.sleep(0.0005)


@pytest.mark.parametrize("kills", [0, 4])
def test_a_table_is_kept_through_compaction_and_kills(kills: int) -> None:
    with PenstockServer(SETTINGS) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config=TOPIC)])["t"].result(60)
        writer = Writer(server)
        for round_number in range(5):
            writer.write(5_000)
            if round_number < kills:
                await_files(server, writer, "*.cleaned" if round_number % 2 else "*.deleted")
                server.kill()
                server.start()
        writer.flush()
        assert len(writer.acknowledged) == KEYS
        assert read_table(server.bootstrap)[0] == writer.acknowledged
        # 25 MB were written: what is left is the newest of each key, and the active segment.
        await_small(server, 2_500_000)
        table, found = read_table(server.bootstrap)
        assert table == writer.acknowledged
        assert found < writer.sent / 5
        server.stop()
        server.start()
        assert read_table(server.bootstrap)[0] == writer.acknowledged
        assert not list((Path(server.data_dir) / "t-0").glob("*.cleaned"))

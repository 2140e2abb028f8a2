"""The files of a log, read by Kafka's own tool."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log.compaction_helpers import compact, keyed
from log.helpers import batch
from penstock.log import LogConfig, LogDirectory
from penstock.runtime.production import ProductionRuntime, run
from penstock.wire.compression import Codec
from penstock.wire.records import BatchHeader, iter_batches
from support import java, kafka_tools
from support.apache_kafka import available
from support.kafka_tools import KafkaTools

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("logs of Apache Kafka")]


SOURCES = kafka_tools.SOURCE.parent


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments with every codec, two producers and three epochs, after a clean stop."""
    if reason := available():
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("data")

    async def write(runtime: ProductionRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", LogConfig(segment_bytes=20_000, index_interval_bytes=1_000))
        wall_ms = runtime.wall_ms()
        for number in range(120):
            records = batch(
                3,
                size=400,
                timestamp=wall_ms + (number * 37) % 100,
                codec=list(Codec)[number % 5],
                producer_id=40 + number % 2,
                epoch=0,
                sequence=number // 2 * 3,
                label=str(number),
            )
            log.writer.append_leader(records, number // 40, wall_ms)
        assert len(log.segments) > 2
        await directory.close()

    run(write, root=str(root))
    return root / "topic-0"


Dump = Callable[..., str]


@pytest.fixture(scope="module")
def dump() -> Iterator[Dump]:
    """The output of Kafka's own tool for these files."""
    if reason := java.unavailable():
        pytest.skip(reason)
    with KafkaTools() as tools:

        def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
            done = tools.run("kafka-dump-log", "--files", ",".join(map(str, files)), *options)
            assert done.code == 0, done
            return done.output + done.errors

        yield dump


def test_kafka_reads_the_batches(files: Path, dump: Dump) -> None:
    text = dump(*sorted(files.glob("*.log")), options=("--deep-iteration",))
    offsets = [int(number) for number in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == list(range(360))
    assert text.count("isvalid: true") == 120
    assert {int(epoch) for epoch in re.findall(r"partitionLeaderEpoch: (\d+)", text)} == {0, 1, 2}


def test_kafka_accepts_the_indexes(files: Path, dump: Dump) -> None:
    # Each index is compared with the log beside it; what does not match is listed at the end.
    text = dump(*sorted(files.glob("*.index")), *sorted(files.glob("*.timeindex")))
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) > 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE)) >= 3
    assert not re.findall(r"(?i)mismatch|out of order|not found|could not|exception", text)


def test_kafka_reads_sealed_checkpoints_and_ignores_their_checksums(files: Path) -> None:
    if reason := java.unavailable():
        pytest.skip(reason)
    program = java.command(SOURCES / "CheckpointReader.java", heap="64M")
    points = files.parent / "recovery-point-offset-checkpoint"
    assert points.read_bytes().rstrip() != points.read_bytes()[:-1], "it has no checksum"
    command = [*program, str(points), str(files / "leader-epoch-checkpoint")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.splitlines()) == ["0 0", "1 120", "2 240", "topic-0 360"]


def test_kafka_passes_the_sanity_check_of_the_indexes(files: Path, dump: Dump) -> None:
    text = dump(*sorted(files.glob("*.index")), options=("--index-sanity-check",))
    assert text.count("passed sanity check") == len(list(files.glob("*.index")))


def test_kafka_reads_the_snapshots(files: Path, dump: Dump) -> None:
    text = dump(max(files.glob("*.snapshot")))
    entries = re.findall(r"producerId: (\d+) producerEpoch: (\d+).*?lastSequence: (\d+).*?lastOffset: (\d+)", text)
    # The last entry of a producer is the one that Kafka goes by.
    last = {entry[0]: entry for entry in entries}
    assert sorted(last.values()) == [("40", "0", "179", "356"), ("41", "0", "179", "359")]


# ---- a compacted log


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was compacted twice, with gaps, tombstones, emptied batches and merged segments, every codec."""
    if reason := available():
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("compacted")
    config = LogConfig(
        cleanup_policy="compact", segment_bytes=20_000, index_interval_bytes=500, delete_retention_ms=3_600_000
    )

    async def write(runtime: ProductionRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", config)
        wall_ms = runtime.wall_ms()
        for round_number in range(2):
            for number in range(200):
                pairs = [
                    (b"key-%d" % (number % 60), b"%d" % number * 50),
                    (b"deleted-%d" % (number % 7), None),
                    (b"hot", b"%d" % number),
                ]
                made = keyed(
                    pairs,
                    timestamp=wall_ms + number,
                    codec=list(Codec)[number % 5],
                    producer_id=40 + round_number,
                    epoch=0,
                    sequence=number * 3,
                )
                log.writer.append_leader(made, number // 70 + 3 * round_number, wall_ms)
            log.writer.roll()
            await log.flush()
            assert await compact(log) is not None
        assert any(one.records_count == 0 for one in headers_of(root))
        await directory.close()

    run(write, root=str(root))
    return root / "topic-0"


def headers_of(root: Path) -> list[BatchHeader]:
    files = sorted((root / "topic-0").glob("*.log"))
    return [header for file in files for header, _ in iter_batches(file.read_bytes())]


def test_kafka_reads_a_compacted_log(compacted: Path, dump: Dump) -> None:
    text = dump(*sorted(compacted.glob("*.log")), options=("--deep-iteration", "--print-data-log"))
    assert "isvalid: false" not in text
    headers = headers_of(compacted.parent)
    assert text.count("isvalid: true") == len(headers)
    records = re.findall(r"^\| offset: (\d+) .*?key: (\S+)(?: payload: (\S*))?", text, re.MULTILINE)
    keys = [key for _, key, _ in records]
    assert len(keys) == len(set(keys)) == 60 + 7 + 1
    offsets = [int(offset) for offset, _, _ in records]
    assert offsets == sorted(offsets)
    assert len([key for key in keys if key.startswith("deleted")]) == 7
    assert "deleteHorizonMs: OptionalLong[" in text


def test_kafka_accepts_the_indexes_of_a_compacted_log(compacted: Path, dump: Dump) -> None:
    text = dump(*sorted(compacted.glob("*.index")), *sorted(compacted.glob("*.timeindex")))
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) > 3
    assert not re.findall(r"(?i)mismatch|out of order|not found|could not|exception", text)
    text = dump(*sorted(compacted.glob("*.index")), options=("--index-sanity-check",))
    assert text.count("passed sanity check") + text.count("is empty.") == len(list(compacted.glob("*.index")))

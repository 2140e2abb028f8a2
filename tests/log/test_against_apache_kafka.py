"""The files of a log, read by Kafka's own tool."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from log.helpers import batch
from penstock.log import LogConfig, LogDirectory
from penstock.runtime.production import ProductionRuntime, run
from penstock.wire.compression import Codec
from support.apache_kafka import available, kafka_tool

pytestmark = pytest.mark.needs_maven


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
            log.append_leader(records, number // 40, wall_ms)
        assert len(log.segments) > 2
        await directory.close()

    run(write, root=str(root))
    return root / "topic-0"


def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
    done = kafka_tool("DumpLogSegments", "--files", ",".join(map(str, files)), *options)
    return done.stdout + done.stderr


def test_kafka_reads_the_batches(files: Path) -> None:
    text = dump(*sorted(files.glob("*.log")), options=("--deep-iteration",))
    offsets = [int(number) for number in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == list(range(360))
    assert text.count("isvalid: true") == 120
    assert {int(epoch) for epoch in re.findall(r"partitionLeaderEpoch: (\d+)", text)} == {0, 1, 2}


def test_kafka_finds_the_indexes_right(files: Path) -> None:
    # Each index is compared with the log beside it; what does not match is listed at the end.
    text = dump(*sorted(files.glob("*.index")), *sorted(files.glob("*.timeindex")))
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) > 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE)) >= 3
    assert not re.findall(r"(?i)mismatch|out of order|not found|could not|exception", text)


def test_kafka_passes_the_sanity_check_of_the_indexes(files: Path) -> None:
    text = dump(*sorted(files.glob("*.index")), options=("--index-sanity-check",))
    assert text.count("passed sanity check") == len(list(files.glob("*.index")))


def test_kafka_reads_the_snapshots(files: Path) -> None:
    text = dump(max(files.glob("*.snapshot")))
    entries = re.findall(r"producerId: (\d+) producerEpoch: (\d+).*?lastSequence: (\d+).*?lastOffset: (\d+)", text)
    assert sorted(entries) == [("40", "0", "179", "356"), ("41", "0", "179", "359")]

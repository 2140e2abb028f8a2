"""What the broker stored, read from its files and not through a client."""

from __future__ import annotations

from pathlib import Path

from penstock.wire.records import HEADER_SIZE, iter_batches, iter_records, read_header

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def batches(data_dir: Path, topic: str, partition: int = 0) -> list[memoryview]:
    found: list[memoryview] = []
    for path in sorted((data_dir / f"{topic}-{partition}").glob("*.log")):
        found += list(iter_batches(memoryview(path.read_bytes())))
    assert all(len(batch) >= HEADER_SIZE for batch in found)
    return found


def codecs(data_dir: Path, topic: str, partition: int = 0) -> set[str]:
    """The codecs in the attributes of the stored batches."""
    return {CODECS[read_header(batch, 0).attributes & 7] for batch in batches(data_dir, topic, partition)}


def values(data_dir: Path, topic: str, partition: int = 0) -> list[bytes | None]:
    stored = batches(data_dir, topic, partition)
    return [record.value for batch in stored for record in iter_records(batch, max_decompressed_bytes=1 << 26)]


def producer_ids(data_dir: Path, topic: str, partition: int = 0) -> set[int]:
    return {read_header(batch, 0).producer_id for batch in batches(data_dir, topic, partition)}

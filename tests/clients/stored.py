"""What the broker stored, read from its files and not through a client."""

from __future__ import annotations

from pathlib import Path

from penstock.wire.records import BatchHeader, iter_batches, iter_records

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def batches(data_dir: Path, topic: str, partition: int = 0) -> list[tuple[BatchHeader, memoryview]]:
    found: list[tuple[BatchHeader, memoryview]] = []
    for path in sorted((data_dir / f"{topic}-{partition}").glob("*.log")):
        found += iter_batches(path.read_bytes())
    return found


def codecs(data_dir: Path, topic: str, partition: int = 0) -> set[str]:
    """The codecs in the attributes of the stored batches."""
    return {CODECS[header.attributes & 7] for header, _ in batches(data_dir, topic, partition)}


def values(data_dir: Path, topic: str, partition: int = 0) -> list[bytes | None]:
    stored = batches(data_dir, topic, partition)
    return [record.value for _, batch in stored for record in iter_records(batch)]


def producer_ids(data_dir: Path, topic: str, partition: int = 0) -> set[int]:
    return {header.producer_id for header, _ in batches(data_dir, topic, partition)}

"""Facts about topics that the data directory shows without the metadata: names, owners, epochs, producers. Read-only.

Every batch of every log is read once, so this takes as long as reading the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.broker.layout import Owner, parse_partition_metadata
from penstock.broker.replicas.remains import partitions_in
from penstock.log import names
from penstock.log.epochs import EpochsDamaged, decode_epochs
from penstock.log.producers import SnapshotDamaged, decode_snapshot
from penstock.log.tools.walking import Problem, segment_files, walk
from penstock.runtime import Disk
from penstock.wire.records import batch_crc

NONE = -1


@dataclass(slots=True)
class PartitionFacts:
    """Facts about one partition's directory."""

    directory: str
    topic: str
    index: int
    owner: Owner
    start_offset: int = 0
    end_offset: int = 0
    size_bytes: int = 0
    batches: int = 0
    last_epoch: int = NONE
    last_producer_id: int = NONE
    has_gaps: bool = False
    """Whether offsets are missing between batches, which means that the log was compacted."""
    problems: list[str] = field(default_factory=list)


def survey(disk: Disk) -> list[PartitionFacts]:
    """Every partition that has a directory here."""
    return [_look_at(disk, directory, topic, index) for directory, topic, index in partitions_in(disk)]


def _look_at(disk: Disk, directory: str, topic: str, index: int) -> PartitionFacts:
    path = f"{directory}/{names.PARTITION_METADATA_NAME}"
    owner = parse_partition_metadata(disk.read_bytes(path) if disk.exists(path) else b"")
    facts = PartitionFacts(directory, topic, index, owner)
    _look_at_segments(disk, facts)
    _look_at_epochs(disk, facts)
    for name in disk.list(directory):
        if names.offset_in(name, names.SNAPSHOT_SUFFIX) is not None:
            _look_at_producers(disk, facts, f"{directory}/{name}")
    return facts


def _look_at_segments(disk: Disk, facts: PartitionFacts) -> None:
    segments = segment_files(disk, facts.directory)
    facts.start_offset = facts.end_offset = segments[0][0] if segments else 0
    for base, path in segments:
        facts.size_bytes += disk.size(path)
        facts.end_offset = max(facts.end_offset, base)
        for found in walk(disk, path):
            if isinstance(found, Problem):
                facts.problems.append(f"{path}:{found.position}: {found.text}")
                continue
            header = found.header
            if batch_crc(found.view) != header.crc:
                facts.problems.append(f"{path}:{found.position}: a batch has a wrong checksum")
                continue
            facts.has_gaps = facts.has_gaps or header.base_offset > facts.end_offset
            facts.end_offset = header.next_offset
            facts.batches += 1
            facts.last_epoch = max(facts.last_epoch, header.partition_leader_epoch)
            facts.last_producer_id = max(facts.last_producer_id, header.producer_id)


def _look_at_epochs(disk: Disk, facts: PartitionFacts) -> None:
    path = f"{facts.directory}/{names.EPOCHS_NAME}"
    if not disk.exists(path):
        return
    try:
        facts.last_epoch = max([facts.last_epoch, *(epoch for epoch, _ in decode_epochs(disk.read_bytes(path)))])
    except EpochsDamaged as error:
        facts.problems.append(f"{path}: {error}")


def _look_at_producers(disk: Disk, facts: PartitionFacts, path: str) -> None:
    try:
        producers = decode_snapshot(disk.read_bytes(path))
    except SnapshotDamaged as error:
        facts.problems.append(f"{path}: {error}")
        return
    facts.last_producer_id = max([facts.last_producer_id, *(producer_id for producer_id, _ in producers.entries())])

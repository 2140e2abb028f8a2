"""The identity of a data directory (`meta.properties`), and the proof of a clean stop (`.kafka_cleanshutdown`)."""

from __future__ import annotations

from penstock.broker.layout import META_PROPERTIES, METADATA_DIRECTORY
from penstock.broker.starting import StartRefused
from penstock.metadata import MetaProperties, check_meta_properties, format_directory, parse_meta_properties
from penstock.raft import BOOTSTRAP_SNAPSHOT, VoterSet, snapshot_name
from penstock.runtime import Disk
from penstock.runtime.paths import TEMPORARY_SUFFIX

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_PROOF = -1
FILES_OF_A_NEW_DIRECTORY = (
    ".lock",
    "lost+found",
    METADATA_DIRECTORY,
    META_PROPERTIES + TEMPORARY_SUFFIX,
    "penstock.pid",
)
"""Files allowed in a directory without `meta.properties`: the lock, those of the file system, an interrupted format."""


def identity_in(disk: Disk, node_id: int) -> MetaProperties | None:
    """The directory's identity; None if it is new. Raises StartRefused or MetaPropertiesError if it is unusable."""
    if disk.exists(META_PROPERTIES):
        found = parse_meta_properties(disk.read_bytes(META_PROPERTIES))
        check_meta_properties(found, node_id=node_id, cluster_id=None)
        return found
    strangers = [name for name in disk.list(METADATA_DIRECTORY) if not _is_of_a_format(name)]
    if strangers:
        raise StartRefused(
            f"{disk.root} has no {META_PROPERTIES}, but {METADATA_DIRECTORY} holds metadata ({strangers[0]} …): the "
            "file was lost. Restore it from a copy, or start with an empty directory"
        )
    strangers = [name for name in disk.list("") if name not in FILES_OF_A_NEW_DIRECTORY]
    if strangers:
        raise StartRefused(
            f"{disk.root} has no {META_PROPERTIES} but is not empty ({', '.join(strangers[:3])} …): "
            "it is not a data directory, or was damaged. Name an empty one"
        )
    return None


def _is_of_a_format(name: str) -> bool:
    """Whether an interrupted format may leave this file in the metadata directory."""
    return name.startswith(snapshot_name(BOOTSTRAP_SNAPSHOT))


async def format_new(disk: Disk, identity: MetaProperties, voters: VoterSet, wall_ms: int) -> None:
    """Format a new directory for this node. `meta.properties` is written last: an interrupted format is repeated."""
    disk.mkdir(METADATA_DIRECTORY)
    for name, data in format_directory(identity, voters, timestamp_ms=wall_ms).items():
        await disk.replace_bytes(name, data)
    await disk.sync_dir("")


async def take_clean_shutdown(disk: Disk) -> int:
    """The broker epoch of the last clean stop, or -1. The file is removed, so that it proves nothing after a crash."""
    if not disk.exists(CLEAN_SHUTDOWN):
        return NO_PROOF
    epoch = parse_clean_shutdown(disk.read_bytes(CLEAN_SHUTDOWN))
    disk.unlink(CLEAN_SHUTDOWN)
    await disk.sync_dir("")
    return epoch


async def leave_clean_shutdown(disk: Disk, broker_epoch: int) -> None:
    await disk.replace_bytes(CLEAN_SHUTDOWN, f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode())


def parse_clean_shutdown(data: bytes) -> int:
    """The broker epoch in Kafka's clean shutdown file; -1 if it is invalid."""
    text = data.decode(errors="replace")
    head, found, tail = text.partition('"brokerEpoch":')
    number = tail.rstrip("}").strip()
    return int(number) if head.startswith("{") and found and number.isascii() and number.isdigit() else NO_PROOF

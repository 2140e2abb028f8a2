"""A new data directory: its files give it a cluster id, a node id and a directory id.

`meta.properties` is Kafka's, version 1. A comment in its first line has the checksum of the rest: a flipped bit could
change the node id or the cluster id. A file without it was written by Kafka, by hand, or by an earlier release. The
bootstrap snapshot of the metadata log states the voters and the feature levels of a new cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from crc32c import crc32c

from penstock.config import ConfigError, parse_properties
from penstock.metadata.features import SECURITY_VERSION, SECURITY_VERSION_LEVEL, bootstrap_records
from penstock.raft.snapshot_file import BOOTSTRAP_SNAPSHOT, snapshot_batches, snapshot_name
from penstock.raft.types import VoterSet
from penstock.wire.messages.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    UserScramCredentialRecord,
    encode_metadata_record,
)
from penstock.wire.uuids import format_uuid, is_reserved, parse_uuid

META_PROPERTIES = "meta.properties"
METADATA_DIRECTORY = "__cluster_metadata-0"
VERSION = "1"
CHECKSUM_PREFIX = b"# crc32c "


class MetaPropertiesError(Exception):
    """A data directory that cannot be used; the message says what to do."""


class MetaProperties(msgspec.Struct, frozen=True):
    cluster_id: str
    node_id: int
    directory_id: bytes


def format_directory(
    properties: MetaProperties,
    voter_set: VoterSet,
    *,
    timestamp_ms: int,
    credentials: Iterable[UserScramCredentialRecord] = (),
) -> Mapping[str, bytes]:
    """The contents of every file of a new directory, by name. Write `meta.properties` last: it marks completion.

    A replica that joins a running cluster gets an empty voter set, and learns the voters and feature levels from the
    log. `credentials`: users that can log in with SCRAM from the very start (KIP-900).
    """
    records: list[MetadataRecord] = []
    if len(voter_set):
        records += [*bootstrap_records(), *credentials]
        if len(records) > len(bootstrap_records()):
            records.insert(0, FeatureLevelRecord(name=SECURITY_VERSION, feature_level=SECURITY_VERSION_LEVEL))
    values = [encode_metadata_record(record) for record in records]
    snapshot = b"".join(snapshot_batches(BOOTSTRAP_SNAPSHOT, voter_set, values, timestamp_ms=timestamp_ms))
    return {
        f"{METADATA_DIRECTORY}/{snapshot_name(BOOTSTRAP_SNAPSHOT)}": snapshot,
        META_PROPERTIES: format_meta_properties(properties),
    }


def format_meta_properties(properties: MetaProperties) -> bytes:
    if not properties.cluster_id or not all(c.isascii() and (c.isalnum() or c in "_-") for c in properties.cluster_id):
        raise MetaPropertiesError(
            f"{properties.cluster_id!r} is not a cluster id: use letters, digits, '_' and '-', as in a base64 UUID"
        )
    lines = {
        "cluster.id": properties.cluster_id,
        "directory.id": format_uuid(properties.directory_id),
        "node.id": str(properties.node_id),
        "version": VERSION,
    }
    body = "".join(f"{name}={value}\n" for name, value in lines.items()).encode()
    return _checksum_line(body) + body


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Raises MetaPropertiesError for a file that is incomplete, damaged or of another version."""
    first, _, body = data.partition(b"\n")
    if first.startswith(CHECKSUM_PREFIX) and first + b"\n" != _checksum_line(body):
        raise _unusable(
            "its checksum is wrong, so the file was changed or damaged. If it was changed on purpose, remove its first "
            "line"
        )
    try:
        properties = parse_properties(data.decode())
    except (UnicodeDecodeError, ConfigError) as error:
        raise _unusable(str(error)) from None
    version = properties.get("version", "0")
    if version != VERSION:
        raise _unusable(f"it has version {version}, but this release supports {VERSION}")
    try:
        directory_id = parse_uuid(properties["directory.id"])
        node_id = int(properties["node.id"])
        cluster_id = properties["cluster.id"]
    except KeyError as error:
        raise _unusable(f"{error.args[0]} is missing") from None
    except ValueError as error:
        raise _unusable(str(error)) from None
    if is_reserved(directory_id):
        raise _unusable("its directory.id is reserved by Kafka")
    if node_id < 0 or not cluster_id:
        raise _unusable("node.id must not be negative and cluster.id not empty")
    return MetaProperties(cluster_id, node_id, directory_id)


def check_meta_properties(found: MetaProperties, *, node_id: int, cluster_id: str | None) -> None:
    """Raises if the directory belongs to another node or cluster."""
    if found.node_id != node_id:
        raise MetaPropertiesError(
            f"the data directory belongs to node {found.node_id}, but this is node {node_id}: "
            f"start it with node.id={found.node_id}, or with another directory"
        )
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise MetaPropertiesError(
            f"the data directory belongs to cluster {found.cluster_id}, but cluster {cluster_id} was asked for: "
            f"use another directory"
        )


def _checksum_line(body: bytes) -> bytes:
    return CHECKSUM_PREFIX + b"%08x\n" % crc32c(body)


def _unusable(reason: str) -> MetaPropertiesError:
    return MetaPropertiesError(
        f"{META_PROPERTIES} cannot be used: {reason}. Restore it from a copy, or start with an empty directory."
    )

"""A new data directory, and the files by which it is known again."""

from __future__ import annotations

import pytest

from penstock.metadata import (
    ELR_VERSION,
    META_PROPERTIES,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    TRANSACTION_VERSION,
    MetaProperties,
    MetaPropertiesError,
    check_meta_properties,
    format_directory,
    format_meta_properties,
    image_from_snapshot,
    parse_meta_properties,
)
from penstock.raft import BOOTSTRAP_SNAPSHOT, Endpoint, Voter, VoterSet, read_snapshot
from penstock.wire.records import iter_batches

PROPERTIES = MetaProperties("4L6g3nShT-eMCtK--X86sw", 1, bytes(range(100, 116)))


def test_meta_properties_are_kafkas() -> None:
    assert format_meta_properties(PROPERTIES) == (
        b"# crc32c b5d4dbf1\n"
        b"cluster.id=4L6g3nShT-eMCtK--X86sw\ndirectory.id=ZGVmZ2hpamtsbW5vcHFycw\nnode.id=1\nversion=1\n"
    )
    assert parse_meta_properties(format_meta_properties(PROPERTIES)) == PROPERTIES


def test_a_file_written_by_kafka_is_read() -> None:
    text = (
        "#\n#Sat Oct 26 10:11:12 UTC 2024\nnode.id=3\nversion=1\n"
        "directory.id=J8aAPcfLQt2bqs1JT_rMgQ\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"
    )
    properties = parse_meta_properties(text.encode())
    assert (properties.cluster_id, properties.node_id) == ("4L6g3nShT-eMCtK--X86sw", 3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "version 0"),
        ("# crc32c 86ca0e7b\ncluster.id=4L6g3nShT-eMCtK--X86sv\n", "its checksum is wrong"),
        ("version=2\n", "version 2"),
        ("version=1\ncluster.id=c\nnode.id=1\n", "directory.id is missing"),
        ("version=1\ndirectory.id=ZGVmZ2hpamtsbW5vcHFycw\ncluster.id=c\n", "node.id is missing"),
        ("version=1\ndirectory.id=ZGVmZ2hpamtsbW5vcHFycw\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ndirectory.id=nonsense\nnode.id=1\ncluster.id=c\n", "not a UUID"),
        ("version=1\ndirectory.id=ZGVmZ2hpamtsbW5vcHFycw\nnode.id=one\ncluster.id=c\n", "'one'"),
        ("version=1\ndirectory.id=ZGVmZ2hpamtsbW5vcHFycw\nnode.id=-1\ncluster.id=c\n", "must not be negative"),
        ("version=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\ncluster.id=c\n", "reserved"),
        ("version=1\ncluster.id=\\uZZ", "cannot be used"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused_with_advice(text: str, reason: str) -> None:
    with pytest.raises(MetaPropertiesError, match="Restore it from a copy") as refused:
        parse_meta_properties(text.encode())
    assert reason in str(refused.value)


def test_a_cluster_id_must_be_one() -> None:
    for cluster_id in ("", "a b", "a\nb", "a=b"):
        with pytest.raises(MetaPropertiesError, match="is not a cluster id"):
            format_meta_properties(MetaProperties(cluster_id, 1, PROPERTIES.directory_id))


def test_a_directory_of_another_node_or_cluster_is_refused() -> None:
    check_meta_properties(PROPERTIES, node_id=1, cluster_id=None)
    check_meta_properties(PROPERTIES, node_id=1, cluster_id=PROPERTIES.cluster_id)
    with pytest.raises(MetaPropertiesError, match=r"belongs to node 1, but this is node 2.*node.id=1"):
        check_meta_properties(PROPERTIES, node_id=2, cluster_id=None)
    with pytest.raises(MetaPropertiesError, match="use another directory"):
        check_meta_properties(PROPERTIES, node_id=1, cluster_id="other")


def test_a_new_directory_states_voters_and_features() -> None:
    voters = VoterSet.of([Voter(1, PROPERTIES.directory_id, (Endpoint("CONTROLLER", "localhost", 9093),))])
    files = format_directory(PROPERTIES, voters, timestamp_ms=1_700_000_000_000)
    assert list(files) == [
        "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        META_PROPERTIES,
    ]
    data = files["__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"]
    snapshot = read_snapshot(data)
    assert snapshot.voter_set == voters
    image = image_from_snapshot(BOOTSTRAP_SNAPSHOT, snapshot.values)
    assert image.features == {METADATA_VERSION: METADATA_VERSION_LEVEL, ELR_VERSION: 1, TRANSACTION_VERSION: 2}
    assert (image.offset, image.epoch) == (-1, 0)
    assert [header.base_offset for header, _ in iter_batches(data)] == [0, 3, 6]
    assert parse_meta_properties(files[META_PROPERTIES]) == PROPERTIES


def test_a_directory_that_joins_a_cluster_states_nothing_of_its_own() -> None:
    files = format_directory(PROPERTIES, VoterSet(), timestamp_ms=1_700_000_000_000)
    snapshot = read_snapshot(files["__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"])
    assert len(snapshot.voter_set) == 0
    assert list(snapshot.values) == []

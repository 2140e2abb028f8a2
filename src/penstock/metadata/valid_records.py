"""Records that another node sends: are their names and addresses fit for this one?

A leader's records are written to the log before they are replayed, and a record that cannot be replayed ends the node.
So they are checked when they arrive, and an answer with a bad one is refused as a whole. What is in the local log
already was checked then, or was written by this node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.metadata.delta import MetadataError
from penstock.metadata.topic_names import CLUSTER_METADATA, validate_topic_name
from penstock.raft.types import VoterSet
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import metadata_records as r
from penstock.wire.valid import check_address, check_endpoint, check_node_id

PARTITION_MAX = 10_000_000
"""A partition's number becomes the length of a list and the name of a directory."""


def checked_values(values: Iterable[bytes]) -> Iterator[bytes]:
    """The same values. WireError or MetadataError for one that this node must not take in."""
    for value in values:
        check_record(r.decode_metadata_record(value))
        yield value


def check_record(record: r.MetadataRecord) -> None:
    try:
        match record:
            case r.TopicRecord():
                validate_topic_name(record.name)
                if record.name == CLUSTER_METADATA:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{record.name} is no topic but the log itself")
            case r.PartitionRecord():
                _check_partition(record.partition_id)
                for replica in record.replicas:
                    check_node_id(replica)
            case r.PartitionChangeRecord():
                _check_partition(record.partition_id)
            case r.RegisterBrokerRecord():
                check_node_id(record.broker_id)
                for at in record.end_points:
                    _check_registered(at.name, at.host, at.port)
            case r.RegisterControllerRecord():
                check_node_id(record.controller_id)
                for at_controller in record.end_points:
                    _check_registered(at_controller.name, at_controller.host, at_controller.port)
            case _:
                pass
    except KafkaError as error:
        raise MetadataError(f"{type(record).__name__}: {error.message}") from None


def check_voters(voters: VoterSet) -> None:
    """Raises MetadataError."""
    try:
        for voter in voters.voters:
            check_node_id(voter.id)
            for endpoint in voter.endpoints:
                check_address(endpoint.host, endpoint.port)
    except KafkaError as error:
        raise MetadataError(f"a voter: {error.message}") from None


def _check_registered(name: str, host: str, port: int) -> None:
    # Brokers of an earlier release that listen on every interface registered without a host.
    if host:
        check_endpoint(name, host, port)


def _check_partition(number: int) -> None:
    if not 0 <= number <= PARTITION_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no partition has the number {number}")

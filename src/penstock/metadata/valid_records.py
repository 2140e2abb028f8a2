"""Validates records received from another node.

A leader's records are written to the log before they are replayed, and a record that cannot be replayed stops the node.
So they are checked on arrival, and a response with an invalid record is refused as a whole. Records in the local log
were checked on arrival, or written by this node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.acls.rules import check_acl
from penstock.metadata.credentials import check_credential_record
from penstock.metadata.delta import MetadataError, acl_of
from penstock.metadata.topic_names import CLUSTER_METADATA, validate_topic_name
from penstock.raft.types import VoterSet
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import metadata_records as r
from penstock.wire.valid import check_address, check_endpoint, check_node_id

PARTITION_MAX = 10_000_000
"""A partition's number determines the length of a list and the name of a directory."""


def checked_values(values: Iterable[bytes]) -> Iterator[bytes]:
    """Passes the values through; raises WireError or MetadataError for an invalid one."""
    for value in values:
        check_record(r.decode_metadata_record(value))
        yield value


def check_record(record: r.MetadataRecord) -> None:
    try:
        match record:
            case r.TopicRecord():
                validate_topic_name(record.name)
                if record.name == CLUSTER_METADATA:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{record.name} is the log, not a topic")
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
            case r.AccessControlEntryRecord():
                check_acl(acl_of(record))
            case r.UserScramCredentialRecord():
                check_credential_record(record)
            case _:
                pass
    except KafkaError as error:
        raise MetadataError(f"{type(record).__name__}: {error.message}") from None


def check_voters(voters: VoterSet) -> None:
    """Raises MetadataError if a voter is invalid."""
    try:
        for voter in voters.voters:
            check_node_id(voter.id)
            for endpoint in voter.endpoints:
                check_address(endpoint.host, endpoint.port)
    except KafkaError as error:
        raise MetadataError(f"invalid voter: {error.message}") from None


def _check_registered(name: str, host: str, port: int) -> None:
    # Brokers of an earlier release registered without a host if they listened on every interface.
    if host:
        check_endpoint(name, host, port)


def _check_partition(number: int) -> None:
    if not 0 <= number <= PARTITION_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"invalid partition number {number}")

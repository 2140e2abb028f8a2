"""Encodes and decodes the log's batches: Kafka's control records, and the values of the state machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.raft.messages import (
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    LogBatch,
    SnapshotFooter,
    SnapshotHeader,
    Voters,
)
from penstock.raft.types import Endpoint, Voter, VoterSet
from penstock.wire.codec import decode_whole, to_bytes
from penstock.wire.compression import Buffer
from penstock.wire.errors import WireError
from penstock.wire.messages import voters_record as voters_message
from penstock.wire.messages.k_raft_version_record import KRaftVersionRecord
from penstock.wire.messages.leader_change_message import LeaderChangeMessage
from penstock.wire.messages.leader_change_message import Voter as LeaderChangeVoter
from penstock.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from penstock.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from penstock.wire.records import (
    BatchHeader,
    ControlRecordType,
    Record,
    build_batch,
    control_key,
    is_control,
    iter_batches,
    iter_records,
    parse_control_key,
)

# Kafka 4 reads and writes every control record in version 0.
VERSION = 0


def encode_batch(batch: LogBatch, timestamp_ms: int) -> bytes:
    """The bytes to append to the log; batches from a leader are kept unchanged."""
    if batch.data:
        return batch.data
    if batch.control:
        return build_control_batch(batch.control, batch.base_offset, batch.epoch, timestamp_ms)
    return build_batch(
        [Record(timestamp=timestamp_ms, value=value) for value in batch.values],
        base_offset=batch.base_offset,
        leader_epoch=batch.epoch,
    )


def decode_batches(data: Buffer) -> Iterator[LogBatch]:
    """The complete batches in fetched or stored bytes; an incomplete last one is left out."""
    for header, view in iter_batches(data, partial_tail=True):
        yield decode_batch(header, view)


def decode_batch(header: BatchHeader, view: memoryview) -> LogBatch:
    """The fields of a batch that the core needs. Only control batches are decoded."""
    control = tuple(control_records(view)) if is_control(header.attributes) else ()
    return LogBatch(
        header.base_offset,
        header.last_offset_delta + 1,
        header.partition_leader_epoch,
        control=control,
        data=bytes(view),
    )


def batch_values(batch: LogBatch) -> Iterator[bytes]:
    """The values of a batch for the state machine; none for a control batch."""
    if batch.control:
        return
    if not batch.data:
        yield from batch.values
        return
    for record in iter_records(batch.data):
        if record.value is None:
            raise WireError(f"the record at offset {record.offset} of the metadata log has no value")
        yield record.value


def build_control_batch(records: Iterable[ControlRecord], base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    encoded = [Record(timestamp=timestamp_ms, key=key, value=value) for key, value in map(_encode, records)]
    return build_batch(encoded, base_offset=base_offset, leader_epoch=epoch, control=True)


def control_records(batch: Buffer) -> Iterator[ControlRecord]:
    """The records of a control batch. Unknown types are refused: a skipped one could be a new voter set."""
    for record in iter_records(batch):
        yield _decode(parse_control_key(record.key), record.value or b"")


def _encode(record: ControlRecord) -> tuple[bytes, bytes]:
    match record:
        case LeaderChange():
            return control_key(ControlRecordType.LEADER_CHANGE), to_bytes(
                LeaderChangeMessage(
                    version=VERSION,
                    leader_id=record.leader_id,
                    voters=[LeaderChangeVoter(voter_id=voter) for voter in record.voters],
                    granting_voters=[LeaderChangeVoter(voter_id=voter) for voter in record.granting_voters],
                ),
                VERSION,
            )
        case KRaftVersion():
            message = KRaftVersionRecord(version=VERSION, k_raft_version=record.level)
            return control_key(ControlRecordType.KRAFT_VERSION), to_bytes(message, VERSION)
        case Voters():
            return control_key(ControlRecordType.KRAFT_VOTERS), to_bytes(_voters_record(record.voter_set), VERSION)
        case SnapshotHeader():
            header = SnapshotHeaderRecord(
                version=VERSION, last_contained_log_timestamp=record.last_contained_log_timestamp_ms
            )
            return control_key(ControlRecordType.SNAPSHOT_HEADER), to_bytes(header, VERSION)
        case SnapshotFooter():
            footer = SnapshotFooterRecord(version=VERSION)
            return control_key(ControlRecordType.SNAPSHOT_FOOTER), to_bytes(footer, VERSION)


def _decode(record_type: int, value: bytes) -> ControlRecord:
    if record_type == ControlRecordType.LEADER_CHANGE:
        change = decode_whole(LeaderChangeMessage, VERSION, value)
        return LeaderChange(
            change.leader_id,
            tuple(voter.voter_id for voter in change.voters),
            tuple(voter.voter_id for voter in change.granting_voters),
        )
    if record_type == ControlRecordType.KRAFT_VERSION:
        return KRaftVersion(decode_whole(KRaftVersionRecord, VERSION, value).k_raft_version)
    if record_type == ControlRecordType.KRAFT_VOTERS:
        return Voters(_voter_set(decode_whole(voters_message.VotersRecord, VERSION, value)))
    if record_type == ControlRecordType.SNAPSHOT_HEADER:
        return SnapshotHeader(decode_whole(SnapshotHeaderRecord, VERSION, value).last_contained_log_timestamp)
    if record_type == ControlRecordType.SNAPSHOT_FOOTER:
        decode_whole(SnapshotFooterRecord, VERSION, value)
        return SnapshotFooter()
    raise WireError(f"unknown control record type {record_type} in the metadata log: it needs a newer release")


def _voters_record(voter_set: VoterSet) -> voters_message.VotersRecord:
    return voters_message.VotersRecord(
        version=VERSION,
        voters=[
            voters_message.Voter(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=[
                    voters_message.Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                    for endpoint in voter.endpoints
                ],
                k_raft_version_feature=voters_message.KRaftVersionFeature(
                    min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                ),
            )
            for voter in voter_set.voters
        ],
    )


def _voter_set(message: voters_message.VotersRecord) -> VoterSet:
    return VoterSet.of(
        Voter(
            voter.voter_id,
            voter.voter_directory_id,
            tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in message.voters
    )

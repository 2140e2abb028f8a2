"""The metadata log's records and their framing."""

from __future__ import annotations

import random

import pytest

from penstock.sim.fuzz import samples as sample
from penstock.wire.errors import WireError
from penstock.wire.messages.metadata_records import (
    METADATA_RECORDS,
    BeginTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from penstock.wire.schema import versions_of

PAIRS = [(cls, version) for cls in METADATA_RECORDS.values() for version in versions_of(cls)]
TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(("cls", "version"), PAIRS, ids=[f"{cls.__name__}-{version}" for cls, version in PAIRS])
def test_records_come_back(cls: type[MetadataRecord], version: int) -> None:
    rng = random.Random(version)
    for _ in range(20):
        record = sample.message(cls, version, rng)
        assert isinstance(record, MetadataRecord)
        value = encode_metadata_record(record, version)
        assert value[:3] == bytes((1, cls.record_type, version))
        assert decode_metadata_record(value) == record
        with pytest.raises(WireError):
            decode_metadata_record(value[:-1])
        with pytest.raises(WireError):
            decode_metadata_record(value + b"\0")


@pytest.mark.parametrize(
    ("record", "version", "expected"),
    [
        (TopicRecord("foo", TOPIC_ID), 0, f"01 02 00 04 666f6f {TOPIC_ID.hex()} 00"),
        (FeatureLevelRecord("metadata.version", 25), 0, f"01 0c 00 11 {b'metadata.version'.hex()} 0019 00"),
        (NoOpRecord(), 0, "01 14 00 00"),
        (BeginTransactionRecord("x"), 0, "01 17 00 01 00 02 02 78"),
        (
            PartitionChangeRecord(2, TOPIC_ID, isr=[1], leader=1, directories=[TOPIC_ID]),
            1,
            f"01 05 01 00000002 {TOPIC_ID.hex()} 03 00 05 02 00000001 01 04 00000001 08 11 02 {TOPIC_ID.hex()}",
        ),
        (
            PartitionRecord(0, TOPIC_ID, [1, 2], [1], [], [], 1, 0, 5, 6, [TOPIC_ID, TOPIC_ID], [2], None),
            2,
            f"01 03 02 00000000 {TOPIC_ID.hex()} 03 00000001 00000002 02 00000001 01 01 00000001 00000005 00000006 "
            f"03 {TOPIC_ID.hex() * 2} 01 01 05 02 00000002",
        ),
    ],
)
def test_bytes_are_as_kafka_writes_them(record: MetadataRecord, version: int, expected: str) -> None:
    assert encode_metadata_record(record, version).hex() == bytes.fromhex(expected).hex()


def test_the_newest_version_is_written_unless_another_is_asked_for() -> None:
    assert encode_metadata_record(RegisterBrokerRecord())[2] == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "without a value"),
        (b"", "cut off"),
        (b"\x01\x02", "cut off"),
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x63\x00", "unknown type 99"),
        (b"\x01\x02\x01", "TopicRecord version 1"),
    ],
)
def test_what_is_not_known_is_refused_and_never_skipped(value: bytes | None, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode_metadata_record(value)

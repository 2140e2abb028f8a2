"""The bytes in `__consumer_offsets` are those that Kafka documents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinators.groups.harness import Groups, subscription
from penstock.coordinators.groups.records import (
    NO_EXPIRY,
    decode_group,
    decode_offset_value,
    group_key,
    group_value,
    key_group,
    offset_key,
    offset_key_partition,
    offset_value,
)
from penstock.wire.codec import to_bytes
from penstock.wire.errors import WireError
from penstock.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.wire.uuids import ZERO_UUID

names = st.text(max_size=200)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)


@given(names, names, int32)
def test_keys_of_offsets_are_written_as_their_schema_says(group: str, topic: str, partition: int) -> None:
    key = offset_key(group, topic, partition)
    assert key == b"\x00\x01" + to_bytes(OffsetCommitKey(group, topic, partition), 1)
    assert key_group(key) == group
    assert offset_key_partition(key) == (topic, partition)


@given(int64, int32, st.text(max_size=300), int64, st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16)))
def test_values_of_offsets_are_version_4(offset: int, epoch: int, metadata: str, time: int, topic_id: bytes) -> None:
    value = offset_value(offset, epoch, metadata, time, topic_id=topic_id)
    schema = OffsetCommitValue(offset, epoch, metadata, time, topic_id=topic_id)
    assert value == b"\x00\x04" + to_bytes(schema, 4)
    assert decode_offset_value(value) == (offset, epoch, metadata, time, NO_EXPIRY, topic_id)


@given(int64, int32, st.text(max_size=300), int64, st.integers(0, 2**63 - 1))
def test_values_with_an_expiry_are_version_1(offset: int, epoch: int, metadata: str, time: int, expiry: int) -> None:
    value = offset_value(offset, epoch, metadata, time, expiry)
    schema = OffsetCommitValue(offset, epoch, metadata, time, expiry)
    assert value == b"\x00\x01" + to_bytes(schema, 1)
    assert decode_offset_value(value) == (offset, -1, metadata, time, expiry, ZERO_UUID)


@pytest.mark.parametrize("version", range(5))
def test_values_of_all_versions_are_read(version: int) -> None:
    schema = OffsetCommitValue(7, 3, "m", 99, 100 if version == 1 else NO_EXPIRY)
    value = version.to_bytes(2, "big") + to_bytes(schema, version)
    epoch = 3 if version >= 3 else -1
    assert decode_offset_value(value) == (7, epoch, "m", 99, 100 if version == 1 else NO_EXPIRY, ZERO_UUID)


def test_a_tagged_field_of_a_newer_release_is_passed_over() -> None:
    plain = offset_value(7, 3, "m", 99)
    assert decode_offset_value(plain[:-1] + b"\x01\x05\x02ab").offset == 7


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x04", b"\x00\x09" + bytes(40), offset_value(1, 1, "m", 1)[:-3]])
def test_values_that_are_cut_off_or_of_unknown_versions_are_refused(value: bytes) -> None:
    with pytest.raises(WireError):
        decode_offset_value(value)


def test_a_stable_group_is_written_as_its_schema_says() -> None:
    groups = Groups()
    joins = [groups.join(instance="one", protocols=(("range", b"says"), ("sticky", b"other")), host="/h", client="c")]
    groups.advance(3_000)
    member = groups.settle(joins)[0]
    record = groups.records[-1]
    assert record.key == group_key("g") == b"\x00\x02" + to_bytes(GroupMetadataKey("g"), 2)
    schema = GroupMetadataValue(
        "consumer",
        1,
        "range",
        member,
        groups.wall_ms,
        [GroupMetadataMember(member, "one", "c", "/h", 60_000, 10_000, b"says", member.encode())],
    )
    assert record.value == b"\x00\x03" + to_bytes(schema, 3)


def test_a_group_reads_back_as_it_was_written() -> None:
    groups = Groups()
    groups.stable(3, protocols=(("range", subscription("t", "u")),))
    written = group_value(groups.group)
    assert group_value(decode_group("g", written)) == written
    assert decode_group("g", written).subscribed_topics == frozenset({"t", "u"})


@pytest.mark.parametrize("version", range(5))
def test_groups_of_all_versions_are_read(version: int) -> None:
    member = GroupMetadataMember("m", "i", "c", "/h", 70_000, 10_000, b"s", b"a")
    schema = GroupMetadataValue("consumer", 4, "range", "m", 123, [member])
    group = decode_group("g", version.to_bytes(2, "big") + to_bytes(schema, version))
    assert (group.generation, group.leader_id, group.protocol_name) == (4, "m", "range")
    assert group.state_timestamp_ms == (123 if version >= 2 else -1)
    loaded = group.members["m"]
    assert loaded.rebalance_timeout_ms == (70_000 if version >= 1 else 10_000)
    assert loaded.instance_id == ("i" if version >= 3 else None)
    assert (loaded.metadata("range"), loaded.assignment) == (b"s", b"a")

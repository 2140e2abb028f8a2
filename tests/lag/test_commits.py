"""Offset commits as they lie in `__consumer_offsets`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lag import Commit, Memberships, decode_commit, decode_members_change, partition_of_group
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    encode_key,
    encode_value,
)
from penstock.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

GOLDEN_KEY = bytes.fromhex("0001 0007 62696c6c696e67 0006 6f7264657273 00000003")
GOLDEN_VALUES = {
    0: bytes.fromhex("0000 000000000000002a 0001 6d 00000000499602d2"),
    1: bytes.fromhex("0001 000000000000002a 0001 6d 00000000499602d2 ffffffffffffffff"),
    2: bytes.fromhex("0002 000000000000002a 0001 6d 00000000499602d2"),
    3: bytes.fromhex("0003 000000000000002a 00000007 0001 6d 00000000499602d2"),
    4: bytes.fromhex("0004 000000000000002a 00000007 02 6d 00000000499602d2 00"),
}


@pytest.mark.parametrize("version", GOLDEN_VALUES)
def test_every_version_of_a_commit_is_read(version: int) -> None:
    assert decode_commit(GOLDEN_KEY, GOLDEN_VALUES[version]) == Commit("billing", "orders", 3, 42, 1_234_567_890)


def test_the_oldest_key_is_read_too() -> None:
    assert decode_commit(b"\0\0" + GOLDEN_KEY[2:], GOLDEN_VALUES[3]) is not None


def test_no_value_is_a_deleted_offset() -> None:
    assert decode_commit(GOLDEN_KEY, None) == Commit("billing", "orders", 3, None, -1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, GOLDEN_VALUES[3]),
        (b"", GOLDEN_VALUES[3]),
        (bytes.fromhex("0002 0007 62696c6c696e67"), b"\0\3"),
        (GOLDEN_KEY[:-1], GOLDEN_VALUES[3]),
        (GOLDEN_KEY, GOLDEN_VALUES[3][:-1]),
        (GOLDEN_KEY, b"\0\x63" + GOLDEN_VALUES[3][2:]),
        (GOLDEN_KEY, b""),
    ],
    ids=["no key", "empty key", "a group", "key cut off", "value cut off", "newer version", "empty value"],
)
def test_what_is_no_commit_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    assert decode_commit(key, value) is None


@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=60)))
def test_any_bytes_are_a_commit_or_not(key: bytes, value: bytes | None) -> None:
    decode_commit(key, value)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_what_is_written_is_read(group: str, topic: str, partition: int, offset: int) -> None:
    key, value = bytearray(b"\0\1"), bytearray(b"\0\3")
    encode(OffsetCommitKey(group=group, topic=topic, partition=partition), 1, key)
    encode(OffsetCommitValue(offset=offset, commit_timestamp=7), 3, value)
    assert decode_commit(bytes(key), bytes(value)) == Commit(group, topic, partition, offset, 7)


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [("", 0), ("a", 97), ("billing", -109829509), ("polygenelubricants", -(2**31)), ("zażółć 🚰", 0)],
)
def test_the_partition_of_a_group_follows_javas_hash(group: str, java_hash: int) -> None:
    if group.startswith("za"):
        # A character beyond 16 bits counts as the two halves that Java keeps of it.
        units = [*map(ord, "zażółć "), 0xD83D, 0xDEB0]
        for unit in units:
            java_hash = (java_hash * 31 + unit) & 0xFFFFFFFF
        java_hash -= (java_hash & 0x80000000) << 1
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert partition_of_group(group, 50) == expected


def classic(group: str, *members: str) -> tuple[bytes, bytes]:
    key, value = bytearray(b"\0\2"), bytearray(b"\0\3")
    encode(GroupMetadataKey(group=group), 2, key)
    encode(GroupMetadataValue(members=[GroupMetadataMember(member_id=name) for name in members]), 3, value)
    return bytes(key), bytes(value)


def member(group: str, name: str) -> bytes:
    return encode_key(ConsumerGroupMemberMetadataKey(group_id=group, member_id=name))


JOINED = encode_value(ConsumerGroupMemberMetadataValue())


@pytest.mark.parametrize(
    ("records", "is_empty"),
    [
        ([], False),
        ([classic("g", "a", "b")], False),
        ([classic("g", "a"), classic("g")], True),
        ([classic("g"), classic("g", "a")], False),
        ([classic("other")], False),
        ([(classic("g")[0], None)], True),
        ([(member("g", "a"), JOINED)], False),
        ([(member("g", "a"), JOINED), (member("g", "b"), JOINED), (member("g", "a"), None)], False),
        ([(member("g", "a"), JOINED), (member("g", "a"), None)], True),
        ([(member("g", "a"), None)], True),
    ],
)
def test_a_group_without_members_is_known_by_its_records(
    records: list[tuple[bytes, bytes | None]], is_empty: bool
) -> None:
    memberships = Memberships()
    for key, value in records:
        change = decode_members_change(key, value)
        assert change is not None
        memberships.take(change)
    assert memberships.is_empty("g") is is_empty


@given(st.one_of(st.none(), st.binary(max_size=60)), st.one_of(st.none(), st.binary(max_size=60)))
def test_any_bytes_are_a_change_of_members_or_not(key: bytes | None, value: bytes | None) -> None:
    decode_members_change(key, value)

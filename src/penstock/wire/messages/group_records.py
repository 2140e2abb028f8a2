"""The records of `__consumer_offsets` that hold offsets and classic groups, as Kafka's coordinators write them.

A key starts with an int16 that says what the record is, a value with its version. The other kinds of records in this
topic, those of consumer groups, are in `consumer_group_records`.
"""
# ruff: noqa: RUF012

from __future__ import annotations

from typing import Final

from penstock.wire.schema import Field, Message, Schema
from penstock.wire.uuids import ZERO_UUID

LEGACY_OFFSET_COMMIT_KEY: Final = 0
OFFSET_COMMIT_KEY: Final = 1
GROUP_METADATA_KEY: Final = 2


class OffsetCommitKey(Message):
    """Key types 0 (before Kafka 0.9) and 1: the same fields."""

    group: str = ""
    topic: str = ""
    partition: int = 0

    schema = Schema(
        "0-1",
        "none",
        (
            Field("group", "string"),
            Field("topic", "string"),
            Field("partition", "int32"),
        ),
    )


class OffsetCommitValue(Message):
    """Version 1 carries an expiry of its own (OffsetCommit 2 to 4), 3 the leader epoch (KIP-320), 4 the topic's id."""

    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = -1
    topic_id: bytes = ZERO_UUID

    schema = Schema(
        "0-4",
        "4+",
        (
            Field("offset", "int64"),
            Field("leader_epoch", "int32", "3+"),
            Field("metadata", "string"),
            Field("commit_timestamp", "int64"),
            Field("expire_timestamp", "int64", "1"),
            Field("topic_id", "uuid", "4+", tag=0, tagged="4+"),
        ),
    )


class GroupMetadataKey(Message):
    """Key type 2."""

    group: str = ""

    schema = Schema("2", "none", (Field("group", "string"),))


class GroupMetadataMember(Message):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int = -1
    session_timeout: int = 0
    subscription: bytes = b""
    assignment: bytes = b""

    schema = Schema(
        "0-4",
        "4+",
        (
            Field("member_id", "string"),
            Field("group_instance_id", "string", "3+", nullable="3+"),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("rebalance_timeout", "int32", "1+"),
            Field("session_timeout", "int32"),
            Field("subscription", "bytes"),
            Field("assignment", "bytes"),
        ),
    )


class GroupMetadataValue(Message):
    """One generation of a classic group. Version 2 adds the time of the last state change, 3 static members."""

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: int = -1
    members: list[GroupMetadataMember] = []

    schema = Schema(
        "0-4",
        "4+",
        (
            Field("protocol_type", "string"),
            Field("generation", "int32"),
            Field("protocol", "string", nullable="0+"),
            Field("leader", "string", nullable="0+"),
            Field("current_state_timestamp", "int64", "2+"),
            Field("members", GroupMetadataMember, array=True),
        ),
    )

"""The records of `__transaction_state`, as Kafka's transaction coordinator writes them.

A key starts with an int16 that says what the record is, a value with its version.
"""
# ruff: noqa: RUF012

from __future__ import annotations

from typing import Final

from penstock.wire.schema import Field, Message, Schema

TRANSACTION_LOG_KEY: Final = 0


class TransactionLogKey(Message):
    """Key type 0."""

    transactional_id: str = ""

    schema = Schema("0", "none", (Field("transactional_id", "string"),))


class PartitionsSchema(Message):
    topic: str = ""
    partition_ids: list[int] = []

    schema = Schema(
        "0-1",
        "1+",
        (
            Field("topic", "string"),
            Field("partition_ids", "int32", array=True),
        ),
    )


class TransactionLogValue(Message):
    """Version 1 is flexible. Tags: 0 the previous and 1 the next producer id and 2 the version of the client (KIP-890);
    3 the next epoch, for two-phase commit (KIP-939)."""

    producer_id: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = 0
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: list[PartitionsSchema] | None = None
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
    client_transaction_version: int = 0
    next_producer_epoch: int = -1

    schema = Schema(
        "0-1",
        "1+",
        (
            Field("producer_id", "int64"),
            Field("previous_producer_id", "int64", "1+", tag=0, tagged="1+"),
            Field("next_producer_id", "int64", "1+", tag=1, tagged="1+"),
            Field("producer_epoch", "int16"),
            Field("transaction_timeout_ms", "int32"),
            Field("transaction_status", "int8"),
            Field("transaction_partitions", PartitionsSchema, array=True, nullable="0+"),
            Field("transaction_last_update_timestamp_ms", "int64"),
            Field("transaction_start_timestamp_ms", "int64"),
            Field("client_transaction_version", "int16", "1+", tag=2, tagged="1+"),
            Field("next_producer_epoch", "int16", "1+", tag=3, tagged="1+"),
        ),
    )

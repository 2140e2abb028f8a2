"""Transactional ids ↔ records of `__transaction_state`, in Kafka's format."""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.transaction import NO_PRODUCER_ID, Transaction
from penstock.wire.codec import Limits, decode, encode
from penstock.wire.errors import WireError
from penstock.wire.messages.transaction_records import TRANSACTION_LOG_KEY, PartitionsSchema, TransactionLogValue

FLEXIBLE_VERSION: Final = 1
OLD_VERSION: Final = 0

_SHORT: Final = Struct(">h")
_KEY: Final = Struct(">hh")
_LIMITS: Final = Limits(max_elements=10_000_000)


def key_of(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return _KEY.pack(TRANSACTION_LOG_KEY, len(name)) + name


def transactional_id_of(key: bytes) -> str | None:
    """None for a record of another type, which this release does not know."""
    if len(key) < 2 or _SHORT.unpack_from(key)[0] != TRANSACTION_LOG_KEY:
        return None
    if len(key) < 4 or len(key) != 4 + _SHORT.unpack_from(key, 2)[0]:
        raise WireError("the length of a transactional id's key does not match its field")
    return str(key[4:], "utf-8")


def value_of(transaction: Transaction, *, flexible: bool) -> bytes:
    """The value of a record. `flexible`: `transaction.version` is 1 or higher, so all nodes can read version 1."""
    # Version 0 cannot hold the ids and the version. If there are any, a node that knows them wrote them before.
    flexible = flexible or transaction.version > 0 or transaction.previous_producer_id != NO_PRODUCER_ID
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    message = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        # As in Kafka: null for an id that was never used in a transaction.
        transaction_partitions=None
        if transaction.state is State.EMPTY
        else [PartitionsSchema(topic, partitions) for topic, partitions in topics.items()],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.version,
    )
    version = FLEXIBLE_VERSION if flexible else OLD_VERSION
    out = bytearray(_SHORT.pack(version))
    encode(message, version, out)
    return bytes(out)


def decoded(transactional_id: str, value: bytes) -> Transaction:
    if len(value) < 2:
        raise WireError("TransactionLogValue has no version")
    version = _SHORT.unpack_from(value)[0]
    if not OLD_VERSION <= version <= FLEXIBLE_VERSION:
        raise WireError(
            f"TransactionLogValue version {version} is unknown (0 to 1); was it written by a newer release?"
        )
    message = decode(TransactionLogValue, version, value, 2, limits=_LIMITS)[0]
    transaction = Transaction(
        transactional_id,
        message.producer_id,
        message.transaction_timeout_ms,
        message.transaction_last_update_timestamp_ms,
    )
    try:
        transaction.state = State(message.transaction_status)
    except ValueError:
        raise WireError(f"transaction status {message.transaction_status} is unknown") from None
    transaction.previous_producer_id = message.previous_producer_id
    transaction.next_producer_id = message.next_producer_id
    transaction.producer_epoch = message.producer_epoch
    transaction.started_ms = message.transaction_start_timestamp_ms
    transaction.version = message.client_transaction_version
    if not transaction.is_resting:
        transaction.partitions = {
            (topic.topic, partition): None
            for topic in message.transaction_partitions or ()
            for partition in topic.partition_ids
        }
    else:
        transaction.next_producer_id = NO_PRODUCER_ID
    return transaction


def size_bytes_max(transaction: Transaction, added: list[tuple[str, int]]) -> int:
    """An upper bound of the record's size with these partitions added."""
    topics = {topic for topic, _ in transaction.partitions} | {topic for topic, _ in added}
    names = sum(len(topic.encode()) + 16 for topic in topics)
    return 128 + len(transaction.transactional_id.encode()) + names + 4 * (len(transaction.partitions) + len(added))

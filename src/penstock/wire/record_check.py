"""Validates every record of a producer's batch, and reports the invalid ones.

A kernel does the work (`penstock.kernel.record_walk`). This module turns its findings into Kafka's errors:
INVALID_TIMESTAMP if a timestamp is out of range, otherwise INVALID_RECORD, with an entry per invalid record (KIP-467),
so that a producer can tell the invalid records of a batch from those that were refused with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.kernel import record_walk, walk
from penstock.wire.compression import Buffer
from penstock.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.kernel.record_walk import Problem

__all__ = [
    "NO_DETAILS",
    "TIMESTAMP_MAX",
    "TIMESTAMP_MIN",
    "RecordError",
    "RecordRules",
    "RecordsRefused",
    "check_records",
    "walk",
]

TIMESTAMP_MIN = record_walk.TIMESTAMP_MIN
TIMESTAMP_MAX = record_walk.TIMESTAMP_MAX
RECORD_ERRORS_MAX = 1_000
"""The most errors reported per batch. The walk ends there, since the batch is refused anyway."""
ERRORS_IN_MESSAGE = 3
NO_DETAILS: list[Problem] = []
"""For callers of `walk` that want only its result; with a limit of 0 nothing is ever added."""


class RecordError(NamedTuple):
    batch_index: int
    """The index of the record in the batch, from 0."""
    message: str


class RecordsRefused(KafkaError):
    """A batch was refused because of invalid records."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class RecordRules(NamedTuple):
    """A topic's requirements on records beyond their format."""

    earliest_ms: int = TIMESTAMP_MIN
    latest_ms: int = TIMESTAMP_MAX
    keys_required: bool = False


def check_records(payload: Buffer, count: int, base_timestamp: int, rules: RecordRules) -> int:
    """The largest timestamp of the `count` records in `payload`; raises RecordsRefused if any is invalid."""
    problems: list[Problem] = []
    largest = walk(payload, 0, count, base_timestamp, *rules, problems, RECORD_ERRORS_MAX)
    if problems:
        raise _refusal(problems, count, rules)
    assert largest != record_walk.REFUSED
    return largest


def _refusal(problems: list[Problem], count: int, rules: RecordRules) -> RecordsRefused:
    code = ErrorCode.INVALID_RECORD
    if any(kind == record_walk.WRONG_TIMESTAMP for _, kind, _ in problems):
        code = ErrorCode.INVALID_TIMESTAMP
    errors = tuple(
        RecordError(index, _message(kind, detail, rules))
        for index, kind, detail in problems
        if kind != record_walk.TRAILING_BYTES
    )
    index, kind, detail = problems[-1]
    if kind == record_walk.TRAILING_BYTES:
        # No single record is at fault: the count or the sizes of the whole batch are wrong.
        return RecordsRefused(code, f"{detail} bytes follow the last of the {index} records of the batch", errors)
    if kind == record_walk.CUT_OFF and len(errors) == 1:
        return RecordsRefused(code, f"the batch says it has {count} records, but record {index} does not fit", errors)
    number = str(len(errors)) if len(errors) < RECORD_ERRORS_MAX else f"at least {len(errors)}"
    shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:ERRORS_IN_MESSAGE])
    more = "; …" if len(errors) > ERRORS_IN_MESSAGE else ""
    message = f"{number} of {count} records were refused, and with them the batch ({shown}{more})"
    return RecordsRefused(code, message, errors)


def _message(kind: int, detail: int, rules: RecordRules) -> str:
    if kind == record_walk.NO_KEY:
        return "Compacted topic cannot accept message without key"
    if kind == record_walk.WRONG_OFFSET:
        return f"offset delta {detail} is not the record's position in the batch"
    if kind == record_walk.WRONG_TIMESTAMP:
        return (
            f"timestamp {detail} is not between {rules.earliest_ms} and {rules.latest_ms} "
            "(message.timestamp.before.max.ms and .after.max.ms of the topic)"
        )
    if kind == record_walk.CUT_OFF:
        return "its length is malformed or reaches beyond the batch"
    assert kind == record_walk.MALFORMED
    return "its fields are malformed or do not add up to its length"

"""Encoding of Produce responses, written by hand for speed: every produce request gets one."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.broker.limits import RECORD_ERRORS_BYTES_MAX
from penstock.broker.replicas.partition import Partition
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.produce import ONE
from penstock.wire.record_check import RecordError, RecordsRefused
from penstock.wire.records import write_unsigned_varint

_pack_int = Struct(">i").pack
_pack_short = Struct(">h").pack
_pack_int_into = Struct(">i").pack_into
_pack_head = Struct(">ii").pack
_pack_result = Struct(">ihqqq").pack
_pack_result_v4 = Struct(">ihqq").pack

_pack_single_head = Struct(">iiBB").pack
_pack_single_result = Struct(">Bihqqq").pack
_pack_single_tail = Struct(">BHBiB").pack
SINGLE_TAIL = _pack_single_tail(1, 0, 0, 0, 0)
"""No record errors, no message, no tagged fields of partition and topic, no throttling, no tagged fields."""

_CURRENT_LEADER_TAG = b"\x01\x00\x09"
"""One tagged field, tag 0, nine bytes: leader id, leader epoch, and no tagged fields of its own."""


class Result(NamedTuple):
    """The result for one partition of the request."""

    number: int
    """The partition's index."""
    error: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    leader: tuple[int, int] | None = None
    record_errors: tuple[RecordError, ...] = ()


TopicResults = list[tuple[bytes, list[Result]]]
"""A topic as it was on the wire (name or id), and the results of its partitions."""


def refused(partition: Partition, error: KafkaError) -> Result:
    leader = None
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader = (partition.leader_id, partition.leader_epoch)
    record_errors = error.record_errors if isinstance(error, RecordsRefused) else ()
    return Result(partition.index, error.code, message=error.message, leader=leader, record_errors=record_errors)


def encode(version: int, correlation_id: int, results: TopicResults, throttle_ms: int = 0) -> bytearray:
    """The response with its length prefix."""
    flexible = version >= 9
    out = bytearray(_pack_head(0, correlation_id))
    if flexible:
        out.append(0)
        write_unsigned_varint(out, len(results) + 1)
    else:
        out += _pack_int(len(results))
    for topic, outcome in results:
        if version >= 13:
            out += topic
        elif flexible:
            write_unsigned_varint(out, len(topic) + 1)
            out += topic
        else:
            out += _pack_short(len(topic))
            out += topic
        if flexible:
            write_unsigned_varint(out, len(outcome) + 1)
        else:
            out += _pack_int(len(outcome))
        for number, error, base_offset, append_time_ms, log_start_offset, message, leader, record_errors in outcome:
            if version >= 5:
                out += _pack_result(number, error, base_offset, append_time_ms, log_start_offset)
            else:
                out += _pack_result_v4(number, error, base_offset, append_time_ms)
            if len(out) > RECORD_ERRORS_BYTES_MAX:
                record_errors = ()
            if flexible:
                _add_record_errors(out, record_errors)
                if message is None:
                    out.append(0)
                else:
                    text = message.encode()
                    write_unsigned_varint(out, len(text) + 1)
                    out += text
                if leader is not None and version >= 10:
                    out += _CURRENT_LEADER_TAG
                    out += _pack_head(*leader)
                out.append(0)
            elif version >= 8:
                _add_record_errors_v8(out, record_errors)
                if message is None:
                    out += b"\xff\xff"
                else:
                    text = message.encode()
                    out += _pack_short(len(text))
                    out += text
        if flexible:
            out.append(0)
    out += _pack_int(throttle_ms)
    if flexible:
        out.append(0)
    _pack_int_into(out, 0, len(out) - 4)
    return out


def encode_single(
    correlation_id: int,
    named: bytes,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_ms: int,
) -> bytes:
    """What `encode` gives for one partition without an error, in flexible versions. `named` is that of `Single`."""
    return (
        _pack_single_head(len(named) + 46, correlation_id, 0, ONE)
        + named
        + _pack_single_result(ONE, index, 0, base_offset, log_append_time_ms, log_start_offset)
        + (SINGLE_TAIL if not throttle_ms else _pack_single_tail(1, 0, 0, throttle_ms, 0))
    )


def _add_record_errors(out: bytearray, errors: tuple[RecordError, ...]) -> None:
    write_unsigned_varint(out, len(errors) + 1)
    for batch_index, message in errors:
        text = message.encode()
        out += _pack_int(batch_index)
        write_unsigned_varint(out, len(text) + 1)
        out += text
        out.append(0)


def _add_record_errors_v8(out: bytearray, errors: tuple[RecordError, ...]) -> None:
    out += _pack_int(len(errors))
    for batch_index, message in errors:
        text = message.encode()
        out += _pack_int(batch_index)
        out += _pack_short(len(text))
        out += text

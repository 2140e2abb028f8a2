"""Durable changes: each function changes the group and appends the matching record.

Only these functions may change durable state. Callers must validate first, because a change cannot be undone. The
records of one decision must fit into one batch, or the host closes the shard; so a record that is too large is refused
before anything is changed.
"""

from __future__ import annotations

from typing import Final, Protocol

from penstock.coordinators.groups.consumer import records
from penstock.coordinators.groups.consumer.assignors import Assignment
from penstock.coordinators.groups.consumer.group import ConsumerGroup, ResolvedRegex
from penstock.coordinators.groups.consumer.member import CurrentAssignment, MemberMetadata
from penstock.coordinators.shard import Turn
from penstock.wire.errors import ErrorCode, KafkaError

RECORD_BYTES_MAX: Final = 256 * 1024
"""A quarter of the largest batch of the offsets topic: a decision has only a few records that can grow."""


class Appender(Protocol):
    """The part of `Turn` that appends records."""

    def append(self, key: bytes, value: bytes | None) -> None: ...


def put_epoch(turn: Turn, group: ConsumerGroup, epoch: int, metadata_hash: int) -> None:
    assert epoch == group.epoch + 1, f"{group.group_id}: from epoch {group.epoch} to {epoch}"
    group.set_epoch(epoch, metadata_hash)
    turn.append(records.group_key(group.group_id), records.group_value(epoch, metadata_hash))
    if group.has_partition_metadata:
        group.has_partition_metadata = False
        turn.append(records.partition_metadata_key(group.group_id), None)


def put_metadata(turn: Turn, group: ConsumerGroup, member_id: str, metadata: MemberMetadata) -> None:
    value = _checked(records.member_value(metadata), "what the member subscribes to")
    group.set_metadata(member_id, metadata)
    turn.append(records.member_key(group.group_id, member_id), value)


def check_metadata(metadata: MemberMetadata) -> None:
    """Raises what `put_metadata` would."""
    _checked(records.member_value(metadata), "what the member subscribes to")


def put_current(turn: Turn, group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> None:
    value = _checked(records.current_value(current), "what the member owns")
    group.set_current(member_id, current)
    turn.append(records.current_key(group.group_id, member_id), value)


def put_target(turn: Turn, group: ConsumerGroup, member_id: str, assignment: Assignment) -> int:
    """Returns the size of what was appended."""
    key = records.target_key(group.group_id, member_id)
    value = _checked(records.target_value(assignment), "what the member is to own")
    group.set_target(member_id, assignment)
    turn.append(key, value)
    return len(key) + len(value)


def put_assignment_epoch(turn: Turn, group: ConsumerGroup, epoch: int, timestamp_ms: int) -> None:
    assert group.assignment_epoch < epoch <= group.epoch, f"{group.group_id}: a target of epoch {epoch}"
    group.set_assignment_epoch(epoch, timestamp_ms)
    turn.append(records.target_epoch_key(group.group_id), records.target_epoch_value(epoch, timestamp_ms))


def put_resolved(turn: Turn, group: ConsumerGroup, regex: str, resolved: ResolvedRegex | None) -> None:
    value = None
    if resolved is not None:
        value = records.regex_value(resolved.topics, resolved.version, resolved.timestamp_ms)
        _checked(value, f"what `{regex}` matches")
    group.set_resolved(regex, resolved)
    turn.append(records.regex_key(group.group_id, regex), value)


def remove_member(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Remove a member. Replay needs this order of tombstones: current assignment, target assignment, member."""
    group.clear_current(member_id)
    turn.append(records.current_key(group.group_id, member_id), None)
    group.set_target(member_id, None)
    turn.append(records.target_key(group.group_id, member_id), None)
    group.remove_member(member_id)
    turn.append(records.member_key(group.group_id, member_id), None)


def append_tombstones(turn: Appender, group: ConsumerGroup) -> None:
    """Append tombstones for all records of the group. The caller removes the object."""
    group_id = group.group_id
    for member_id in group.members:
        turn.append(records.current_key(group_id, member_id), None)
    for member_id in group.members:
        turn.append(records.target_key(group_id, member_id), None)
    turn.append(records.target_epoch_key(group_id), None)
    for member_id in group.members:
        turn.append(records.member_key(group_id, member_id), None)
    for regex in group.resolved:
        turn.append(records.regex_key(group_id, regex), None)
    if group.has_partition_metadata:
        turn.append(records.partition_metadata_key(group_id), None)
    turn.append(records.group_key(group_id), None)


def append_all(turn: Appender, group: ConsumerGroup) -> None:
    """Append all records of a group that was converted from another type."""
    group_id = group.group_id
    for member_id, member in group.members.items():
        turn.append(records.member_key(group_id, member_id), records.member_value(member.metadata))
    turn.append(records.group_key(group_id), records.group_value(group.epoch, group.metadata_hash))
    for member_id, assignment in group.targets.items():
        turn.append(records.target_key(group_id, member_id), records.target_value(assignment))
    turn.append(
        records.target_epoch_key(group_id),
        records.target_epoch_value(group.assignment_epoch, group.assignment_timestamp_ms),
    )
    for member_id, member in group.members.items():
        turn.append(records.current_key(group_id, member_id), records.current_value(member.current))


def _checked(value: bytes, what: str) -> bytes:
    if len(value) > RECORD_BYTES_MAX:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The record of {what} takes {len(value)} bytes, at most {RECORD_BYTES_MAX} can be stored: "
            "use fewer topics or partitions in this group.",
        )
    return value

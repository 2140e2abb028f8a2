"""Moves a member from its current to its target assignment, with at most one owner per partition at any time.

    what the member owns now                      what is asked of it
    ───────────────────────────────────────────   ────────────────────────────────────────────────────────────────
    partitions that are not in its target         UNREVOKED_PARTITIONS: keep the epoch, give them up and say so
    none of those, and all of its target is free  STABLE: all of the target, in the target's epoch
    none of those, some of its target is held     UNRELEASED_PARTITIONS: what is free, in the target's epoch;
      by others still                               the rest as it becomes free

A heartbeat lists the partitions that the member owns. A partition is released when it is no longer listed, or when the
member is removed. A member that changed its subscription loses the topics it dropped at once, even if the next target
has not been computed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from penstock.coordinators.groups.consumer.assignors import Assignment
from penstock.coordinators.groups.consumer.member import (
    NOTHING_OWNED,
    CurrentAssignment,
    MemberState,
    Owned,
)
from penstock.wire.errors import ErrorCode, KafkaError

_NO_PARTITIONS: Final[Mapping[int, int]] = {}


class TopicPartitions(Protocol):
    """Partitions of a topic, as in a heartbeat."""

    topic_id: bytes
    partitions: list[int]


class Target:
    """The target of a member, and the checks that reconciliation needs."""

    __slots__ = ("assignment", "epoch", "held_by_other", "wants")

    def __init__(
        self,
        assignment: Assignment,
        epoch: int,
        wants: Callable[[bytes], bool],
        held_by_other: Callable[[bytes, int], bool],
    ) -> None:
        self.assignment = assignment
        self.epoch = epoch
        self.wants = wants
        """Whether the member subscribes to a topic."""
        self.held_by_other = held_by_other
        """Whether another member owns a partition, or has not confirmed its revocation yet."""


def reconcile(
    current: CurrentAssignment,
    target: Target,
    owned: Sequence[TopicPartitions] | None,
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """The next state, or the same object if nothing changes. `owned` is None if the heartbeat does not list it."""
    match current.state:
        case MemberState.STABLE:
            if current.epoch != target.epoch:
                return _advance(current, target, owned, current.epoch)
            if subscription_changed:
                return _drop_unwanted(current, target, owned)
            return current
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, current.revoking):
                return _drop_unwanted(current, target, owned) if subscription_changed else current
            # Revoking partitions after a change of subscription must not advance the epoch past the existing target.
            return _advance(current, target, owned, min(current.epoch + 1, target.epoch))
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(current, target, owned, current.epoch)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                    "rejoin.",
                )
            return _advance(current, target, owned, target.epoch)


def _advance(
    current: CurrentAssignment, target: Target, owned: Sequence[TopicPartitions] | None, epoch: int
) -> CurrentAssignment:
    """Move as far towards the target as one heartbeat allows. `epoch` is kept while the member must revoke."""
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    for topic_id, partitions in current.assigned.items():
        wanted = frozenset(target.assignment.get(topic_id, ()) if target.wants(topic_id) else ())
        kept = {partition: since for partition, since in partitions.items() if partition in wanted}
        if len(kept) < len(partitions):
            revoking[topic_id] = {number: since for number, since in partitions.items() if number not in wanted}
        if kept:
            assigned[topic_id] = kept
    if revoking and _still_owns(owned, revoking):
        return _changed(current, epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)

    state = MemberState.STABLE
    for topic_id, wanted_partitions in target.assignment.items():
        if not target.wants(topic_id):
            continue
        mine = assigned.get(topic_id, _NO_PARTITIONS)
        if len(mine) == len(wanted_partitions):
            continue
        missing = [partition for partition in wanted_partitions if partition not in mine]
        free = [partition for partition in missing if not target.held_by_other(topic_id, partition)]
        if len(free) < len(missing):
            state = MemberState.UNRELEASED_PARTITIONS
        if free:
            assigned[topic_id] = {**mine, **dict.fromkeys(free, target.epoch)}
    return _changed(current, target.epoch, state, assigned, NOTHING_OWNED)


def _drop_unwanted(
    current: CurrentAssignment, target: Target, owned: Sequence[TopicPartitions] | None
) -> CurrentAssignment:
    """Revoke topics that the member no longer subscribes to; other changes wait for the next target."""
    dropped = {topic_id: parts for topic_id, parts in current.assigned.items() if not target.wants(topic_id)}
    if not dropped:
        return current
    assigned = {topic_id: parts for topic_id, parts in current.assigned.items() if topic_id not in dropped}
    revoking: dict[bytes, dict[int, int]] = {topic_id: dict(parts) for topic_id, parts in current.revoking.items()}
    for topic_id, parts in dropped.items():
        revoking.setdefault(topic_id, {}).update(parts)
    if _still_owns(owned, revoking):
        return _changed(current, current.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    assert current.state is not MemberState.UNREVOKED_PARTITIONS, "a member that still revokes must not get here"
    return _changed(current, current.epoch, current.state, assigned, current.revoking)


def _changed(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Owned, revoking: Owned
) -> CurrentAssignment:
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    changed = CurrentAssignment(epoch, previous, state, assigned, revoking)
    return current if changed == current else changed


def _still_owns(owned: Sequence[TopicPartitions] | None, revoking: Owned) -> bool:
    if owned is None:
        return True
    for topic in owned:
        partitions = revoking.get(topic.topic_id)
        if partitions and any(partition in partitions for partition in topic.partitions):
            return True
    return False

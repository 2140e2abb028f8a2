"""The three steps after every heartbeat: group epoch, target assignment, the member's current assignment.

1. **Epoch.** If the members, their subscriptions or the topics behind these have changed, the group epoch grows by one.
   Changes of topics are detected by a hash over id, name and number of partitions, which is stored with the epoch, so
   that changes are also detected after a restart. (Kafka hashes racks as well, which its assignors do not use; a
   coordinator only compares the hash with its own.)
2. **Target.** If the group epoch is ahead of the assignment's, the targets of all members are computed again, at most
   once per `group.consumer.assignment.interval.ms` (KIP-1263): while a thousand members join, one assignment a second
   is enough.
3. **Reconciliation.** The member that sent the heartbeat moves towards its target as far as possible
   (`reconciliation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from struct import Struct
from typing import Final

from penstock.coordinators.groups.config import GroupConfig
from penstock.coordinators.groups.consumer import changes
from penstock.coordinators.groups.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec
from penstock.coordinators.groups.consumer.group import NO_TIMESTAMP, ConsumerGroup, TargetUpdate
from penstock.coordinators.groups.consumer.member import Member, MemberMetadata
from penstock.coordinators.groups.consumer.reconciliation import Target, TopicPartitions, reconcile
from penstock.coordinators.shard import TimerKey, Turn
from penstock.metadata import MetadataImage
from penstock.wire.errors import KafkaError

_TOPIC_HASH_HEAD: Final = Struct(">16sii")
NO_TOPICS_HASH: Final = 0
RECORD_OVERHEAD_BYTES: Final = 32


def metadata_hash(topics: Sequence[str], image: MetadataImage) -> int:
    """A hash that identifies the topics of a subscription. 0 if none of them exists."""
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(topics):
        topic = image.topic(name)
        if topic is not None:
            encoded = name.encode()
            digest.update(_TOPIC_HASH_HEAD.pack(topic.topic_id, len(topic.partitions), len(encoded)) + encoded)
            found = True
    return int.from_bytes(digest.digest(), "big", signed=True) if found else NO_TOPICS_HASH


def bump_epoch_if_due(turn: Turn, group: ConsumerGroup, *, force: bool) -> None:
    """Step one. `force` if members or subscriptions have changed."""
    if group.refresh_due:
        group.refresh_due = False
        hashed = metadata_hash(list(group.topics), turn.image)
        if force or hashed != group.metadata_hash:
            changes.put_epoch(turn, group, group.epoch + 1, hashed)
    elif force:
        changes.put_epoch(turn, group, group.epoch + 1, group.metadata_hash)


def update_target_if_due(turn: Turn, group: ConsumerGroup, config: GroupConfig, interval_ms: int) -> None:
    """Step two."""
    if group.epoch <= group.assignment_epoch or group.target_update is not None:
        return
    made_at_ms = group.assignment_timestamp_ms
    # If the wall clock was set back, assignments must not be delayed: hence the lower bound.
    if made_at_ms != NO_TIMESTAMP and 0 <= turn.wall_ms - made_at_ms < interval_ms:
        return
    assignor = ASSIGNORS[group.preferred_assignor(config.group_consumer_assignors)]
    targets = group.targets
    changed = [
        (member_id, assignment)
        for member_id, assignment in assignor(group_spec(group, turn.image)).items()
        if targets.get(member_id) is not assignment
    ]
    changed.reverse()
    group.target_update = TargetUpdate(group.epoch, changed)
    write_target(group, config, turn)


def _continue_target(group: ConsumerGroup, config: GroupConfig, turn: Turn, key: TimerKey) -> None:
    write_target(group, config, turn)


def write_target(group: ConsumerGroup, config: GroupConfig, turn: Turn) -> None:
    """Write the targets that changed: at once, or in portions if they do not fit into one batch.

    The epoch is written last. Until then members use the old one, and after a crash in between the assignment is
    computed again. Two members may temporarily have the same partition in their targets. That is harmless, because a
    member gets a partition only when no other member owns it.
    """
    update = group.target_update
    assert update is not None
    left_bytes = config.batch_bytes_max // 4
    try:
        while update.left:
            if left_bytes < 0:
                turn.set_timer(("target", group.group_id), 0, partial(_continue_target, group, config))
                return
            member_id, assignment = update.left.pop()
            if member_id in group.members:
                left_bytes -= changes.put_target(turn, group, member_id, assignment) + RECORD_OVERHEAD_BYTES
    except KafkaError:
        group.target_update = None
        raise
    group.target_update = None
    changes.put_assignment_epoch(turn, group, update.epoch, turn.wall_ms)


def group_spec(group: ConsumerGroup, image: MetadataImage) -> GroupSpec:
    """The group as assignors see it."""
    counts: dict[bytes, int] = {}
    subscriptions: dict[tuple[tuple[str, ...], str | None], tuple[bytes, ...]] = {}
    interned: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
    members: list[MemberSpec] = []
    for member_id, member in group.members.items():
        metadata = member.metadata
        key = (metadata.topic_names, metadata.topic_regex)
        topics = subscriptions.get(key)
        if topics is None:
            topics = _topic_ids(group, metadata, image, counts)
            # Different subscriptions may resolve to the same topics.
            topics = subscriptions[key] = interned.setdefault(topics, topics)
        members.append(MemberSpec(member_id, metadata.instance_id, topics, group.target(member_id)))
    return GroupSpec(members, counts)


def _topic_ids(
    group: ConsumerGroup, metadata: MemberMetadata, image: MetadataImage, counts: dict[bytes, int]
) -> tuple[bytes, ...]:
    """The topics of a subscription that exist, in the order of their names."""
    resolved = group.resolved.get(metadata.topic_regex) if metadata.topic_regex else None
    names = metadata.topic_names
    if resolved is not None and resolved.topics:
        names = tuple(dict.fromkeys(sorted(names + resolved.topics)))
    ids = []
    for name in names:
        topic = image.topic(name)
        if topic is not None:
            counts[topic.topic_id] = len(topic.partitions)
            ids.append(topic.topic_id)
    return tuple(ids)


def reconcile_member(
    turn: Turn,
    group: ConsumerGroup,
    member: Member,
    owned: Sequence[TopicPartitions] | None,
    *,
    subscription_changed: bool,
) -> bool:
    """Step three. True if the member's assignment record was written."""
    current = member.current
    if not subscription_changed and current.is_reconciled_to(group.assignment_epoch):
        return False
    target = Target(
        group.target(member.member_id),
        group.assignment_epoch,
        partial(_wants, group.subscription(member.metadata), turn.image),
        partial(_held_by_other, group, member.member_id),
    )
    updated = reconcile(current, target, owned, subscription_changed=subscription_changed)
    if updated is current:
        return False
    changes.put_current(turn, group, member.member_id, updated)
    return True


def _wants(names: frozenset[str], image: MetadataImage, topic_id: bytes) -> bool:
    topic = image.topic_by_id(topic_id)
    return topic is not None and topic.name in names


def _held_by_other(group: ConsumerGroup, member_id: str, topic_id: bytes, partition: int) -> bool:
    owner = group.owner(topic_id, partition)
    return owner is not None and owner != member_id

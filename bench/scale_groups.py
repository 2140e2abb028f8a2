"""The pure coordinator with thousands of groups: every member joins, gets its partitions and beats."""

from __future__ import annotations

import gc
from collections.abc import Callable

from bench.scale_controller import Measured, Said, resident_bytes, timed
from coordinators.support import ShardDriver
from penstock.coordinators.groups import GroupConfig, GroupShard, RequestInfo
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

MEMBERS_PER_GROUP = 20
TOPIC = "events"
PARTITIONS = 40
INFO = RequestInfo(1, "client", "/127.0.0.1")
ROUNDS_MAX = 12


def measure(groups: int, said: Said) -> Measured:
    """`groups` consumer groups (KIP-848) of twenty members each, on one shard."""
    before_bytes = resident_bytes()
    shard = GroupShard(GroupConfig(group_consumer_assignment_interval_ms=0))
    driver = ShardDriver(shard)
    driver.create_topic(TOPIC, PARTITIONS)
    members = [
        Member(driver, shard, f"group-{group:05d}", f"member-{number:02d}")
        for group in range(groups)
        for number in range(MEMBERS_PER_GROUP)
    ]
    said("members join")
    join_s = timed(lambda: all_do(members, Member.join))
    said("assignments settle")
    beats = settle(driver, members)
    assert sum(len(member.owned) for member in members) == groups * PARTITIONS
    said("heartbeats")
    driver.take_records()
    beat_s = timed(lambda: all_do(members, Member.beat))
    assert not driver.take_records(), "a group at rest writes nothing"
    said("commits")
    commit_s = timed(lambda: all_do(members, Member.commit))
    driver.take_records()
    driver.timers.clear()
    gc.collect()
    count = len(members)
    return {
        "groups": groups,
        "members": count,
        "join_us": join_s * 1e6 / count,
        "heartbeats_to_settle": beats / count,
        "heartbeat_us": beat_s * 1e6 / count,
        "commit_us": commit_s * 1e6 / count,
        "member_kb": (resident_bytes() - before_bytes) / 1e3 / count,
    }


def all_do(members: list[Member], work: Callable[[Member], object]) -> None:
    for member in members:
        work(member)


def settle(driver: ShardDriver, members: list[Member]) -> int:
    """Until every partition of every group is with one member; how many heartbeats that took."""
    beats = 0
    for _ in range(ROUNDS_MAX):
        changed = 0
        for member in members:
            changed += member.beat()
            beats += 1
        # What was logged is a coordinator's log, not its memory.
        driver.take_records()
        if not changed:
            return beats
    raise AssertionError("the groups never settled")


class Member:
    """A client that takes what it is given, and says so."""

    __slots__ = ("_driver", "_group", "_id", "_shard", "epoch", "owned")

    def __init__(self, driver: ShardDriver, shard: GroupShard, group: str, member_id: str) -> None:
        self._driver = driver
        self._shard = shard
        self._group = group
        self._id = member_id
        self.epoch = 0
        self.owned: tuple[int, ...] = ()

    def join(self) -> None:
        self._heartbeat(rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC], topic_partitions=[])

    def beat(self) -> bool:
        """Whether anything was new."""
        answer = self._heartbeat(topic_partitions=None)
        if answer.assignment is None:
            return False
        self.owned = tuple(p for topic in answer.assignment.topic_partitions for p in topic.partitions)
        topic = self._driver.image.topic(TOPIC)
        assert topic is not None
        owned = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic.topic_id, partitions=list(self.owned))]
        self._heartbeat(topic_partitions=owned if self.owned else [])
        return True

    def commit(self) -> None:
        entries = [OffsetCommitRequestPartition(partition_index=p, committed_offset=1) for p in self.owned]
        request = OffsetCommitRequest(
            group_id=self._group,
            member_id=self._id,
            generation_id_or_member_epoch=self.epoch,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=entries)],
        )
        info = RequestInfo(9, "client", "/127.0.0.1")
        self._driver.call(lambda turn, ticket: self._shard.offset_commit(turn, ticket, info, request))

    def _heartbeat(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=self.epoch,
            **fields,  # type: ignore[arg-type]
        )
        call = self._driver.call(lambda turn, ticket: self._shard.consumer_group_heartbeat(turn, ticket, INFO, request))
        answer = call.response
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert not answer.error_code, answer
        self.epoch = answer.member_epoch
        return answer

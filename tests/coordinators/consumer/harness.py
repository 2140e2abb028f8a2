"""A group shard, and consumers that behave as real ones do: they know only what they were told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from coordinators.support import Answer, ShardDriver
from penstock.coordinators.groups import GroupConfig, GroupShard, RequestInfo
from penstock.coordinators.groups.classic_group import ClassicGroup
from penstock.coordinators.groups.consumer import ConsumerGroup
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import DescribedGroup
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsResponse

M = TypeVar("M", bound=Message)

GROUP = "orders-app"
HEARTBEAT_INTERVAL_MS = 5_000
SESSION_TIMEOUT_MS = 45_000

Partition = tuple[str, int]
"""Topic name and number."""

FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
"""Errors after which a member has nothing and starts again."""

CONFIG = GroupConfig(group_consumer_assignment_interval_ms=0)


class Cluster:
    """One shard with its metadata and its clock."""

    def __init__(self, config: GroupConfig = CONFIG, **topics: int) -> None:
        self.shard = GroupShard(config)
        self.driver = ShardDriver(self.shard)
        for name, partitions in topics.items():
            self.driver.create_topic(name, partitions)

    # -- requests ----------------------------------------------------------------------------------------------------

    def heartbeat(self, version: int = 1, **fields: object) -> ConsumerGroupHeartbeatResponse:
        sent = {"group_id": GROUP, "topic_partitions": None, **fields}
        request = ConsumerGroupHeartbeatRequest(**sent)  # type: ignore[arg-type]
        info = RequestInfo(version, "client", "/127.0.0.1")
        answer = self.driver.call(lambda turn, ticket: self.shard.consumer_group_heartbeat(turn, ticket, info, request))
        return answered(answer, ConsumerGroupHeartbeatResponse)

    def join(
        self, member_id: str = "m", topics: Iterable[str] = ("orders",), **fields: object
    ) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat of a member."""
        return self.heartbeat(
            **{
                "member_id": member_id,
                "member_epoch": 0,
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": list(topics),
                "topic_partitions": [],
                **fields,
            }  # type: ignore[arg-type]
        )

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        info = RequestInfo(1, "admin", "/127.0.0.1")
        call = self.driver.call(
            lambda turn, ticket: self.shard.consumer_group_describe_group(turn, ticket, info, group_id)
        )
        return answered(call, DescribedGroup)

    def listed(self, states: list[str] | None = None, types: list[str] | None = None) -> list[ListedGroup]:
        call = self.driver.call(lambda turn, ticket: self.shard.list_groups(turn, ticket, states or [], types or []))
        return answered(call, ListGroupsResponse).groups

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def classic_group(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def topic_id(self, name: str) -> bytes:
        topic = self.driver.image.topic(name)
        assert topic is not None
        return topic.topic_id

    def name_of(self, topic_id: bytes) -> str:
        topic = self.driver.image.topic_by_id(topic_id)
        return topic.name if topic is not None else f"deleted-{topic_id.hex()}"

    def advance(self, duration_ms: float) -> None:
        self.driver.advance(duration_ms)

    def reloaded(self) -> GroupShard:
        """A fresh shard with what this one wrote."""
        shard = GroupShard(self.shard.config)
        self.driver.reload(shard)
        return shard

    def assert_replay_gives_the_same(self) -> None:
        assert self.reloaded().durable_state() == self.shard.durable_state()

    def restart(self) -> None:
        """The coordinator moves: another one loads the log and goes on."""
        shard = GroupShard(self.shard.config)
        self.driver = self.driver.reload(shard)
        self.shard = shard


def answered(answer: Answer, kind: type[M]) -> M:
    assert isinstance(answer.response, kind)
    return answer.response


class Consumer:
    """A client of the consumer protocol. It gives up partitions when it is let (`settle`) and then tells so."""

    def __init__(
        self,
        cluster: Cluster,
        member_id: str,
        topics: Iterable[str] = ("orders",),
        *,
        instance_id: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.topics = list(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = 0
        self.owned: dict[Partition, None] = {}
        """What it consumes: what it was given and has not given up."""
        self.told: dict[Partition, None] = {}
        """What it was last told to own."""
        self.alive = False
        self._acknowledged = True
        self._topic_ids: dict[str, bytes] = {}
        self._unsure = False

    def lose_an_answer(self) -> None:
        """The coordinator hears it, and it never hears back: the next time it tells and asks for everything."""
        if self.epoch:
            if self._unsure:
                self._forget_what_is_not_owned()
            epoch, told, owned = self.epoch, dict(self.told), dict(self.owned)
            self.beat()
            self.epoch, self.told, self.owned = epoch, told, owned
            self._acknowledged = False
            self._unsure = True

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.abandon()
        self.alive = True
        response = self.cluster.join(
            self.member_id,
            self.topics,
            instance_id=self.instance_id,
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
        )
        self._hear(response)
        return response

    def beat(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat. It tells what it owns when it has done what it was told."""
        if self.epoch == 0:
            return self.join()
        acknowledges = not self._acknowledged and self.owned.keys() == self.told.keys()
        request: dict[str, object] = {
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "topic_partitions": self._topic_partitions() if acknowledges else None,
        }
        if self._unsure:
            request |= {
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "subscribed_topic_names": self.topics,
                "subscribed_topic_regex": self.regex,
                "topic_partitions": self._topic_partitions(),
            }
            self._unsure = False
            self._forget_what_is_not_owned()
        response = self.cluster.heartbeat(**(request | fields))  # type: ignore[arg-type]
        if response.error_code == 0:
            self._acknowledged |= acknowledges
        self._hear(response)
        return response

    def settle(self) -> None:
        """Give up what it shall not own any more, then take what is new."""
        for partition in [p for p in self.owned if p not in self.told]:
            del self.owned[partition]
        for partition in self.told:
            self.owned.setdefault(partition)

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        self.abandon()
        self.alive = False
        return self.cluster.heartbeat(member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id)

    def die(self) -> None:
        """Without a word."""
        self.abandon()
        self.alive = False

    def abandon(self) -> None:
        self.epoch = 0
        self.owned.clear()
        self.told.clear()
        self._acknowledged = True

    def _forget_what_is_not_owned(self) -> None:
        """What it says it does not own it does not take before it is told again."""
        self.told = {partition: None for partition in self.told if partition in self.owned}

    def _hear(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code in FENCED:
            self.abandon()
            return
        if response.error_code:
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self._acknowledged = False
            for topic in response.assignment.topic_partitions:
                self._topic_ids[self.cluster.name_of(topic.topic_id)] = topic.topic_id
            self.told = {
                (self.cluster.name_of(topic.topic_id), partition): None
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }

    def _topic_partitions(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        topics: dict[str, list[int]] = {}
        for name, partition in self.owned:
            topics.setdefault(name, []).append(partition)
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(self._topic_ids[name], partitions)
            for name, partitions in topics.items()
        ]


def rounds(consumers: Iterable[Consumer], count: int = 5) -> None:
    """Everyone beats and does what it is told, time after time."""
    for _ in range(count):
        for consumer in consumers:
            if consumer.alive:
                consumer.beat()
                consumer.settle()
                assert_one_owner(consumers)
        for consumer in consumers:
            consumer.cluster.advance(HEARTBEAT_INTERVAL_MS)
            break


def assert_one_owner(consumers: Iterable[Consumer]) -> None:
    owners: dict[Partition, str] = {}
    for consumer in consumers:
        for partition in consumer.owned:
            assert partition not in owners, f"{partition}: {owners[partition]} and {consumer.member_id}"
            owners[partition] = consumer.member_id


def all_partitions(cluster: Cluster, *topics: str) -> list[Partition]:
    found = []
    for name in topics:
        topic = cluster.driver.image.topic(name)
        assert topic is not None
        found += [(name, number) for number in range(len(topic.partitions))]
    return sorted(found)


def owned_by_all(consumers: Iterable[Consumer]) -> list[Partition]:
    return sorted(partition for consumer in consumers for partition in consumer.owned)

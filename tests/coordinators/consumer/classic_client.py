"""A consumer of the classic protocol, eager or cooperative, that does not care what kind of group it is in."""

from __future__ import annotations

from struct import Struct
from typing import cast

from coordinators.consumer.harness import GROUP, Cluster, Partition
from coordinators.support import Answer
from penstock.coordinators.groups import RequestInfo
from penstock.coordinators.groups.consumer.embedded import read_assignment, read_subscription
from penstock.wire.codec import to_bytes
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from penstock.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from penstock.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedTopicPartition
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

INFO = RequestInfo(9, "classic-client", "/127.0.0.1")
_VERSION = Struct(">h")


def embedded_subscription(topics: list[str], owned: list[Partition], version: int = 3) -> bytes:
    by_topic = [OwnedTopicPartition(*entry) for entry in _by_topic(owned)]
    message = ConsumerProtocolSubscription(list(topics), None, by_topic)
    return _VERSION.pack(version) + to_bytes(message, version)


def embedded_assignment(partitions: list[Partition], user_data: bytes | None = None) -> bytes:
    message = ConsumerProtocolAssignment([TopicPartition(*entry) for entry in _by_topic(partitions)], user_data)
    return _VERSION.pack(3) + to_bytes(message, 3)


def _by_topic(partitions: list[Partition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, number in sorted(partitions):
        topics.setdefault(name, []).append(number)
    return list(topics.items())


class ClassicConsumer:
    """Call `step` again and again: it does the next thing, or finds that its answer is not there yet."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        topics: tuple[str, ...] = ("orders",),
        *,
        cooperative: bool = False,
        instance_id: str | None = None,
        protocols: tuple[str, ...] | None = None,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.topics = list(topics)
        self.cooperative = cooperative
        self.protocols = protocols or (("cooperative-sticky",) if cooperative else ("range", "roundrobin"))
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: dict[Partition, None] = {}
        self.alive = True
        self.state = "join"
        self.errors: list[int] = []
        self._answer: Answer | None = None

    def step(self) -> None:
        if not self.alive:
            return
        if self.state == "join":
            self._join()
        elif self.state == "joining":
            self._joined()
        elif self.state == "syncing":
            self._synced()
        else:
            self._beat()

    def _join(self) -> None:
        if not self.cooperative:
            self.owned.clear()
        metadata = embedded_subscription(self.topics, list(self.owned))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in self.protocols],
        )
        self._answer = self.cluster.driver.call(
            lambda turn, ticket: self.cluster.shard.join_group(turn, ticket, INFO, request)
        )
        self.state = "joining"
        self._joined()

    def _joined(self) -> None:
        assert self._answer is not None
        if not self._answer.done:
            return
        response = cast(JoinGroupResponse, self._answer.response)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._join()
            return
        if response.error_code:
            self._failed(response.error_code)
            return
        self.member_id = response.member_id
        self.generation = response.generation_id
        self._sync(response)

    def _sync(self, joined: JoinGroupResponse) -> None:
        assignments = []
        if joined.leader == self.member_id:
            assignments = self._assign({m.member_id: bytes(m.metadata) for m in joined.members})
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        self._answer = self.cluster.driver.call(
            lambda turn, ticket: self.cluster.shard.sync_group(turn, ticket, INFO, request)
        )
        self.state = "syncing"
        self._synced()

    def _assign(self, members: dict[str, bytes]) -> list[SyncGroupRequestAssignment]:
        """In turns. A cooperative leader takes nothing away and gives it to another in the same round."""
        subscriptions = {member_id: read_subscription(metadata) for member_id, metadata in members.items()}
        owners = {
            (topic.topic, number): member_id
            for member_id, subscription in subscriptions.items()
            for topic in subscription.owned_partitions
            for number in topic.partitions
        }
        assigned: dict[str, list[Partition]] = {member_id: [] for member_id in members}
        for name in sorted({topic for subscription in subscriptions.values() for topic in subscription.topics}):
            topic = self.cluster.driver.image.topic(name)
            wanting = sorted(m for m, subscription in subscriptions.items() if name in subscription.topics)
            for number in range(len(topic.partitions) if topic is not None else 0):
                member_id = wanting[number % len(wanting)]
                if owners.get((name, number), member_id) == member_id:
                    assigned[member_id].append((name, number))
        return [SyncGroupRequestAssignment(m, embedded_assignment(partitions)) for m, partitions in assigned.items()]

    def _synced(self) -> None:
        assert self._answer is not None
        if not self._answer.done:
            return
        response = cast(SyncGroupResponse, self._answer.response)
        if response.error_code:
            self._failed(response.error_code)
            return
        told = {
            (topic.topic, number): None
            for topic in read_assignment(bytes(response.assignment)).assigned_partitions
            for number in topic.partitions
        }
        revoked = [partition for partition in self.owned if partition not in told]
        for partition in revoked:
            del self.owned[partition]
        self.owned.update(told)
        # Cooperative members that gave something up join again at once, so that others can get it.
        self.state = "join" if self.cooperative and revoked else "stable"

    def _beat(self) -> None:
        request = HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance_id)
        answer = self.cluster.driver.call(
            lambda turn, ticket: self.cluster.shard.heartbeat(turn, ticket, INFO, request)
        )
        error = cast(HeartbeatResponse, answer.response).error_code
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.state = "join"
        elif error:
            self._failed(error)

    def _failed(self, error: int) -> None:
        self.errors.append(error)
        self.state = "join"
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned.clear()
            if error == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        elif error != ErrorCode.REBALANCE_IN_PROGRESS:
            self.alive = False

    def leave(self) -> int:
        self.die()
        request = LeaveGroupRequest(GROUP, [MemberIdentity(self.member_id, self.instance_id)])
        answer = self.cluster.driver.call(
            lambda turn, ticket: self.cluster.shard.leave_group(turn, ticket, INFO, request)
        )
        return cast(LeaveGroupResponse, answer.response).members[0].error_code

    def die(self) -> None:
        self.owned.clear()
        self.alive = False

    def recover(self) -> None:
        """The coordinator moved: what was asked of the old one will not be answered."""
        if self.state in ("joining", "syncing") and self._answer is not None and not self._answer.done:
            self.state = "join"

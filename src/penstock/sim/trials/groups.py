"""Group members of both protocols, which follow their coordinator wherever it moves, and a record of its answers.

Three things are checked: an acknowledged commit is read back, by the member that made it and at the end; an offset that
was never committed is never read; and within a generation (or member epoch) a partition has one owner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.sim.trials.clients import ClusterClient
from penstock.sim.trials.load import Ledger, Violation
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

__all__ = ["ClassicMember", "ConsumerMember", "Group"]

SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 6_000, 1_000
PATIENCE_MS = 12_000
"""Long, because a join waits for the other members."""
COMMIT_VERSION, FETCH_VERSION, CONSUMER_HEARTBEAT_VERSION = 9, 8, 1
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5


@dataclass
class Group:
    """What the members of one group were told. Each member commits for its own partition number."""

    name: str
    topic: str
    ledger: Ledger
    acknowledged: dict[int, int] = field(default_factory=dict)
    attempted: dict[int, int] = field(default_factory=dict)
    owners: dict[tuple[int, Any, int], str] = field(default_factory=dict)
    commits: int = 0

    def owns(self, generation: int, topic: object, partition: int, member: str) -> None:
        first = self.owners.setdefault((generation, topic, partition), member)
        if first != member:
            raise Violation(f"group {self.name}, generation {generation}: {partition} is owned by {first} and {member}")

    async def check(self, client: ClusterClient) -> None:
        """Checks the commits at the end, with the group's current coordinator."""
        for slot, acknowledged in self.acknowledged.items():
            offset = await self.committed(client, slot)
            if offset is None or not acknowledged <= offset <= self.attempted[slot]:
                raise Violation(
                    f"group {self.name}, {slot}: the last acknowledged commit is {acknowledged}, the last attempted "
                    f"{self.attempted[slot]}, but the committed offset is {offset}"
                )

    async def committed(self, client: ClusterClient, slot: int) -> int | None:
        """The committed offset; None if there is none. Raises OSError if the coordinator does not answer."""
        wanted = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[slot])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.name, topics=wanted)])
        node = await client.coordinator(self.name)
        (found,) = (await client.call(node, request, FETCH_VERSION)).groups
        if found.error_code:
            raise ConnectionError(ErrorCode(found.error_code).name)
        (part,) = found.topics[0].partitions
        if part.error_code:
            raise ConnectionError(ErrorCode(part.error_code).name)
        return None if part.committed_offset < 0 else part.committed_offset


class Member(ABC):
    """The behaviour common to members of both protocols."""

    def __init__(self, client: ClusterClient, group: Group, slot: int, pause_ms: float) -> None:
        self.client = client
        self.group = group
        self.slot = slot
        self.pause_ms = pause_ms
        self.id = ""
        self.generation = -1
        self.coordinator = -1

    async def run(self) -> None:
        runtime = self.client.runtime
        while not self.group.ledger.over:
            try:
                self.coordinator = await self.client.coordinator(self.group.name)
                await self.live()
            except OSError:
                pass  # the node is gone, or cut off: find the coordinator again
            await runtime.sleep(runtime.rng.uniform(50, 300))

    @abstractmethod
    async def live(self) -> None:
        """One membership, from joining to its end."""

    async def call(self, request: Any, version: int) -> Any:
        return await self.client.call(self.coordinator, request, version, timeout_ms=PATIENCE_MS)

    async def commit(self) -> bool:
        group, slot = self.group, self.slot
        if self.client.runtime.rng.random() < 0.1:
            await self.look()
        offset = group.attempted[slot] = group.attempted.get(slot, -1) + 1
        entry = OffsetCommitRequestPartition(partition_index=slot, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=group.name,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            topics=[OffsetCommitRequestTopic(name=group.topic, partitions=[entry])],
        )
        answer = await self.call(request, COMMIT_VERSION)
        if answer.topics[0].partitions[0].error_code:
            return False
        group.acknowledged[slot] = offset
        group.commits += 1
        return True

    async def look(self) -> None:
        """Reads the committed offset: it must be the one acknowledged before the request, or a newer one."""
        group, slot = self.group, self.slot
        known = group.acknowledged.get(slot, -1)
        found = await group.committed(self.client, slot)
        offset = -1 if found is None else found
        if not known <= offset <= group.attempted.get(slot, -1):
            raise Violation(f"group {group.name}: {known} was acknowledged for {slot}, but {offset} is read")


class ClassicMember(Member):
    """Joins, syncs, sends heartbeats; the group's leader assigns partitions 0 … 3."""

    async def live(self) -> None:
        runtime = self.client.runtime
        if not await self._join():
            return
        while not self.group.ledger.over:
            request = HeartbeatRequest(group_id=self.group.name, generation_id=self.generation, member_id=self.id)
            code = (await self.call(request, HEARTBEAT_VERSION)).error_code
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.id = ""
            if code or not await self.commit():
                return
            if runtime.rng.random() < 0.02:
                identity = MemberIdentity(member_id=self.id)
                await self.call(LeaveGroupRequest(group_id=self.group.name, members=[identity]), LEAVE_VERSION)
                self.id = ""
                return
            await runtime.sleep(runtime.rng.uniform(0, 4 * self.pause_ms))

    async def _join(self) -> bool:
        request = JoinGroupRequest(
            group_id=self.group.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"subscription")],
        )
        answer = await self.call(request, JOIN_VERSION)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            request.member_id = self.id
            answer = await self.call(request, JOIN_VERSION)
        if answer.error_code:
            self.id = ""
            return False
        self.id, self.generation = answer.member_id, answer.generation_id
        assignments = []
        if answer.leader == self.id:
            members = [member.member_id for member in answer.members]
            for number, member in enumerate(members):
                share = list(range(number, 4, len(members)))
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=msgspec.json.encode(share)))
        sync = SyncGroupRequest(
            group_id=self.group.name, generation_id=self.generation, member_id=self.id, assignments=assignments
        )
        synced = await self.call(sync, SYNC_VERSION)
        if synced.error_code:
            return False
        for partition in msgspec.json.decode(synced.assignment or b"[]", type=list[int]):
            self.group.owns(self.generation, "", partition, self.id)
        return True


class ConsumerMember(Member):
    """A member of the consumer protocol (KIP-848), which applies every assignment at once."""

    def __init__(self, client: ClusterClient, group: Group, slot: int, pause_ms: float) -> None:
        super().__init__(client, group, slot, pause_ms)
        self._owned: dict[bytes, list[int]] = {}

    async def live(self) -> None:
        runtime = self.client.runtime
        while not self.group.ledger.over:
            if not await self._heartbeat() or not await self.commit():
                return
            await runtime.sleep(runtime.rng.uniform(0, 4 * self.pause_ms))

    async def _heartbeat(self) -> bool:
        if not self.id:
            self.id, self.generation = f"m-{self.client.runtime.rng.getrandbits(64):x}", 0
        joins = self.generation <= 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.name,
            member_id=self.id,
            member_epoch=max(0, self.generation),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=[self.group.topic] if joins else None,
            topic_partitions=[
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=partitions)
                for topic, partitions in self._owned.items()
            ]
            if not joins
            else [],
        )
        answer = await self.call(request, CONSUMER_HEARTBEAT_VERSION)
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.generation, self._owned = 0, {}
            return False
        if answer.error_code:
            return False
        self.generation = answer.member_epoch
        if answer.assignment is not None:
            self._owned = {part.topic_id: list(part.partitions) for part in answer.assignment.topic_partitions}
        for topic, partitions in self._owned.items():
            for partition in partitions:
                self.group.owns(self.generation, topic, partition, self.id)
        return True

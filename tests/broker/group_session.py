"""What the tests of groups share: members of both protocols, commits, and what the coordinator says of it all.

Every member has a connection of its own, as real clients do for their coordinator: a JoinGroup may wait long, and holds
back whatever is sent behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.session import Session, newest
from penstock.sim.broker import Answer, ProtocolClient
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

QUICK = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
"""Settings for tests that care neither for many partitions nor for a delay."""
SESSION_TIMEOUT_MS = 10_000
NAMES_UNTIL = 9
"""The newest version of OffsetCommit and OffsetFetch that has names of topics."""

Offsets = Mapping[tuple[str, int], tuple[int, str | None]]
"""(topic, partition): (offset, metadata)."""


class ClassicMember:
    """A member of a classic group."""

    def __init__(
        self,
        s: Session,
        client: ProtocolClient,
        group: str = "g",
        *,
        protocols: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self.s = s
        self.client = client
        self.group = group
        self.protocols = protocols or {"range": b"subscription"}
        self.instance_id = instance_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.id = ""
        self.generation = -1
        self.leads = False
        self.members: list[str] = []
        """All of the generation, if this one leads it."""

    @classmethod
    async def connect(cls, s: Session, group: str = "g", **options: Any) -> ClassicMember:
        return cls(s, await s.connect(), group, **options)

    async def call(self, request: Any, version: int | None = None) -> Any:
        return await self.client.call(request, newest(request) if version is None else version)

    def send_join(self, version: int | None = None) -> Answer:
        protocols = [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()]
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        return self.client.send(request, newest(request) if version is None else version)

    async def join(self, version: int | None = None) -> JoinGroupResponse:
        """Until there is a generation, or an error that a client cannot mend by trying again."""
        while True:
            answer = await self.send_join(version)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.id = answer.member_id
                continue
            if answer.error_code == ErrorCode.NONE:
                self.id = answer.member_id
                self.generation = answer.generation_id
                self.leads = answer.leader == answer.member_id
                self.members = [member.member_id for member in answer.members]
            return answer  # type: ignore[no-any-return]

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, version: int | None = None) -> Answer:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in (assignments or {}).items()
            ],
        )
        return self.client.send(request, newest(request) if version is None else version)

    async def sync(self, assignments: Mapping[str, bytes] | None = None, version: int | None = None) -> Any:
        return await self.send_sync(assignments, version)

    async def heartbeat(self, version: int | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode((await self.call(request, version)).error_code)

    async def leave(self, version: int | None = None) -> Any:
        identity = MemberIdentity(member_id=self.id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.group, members=[identity], member_id=self.id)
        return await self.call(request, version)

    async def commit(self, offsets: Offsets, version: int = NAMES_UNTIL) -> dict[tuple[str, int], ErrorCode]:
        return await commit(self.client, self.group, offsets, self.id, self.generation, self.instance_id, version)


AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
ANEW = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)

Share = Callable[[list[str]], dict[str, bytes]]
"""How the leader divides: members to what each of them gets."""


class Rebalance:
    """Members that do what clients do until all of them are in one generation, and have heard so."""

    def __init__(self, s: Session, members: list[ClassicMember], share: Share) -> None:
        self.s = s
        self.members = members
        self.share = share
        self.assigned: dict[str, tuple[int, bytes]] = {}
        """Member: generation and assignment."""
        self.has_failed = False

    async def run(self, on_assigned: Callable[[ClassicMember, bytes], None] | None = None) -> None:
        tasks = [self.s.runtime.spawn(self._try(member, on_assigned), "member") for member in self.members]
        failures = [await task for task in tasks]
        for failure in failures:
            if failure is not None:
                raise failure

    @property
    def is_over(self) -> bool:
        if self.has_failed:
            return True
        found = [self.assigned.get(member.id) for member in self.members]
        return None not in found and len({entry[0] for entry in found if entry is not None}) == 1

    async def _try(
        self, member: ClassicMember, on_assigned: Callable[[ClassicMember, bytes], None] | None
    ) -> Exception | None:
        try:
            await self._live(member, on_assigned)
        except (ConnectionError, AssertionError) as error:
            self.has_failed = True
            return error
        return None

    async def _live(self, member: ClassicMember, on_assigned: Callable[[ClassicMember, bytes], None] | None) -> None:
        while not self.is_over:
            answer = await member.join()
            if answer.error_code in ANEW:
                member.id = ""
                continue
            if answer.error_code in AGAIN:
                continue
            assert answer.error_code == ErrorCode.NONE, answer
            synced = await member.sync(self.share(member.members) if member.leads else None)
            if synced.error_code in ANEW:
                member.id = ""
            if synced.error_code in (*ANEW, *AGAIN):
                continue
            assert synced.error_code == ErrorCode.NONE, synced
            self.assigned[member.id] = member.generation, synced.assignment
            if on_assigned is not None:
                on_assigned(member, synced.assignment)
            while not self.is_over:
                told = await member.heartbeat()
                if told != ErrorCode.NONE:
                    assert told in (*ANEW, *AGAIN), told
                    self.assigned.pop(member.id, None)
                    if told in ANEW:
                        member.id = ""
                    break
                await self.s.runtime.sleep(100)


async def stable_group(s: Session, count: int, group: str = "g", **options: Any) -> list[ClassicMember]:
    """So many members in one generation, each with an assignment that names it."""
    members = [await ClassicMember.connect(s, group, **options) for _ in range(count)]
    await rebalanced(s, members)
    return members


async def rebalanced(s: Session, members: list[ClassicMember]) -> None:
    """Let all of these come together in one generation."""
    rebalance = Rebalance(s, members, lambda ids: {member: f"for {member}".encode() for member in ids})
    await rebalance.run()
    assert [rebalance.assigned[member.id][1] for member in members] == [f"for {m.id}".encode() for m in members]


async def until_told(s: Session, member: ClassicMember) -> float:
    """Heartbeats until one says that the group rebalances; returns how long that took."""
    began_ms = s.runtime.now_ms()
    while await member.heartbeat() == ErrorCode.NONE:
        await s.runtime.sleep(200)
    return s.runtime.now_ms() - began_ms


class ConsumerMember:
    """A member of a consumer group (KIP-848), which does at once what it is told."""

    def __init__(
        self, s: Session, client: ProtocolClient, group: str, topics: list[str] | None, member_id: str, **options: Any
    ) -> None:
        self.s = s
        self.client = client
        self.group = group
        self.topics = topics
        self.options = options
        self.id = member_id
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.heartbeat_interval_ms = 0

    @classmethod
    async def connect(
        cls, s: Session, group: str = "c", topics: list[str] | None = None, *, member_id: str = "", **options: Any
    ) -> ConsumerMember:
        """`topics` None: the options have a regular expression."""
        return cls(s, await s.connect(), group, topics, member_id or f"m-{s.runtime.uuid().hex()}", **options)

    async def heartbeat(self, version: int = 1, *, full: bool | None = None) -> Any:
        """One heartbeat; what it brings is taken over, and reported with the next."""
        joins = self.epoch == 0 if full is None else full
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=self.topics if joins else None,
            topic_partitions=[
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=partitions)
                for topic, partitions in self.owned.items()
            ],
            **(self.options if joins else {}),
        )
        answer = await self.client.call(request, version)
        if answer.error_code == ErrorCode.NONE:
            self.id = answer.member_id
            self.epoch = answer.member_epoch
            self.heartbeat_interval_ms = answer.heartbeat_interval_ms
            if answer.assignment is not None:
                self.owned = {part.topic_id: list(part.partitions) for part in answer.assignment.topic_partitions}
        return answer

    async def leave(self) -> Any:
        self.epoch = -1
        return await self.heartbeat(full=False)

    @property
    def partitions(self) -> list[tuple[bytes, int]]:
        return [(topic, partition) for topic, partitions in self.owned.items() for partition in sorted(partitions)]

    async def commit(self, offsets: Offsets, version: int = NAMES_UNTIL) -> dict[tuple[str, int], ErrorCode]:
        return await commit(self.client, self.group, offsets, self.id, self.epoch, None, version)


async def settled(members: list[ConsumerMember], partition_count: int, *, limit_ms: float = 20_000) -> None:
    """Heartbeats until the group is stable and its members own all partitions, each once."""
    s = members[0].s
    began_ms = s.runtime.now_ms()
    while s.runtime.now_ms() - began_ms < limit_ms:
        for member in members:
            answer = await member.heartbeat()
            assert answer.error_code == ErrorCode.NONE, answer
        owned = [partition for member in members for partition in member.partitions]
        assert len(set(owned)) == len(owned), "two own the same"
        if len(owned) == partition_count and len({member.epoch for member in members}) == 1:
            group = await describe_consumer(s, members[0].group)
            if group.group_state == "Stable" and group.group_epoch == members[0].epoch:
                return
        await s.runtime.sleep(200)
    raise AssertionError(f"not settled: {[(member.epoch, member.partitions) for member in members]}")


# ---- offsets


async def commit(
    client: ProtocolClient,
    group: str,
    offsets: Offsets,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    version: int = NAMES_UNTIL,
) -> dict[tuple[str, int], ErrorCode]:
    answer = await client.call(commit_request(group, offsets, member_id, generation, instance_id), version)
    return {
        (topic.name, part.partition_index): ErrorCode(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }


def commit_request(
    group: str, offsets: Offsets, member_id: str = "", generation: int = -1, instance_id: str | None = None
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), (offset, metadata) in offsets.items():
        entry = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic))
        entry.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=list(topics.values()),
    )


async def committed(
    client: ProtocolClient, group: str, partitions: list[tuple[str, int]] | None = None, version: int = NAMES_UNTIL
) -> Offsets:
    """What the coordinator has; what it has not is left out."""
    wanted: dict[str, list[int]] = {}
    for topic, partition in partitions or []:
        wanted.setdefault(topic, []).append(partition)
    if version >= 8:
        topics = None if partitions is None else [
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in wanted.items()
        ]  # fmt: skip
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    else:
        single = None if partitions is None else [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()
        ]  # fmt: skip
        request = OffsetFetchRequest(group_id=group, topics=single)
    answer = await client.call(request, version)
    found = answer
    if version >= 8:
        (found,) = answer.groups
    assert found.error_code == ErrorCode.NONE, found
    return {
        (topic.name, part.partition_index): (part.committed_offset, part.metadata)
        for topic in found.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


# ---- looking at groups


async def find(s: Session, group: str = "g") -> None:
    """As every client begins: it also makes the topic."""
    answer = await s.call(FindCoordinatorRequest(coordinator_keys=[group]))
    assert [one.error_code for one in answer.coordinators] == [0], answer


async def ready(s: Session, group: str = "g") -> None:
    """Until the coordinator has loaded the group."""
    await find(s, group)
    while True:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])])
        answer = await s.call(request, NAMES_UNTIL)
        if answer.groups[0].error_code == ErrorCode.NONE:
            return
        assert answer.groups[0].error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        await s.runtime.sleep(10)


async def describe(s: Session, group: str = "g") -> DescribedGroup:
    (found,) = (await s.call(DescribeGroupsRequest(groups=[group]))).groups
    return found  # type: ignore[no-any-return]


async def describe_consumer(s: Session, group: str = "c") -> Any:
    (found,) = (await s.call(ConsumerGroupDescribeRequest(group_ids=[group]))).groups
    return found


async def listed(s: Session, states: list[str] | None = None, types: list[str] | None = None) -> dict[str, Any]:
    answer = await s.call(ListGroupsRequest(states_filter=states or [], types_filter=types or []))
    assert answer.error_code == ErrorCode.NONE
    return {group.group_id: group for group in answer.groups}

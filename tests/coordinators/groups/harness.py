"""A group shard and clients that speak to it in one line each."""

from __future__ import annotations

from struct import Struct
from typing import TypeVar, cast

from coordinators.support import Answer, ShardDriver
from penstock.coordinators.groups import GroupConfig, GroupShard, RequestInfo
from penstock.coordinators.groups.classic_group import ClassicGroup
from penstock.coordinators.groups.config import replace
from penstock.wire.codec import Encoded, Message, decode_whole, to_bytes
from penstock.wire.commits import PlainCommit, decode_commit
from penstock.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from penstock.wire.messages.delete_groups import DeletableGroupResult
from penstock.wire.messages.describe_groups import DescribedGroup
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from penstock.wire.uuids import ZERO_UUID

M = TypeVar("M", bound=Message)

INFO = RequestInfo(9, "client", "/127.0.0.1")
RANGE = (("range", b"subscription"),)

Protocols = tuple[tuple[str, bytes], ...]


def subscription(*topics: str, version: int = 3) -> bytes:
    """What a consumer says of itself in the classic protocol."""
    return Struct(">h").pack(version) + to_bytes(ConsumerProtocolSubscription(list(topics)), version)


class Joined:
    """A JoinGroup that may still wait."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    @property
    def waits(self) -> bool:
        return not self.answer.done

    @property
    def response(self) -> JoinGroupResponse:
        return cast(JoinGroupResponse, self.answer.response)

    @property
    def error(self) -> int:
        return self.response.error_code

    @property
    def member_id(self) -> str:
        return self.response.member_id


class Synced(Joined):
    """A SyncGroup that may still wait."""

    @property
    def response(self) -> SyncGroupResponse:  # type: ignore[override]
        return cast(SyncGroupResponse, self.answer.response)

    @property
    def error(self) -> int:
        return self.response.error_code


class Groups(ShardDriver):
    """A shard with requests as methods. Everything is about the group `g` unless told otherwise."""

    shard: GroupShard

    def __init__(self, **settings: int) -> None:
        super().__init__(GroupShard(replace(GroupConfig(), **settings)))  # type: ignore[arg-type]
        self.shard.on_loaded(self.turn())

    @property
    def group(self) -> ClassicGroup:
        return self.classic("g")

    def classic(self, group_id: str) -> ClassicGroup:
        group = self.shard.table.find(self.turn(), group_id)
        assert isinstance(group, ClassicGroup)
        return group

    def reloaded(self) -> Groups:
        """A shard that has loaded what this one wrote."""
        fresh = Groups.__new__(Groups)
        shard = GroupShard(self.shard.config)
        loaded = self.reload(shard)
        fresh.__dict__.update(loaded.__dict__)
        # Timers call back to the driver that took them.
        for key, (deadline, _, callback) in loaded.timers.items():
            fresh.set_timer(key, max(deadline - fresh.now_ms, 0), callback)
        return fresh

    # -- members -----------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client: str = "client",
        host: str = "/127.0.0.1",
    ) -> Joined:
        request = JoinGroupRequest(
            group,
            session_ms,
            rebalance_ms,
            member_id,
            instance,
            protocol_type,
            [JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
            "a test",
        )
        info = RequestInfo(version, client, host)
        return Joined(self.call(lambda turn, ticket: self.shard.join_group(turn, ticket, info, request)))

    def enter(self, **options: object) -> tuple[str, Joined]:
        """Both rounds of a dynamic member's first join: its id, and the join that waits."""
        first = self.join(**options)  # type: ignore[arg-type]
        return first.member_id, self.join(first.member_id, **options)  # type: ignore[arg-type]

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Synced:
        request = SyncGroupRequest(
            group,
            generation,
            member_id,
            instance,
            protocol_type,
            protocol_name,
            [SyncGroupRequestAssignment(member, data) for member, data in (assignments or {}).items()],
        )
        return Synced(self.call(lambda turn, ticket: self.shard.sync_group(turn, ticket, INFO, request)))

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> int:
        request = HeartbeatRequest(group, generation, member_id, instance)
        answer = self.call(lambda turn, ticket: self.shard.heartbeat(turn, ticket, INFO, request))
        return cast(HeartbeatResponse, answer.response).error_code

    def leave(self, *members: str | tuple[str, str | None], group: str = "g") -> list[int]:
        """By member id, or by (member id, instance id)."""
        identities = [MemberIdentity(m) if isinstance(m, str) else MemberIdentity(m[0], m[1]) for m in members]
        response = self.leave_request(LeaveGroupRequest(group, identities))
        assert response.error_code == 0
        return [member.error_code for member in response.members]

    def leave_request(self, request: LeaveGroupRequest, version: int = 5) -> LeaveGroupResponse:
        info = INFO._replace(version=version)
        answer = self.call(lambda turn, ticket: self.shard.leave_group(turn, ticket, info, request))
        return cast(LeaveGroupResponse, answer.response)

    def stable(self, count: int = 1, *, protocols: Protocols = RANGE, **options: object) -> list[str]:
        """A stable group of so many members, the leader first. Each is assigned its own id."""
        entered = [self.enter(protocols=protocols, **options) for _ in range(count)]
        while any(join.waits for _, join in entered):
            self.advance_to_next_timer()
        return self.settle([join for _, join in entered], protocol_name=protocols[0][0])

    def settle(self, joins: list[Joined], *, group: str = "g", protocol_name: str | None = None) -> list[str]:
        """Everybody who joined syncs, the leader last."""
        responses = [join.response for join in joins]
        assert all(response.error_code == 0 for response in responses), responses
        leader = next(response for response in responses if response.member_id == response.leader)
        followers = [response.member_id for response in responses if response is not leader]
        protocol = protocol_name or leader.protocol_name
        assert leader.protocol_type is not None
        options = {"group": group, "protocol_name": protocol, "protocol_type": leader.protocol_type}
        synced = [self.sync(m, leader.generation_id, **options) for m in followers]  # type: ignore[arg-type]
        assignment = {member.member_id: member.member_id.encode() for member in leader.members}
        synced.append(self.sync(leader.member_id, leader.generation_id, assignment, **options))  # type: ignore[arg-type]
        assert all(answer.error == 0 for answer in synced)
        return [leader.member_id, *followers]

    # -- offsets -----------------------------------------------------------------------------------------------------

    def commit_request(self, request: OffsetCommitRequest, version: int = 9) -> OffsetCommitResponse:
        """As a broker would, in the plain form where the request has one."""
        info = INFO._replace(version=version)
        found, _ = decode_commit(OffsetCommitRequest, version, to_bytes(request, version))
        if isinstance(found, PlainCommit):
            plain = found
            answer = self.call(lambda turn, ticket: self.shard.offset_commit_plain(turn, ticket, info, plain))
        else:
            answer = self.call(lambda turn, ticket: self.shard.offset_commit(turn, ticket, info, request))
        response = answer.response
        if isinstance(response, Encoded):
            response = decode_whole(OffsetCommitResponse, version, response.body)
        return cast(OffsetCommitResponse, response)

    def commit(
        self,
        offset: int = 1,
        *,
        topic: str = "t",
        partition: int = 0,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        epoch: int = -1,
        metadata: str | None = "",
        retention_ms: int = -1,
        topic_id: bytes = ZERO_UUID,
        version: int = 9,
    ) -> int:
        """Of one partition: its error code."""
        request = OffsetCommitRequest(
            group,
            generation,
            member_id,
            instance,
            retention_ms,
            [
                OffsetCommitRequestTopic(
                    topic_id, topic, [OffsetCommitRequestPartition(partition, offset, epoch, metadata)]
                )
            ],
        )
        response = self.commit_request(request, version)
        return response.topics[0].partitions[0].error_code

    def fetch_group(
        self, request: OffsetFetchRequestGroup, *, stable: bool = False, version: int = 9
    ) -> OffsetFetchResponseGroup:
        info = INFO._replace(version=version)
        answer = self.call(lambda turn, ticket: self.shard.offset_fetch_group(turn, ticket, info, request, stable))
        return cast(OffsetFetchResponseGroup, answer.response)

    def fetch(
        self, topic: str = "t", partition: int = 0, *, group: str = "g", stable: bool = False
    ) -> OffsetFetchResponsePartitions:
        """One partition."""
        request = OffsetFetchRequestGroup(
            group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        )
        return self.fetch_group(request, stable=stable).topics[0].partitions[0]

    def fetch_all(self, group: str = "g", *, stable: bool = False) -> dict[tuple[str, int], int]:
        response = self.fetch_group(OffsetFetchRequestGroup(group, topics=None), stable=stable)
        return {(t.name, p.partition_index): p.committed_offset for t in response.topics for p in t.partitions}

    def delete_offsets(self, *partitions: tuple[str, int], group: str = "g") -> OffsetDeleteResponse:
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition))
        request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(n, p) for n, p in topics.items()])
        answer = self.call(lambda turn, ticket: self.shard.offset_delete(turn, ticket, INFO, request))
        return cast(OffsetDeleteResponse, answer.response)

    # -- administration ----------------------------------------------------------------------------------------------

    def describe(self, group: str = "g", version: int = 6) -> DescribedGroup:
        info = INFO._replace(version=version)
        answer = self.call(lambda turn, ticket: self.shard.describe_group(turn, ticket, info, group))
        return cast(DescribedGroup, answer.response)

    def list(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[ListedGroup]:
        answer = self.call(lambda turn, ticket: self.shard.list_groups(turn, ticket, [*states], [*types]))
        return cast(ListGroupsResponse, answer.response).groups

    def delete(self, group: str = "g") -> int:
        answer = self.call(lambda turn, ticket: self.shard.delete_group(turn, ticket, group))
        return cast(DeletableGroupResult, answer.response).error_code

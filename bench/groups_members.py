"""Members of groups, of both protocols, and the group as they see it: who owns what, and since when it is stable.

Each member is a coroutine with a connection of its own, because a JoinGroup that waits holds up its connection. Members
do what a client does, without its callbacks and back-offs: whatever takes time is the broker's. Their heartbeats
are spread evenly over the interval, so that how soon a group learns of a change does not depend on luck.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil
from uuid import uuid4

from bench.client import LoadFailed
from bench.groups_client import NOT_YET, RETRY_S, Connection, all_of, await_coordinator, open_many, topic_id_of
from penstock.wire.apis import ApiKey
from penstock.wire.codec import decode, to_bytes
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from penstock.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from penstock.wire.uuids import format_uuid

REBALANCE_TIMEOUT_MS = 60_000
# Of members that are to stay without heartbeats: Kafka's largest.
PATIENT_SESSION_TIMEOUT_MS = 1_800_000

_PROTOCOL_TYPE = "consumer"
_RANGE = "range"
# Both begin with their version as an int16, which is no field of theirs.
_CONSUMER_PROTOCOL_VERSION = 3
_CONSUMER_PROTOCOL_PREFIX = _CONSUMER_PROTOCOL_VERSION.to_bytes(2, "big")
_LEAVE_EPOCH = -1
_MEMBERS_PER_LEAVE = 1000

_MUST_JOIN_AGAIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


@dataclass(frozen=True, slots=True)
class GroupShape:
    """What a group is to be."""

    protocol: str
    """`classic` or `consumer`, as `group.protocol` names them."""
    members: int
    topic: str
    partitions: int
    heartbeat_interval_ms: int
    session_timeout_ms: int


class Group:
    """A group under measurement. Stable: every member has the newest epoch, every partition has one owner."""

    def __init__(self, bootstrap: str, shape: GroupShape) -> None:
        self.shape = shape
        self.group_id = f"bench-{shape.protocol}-{uuid4().hex[:12]}"
        self.topic_id = b""
        self.members: list[Member] = []
        self.begun_s = 0.0
        self.last_identified_s = 0.0
        self.first_joined_s = 0.0
        self.last_told_s = 0.0
        """When the heartbeat was sent that was the last to have news for its member."""
        self._bootstrap = bootstrap
        self._control = Connection()
        self._newest_epoch = 0
        self._at_newest = 0
        self._owners = [0] * shape.partitions
        self._owned = 0
        self._stable: asyncio.Future[float] | None = None

    async def connect(self) -> None:
        self._control = await Connection.open(self._bootstrap)
        await await_coordinator(self._control, self.group_id)
        self.topic_id = await topic_id_of(self._control, self.shape.topic)
        kind = ClassicMember if self.shape.protocol == "classic" else ConsumerMember
        connections = await open_many(self._bootstrap, self.shape.members)
        self.members = [kind(self, number, connection) for number, connection in enumerate(connections)]

    def start(self) -> None:
        """All members at once."""
        self.begun_s = self.last_identified_s = time.monotonic()
        for member in self.members:
            member.start()

    async def stable(self, timeout_s: float) -> float:
        """When the group became stable, on the monotonic clock."""
        self._stable = asyncio.get_running_loop().create_future()
        self._settle()
        waiting: list[asyncio.Future[float] | asyncio.Task[None]] = [self._stable]
        waiting += [member.task for member in self.members if member.task is not None]
        done, _ = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            if one is not self._stable and not one.cancelled():
                one.result()
        if not self._stable.done():
            raise LoadFailed(f"the group is not stable after {timeout_s:.0f} s: {self._told()}")
        return self._stable.result()

    async def leave(self, member: Member) -> None:
        """One goes as a client does that is closed."""
        await member.leave()
        self._forget(member)

    async def kill(self, member: Member) -> float:
        """One is gone without a word, just after a heartbeat; returns when it sent that."""
        last_beat_s = await member.die()
        self._forget(member)
        return last_beat_s

    async def end(self) -> None:
        """Everyone leaves, so that the next sample does not pay for this one."""
        for member in self.members:
            member.stop()
        if self.shape.protocol == "classic":
            await leave_classic(self._control, self.group_id, [member.member_id for member in self.members])
        else:
            await all_of([leave_consumer(self._control, self.group_id, one.member_id) for one in self.members])

    def close(self) -> None:
        for member in self.members:
            member.stop()
            member.connection.close()
        self._control.close()

    def changed(self, member: Member, epoch: int, owned: Sequence[int]) -> None:
        """A member says which epoch (or generation) it is at, and which partitions are now its own."""
        # Classic members hold on to their partitions until the new generation tells, so only the total counts there.
        owners = self._owners
        for partition in member.owned:
            owners[partition] -= 1
        for partition in owned:
            owners[partition] += 1
            if owners[partition] > 1 and self.shape.protocol == "consumer":
                raise LoadFailed(f"partition {partition} has two owners")
        self._owned += len(owned) - len(member.owned)
        if epoch != member.epoch:
            if member.epoch == self._newest_epoch:
                self._at_newest -= 1
            if epoch > self._newest_epoch:
                self._newest_epoch, self._at_newest = epoch, 0
            if epoch == self._newest_epoch:
                self._at_newest += 1
        member.epoch, member.owned = epoch, owned
        self._settle()

    def identified(self) -> None:
        self.last_identified_s = time.monotonic()

    def joined(self) -> None:
        if self.first_joined_s == 0.0:
            self.first_joined_s = time.monotonic()

    def _forget(self, member: Member) -> None:
        self.members.remove(member)
        self.changed(member, -1, ())

    def _settle(self) -> None:
        if self._stable is None or self._stable.done():
            return
        if self._at_newest != len(self.members) or self._owned != self.shape.partitions:
            return
        if any(count != 1 for count in self._owners):
            return
        # A share that is more than one off is of an assignment that did not know all members yet.
        share, more = divmod(self.shape.partitions, len(self.members))
        if all(share <= len(member.owned) <= share + (more > 0) for member in self.members):
            self._stable.set_result(time.monotonic())

    def _told(self) -> str:
        return (
            f"{self._at_newest} of {len(self.members)} members at epoch {self._newest_epoch}, "
            f"{self._owned} of {self.shape.partitions} partitions owned"
        )


@asynccontextmanager
async def connected(bootstrap: str, shape: GroupShape) -> AsyncIterator[Group]:
    """A group whose members have their connections and wait for `start`; in the end all leave."""
    group = Group(bootstrap, shape)
    try:
        await group.connect()
        yield group
        await group.end()
    finally:
        group.close()


class Member(ABC):
    def __init__(self, group: Group, number: int, connection: Connection) -> None:
        self.connection = connection
        self.member_id = ""
        self.epoch = -1
        self.owned: Sequence[int] = ()
        self.task: asyncio.Task[None] | None = None
        self._group = group
        self._interval_s = group.shape.heartbeat_interval_ms / 1000
        self._phase_s = self._interval_s * number / group.shape.members
        self._last_beat_s = 0.0
        self._dying: asyncio.Future[float] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def die(self) -> float:
        self._dying = asyncio.get_running_loop().create_future()
        return await self._dying

    @abstractmethod
    async def leave(self) -> None: ...

    @abstractmethod
    async def _run(self) -> None: ...

    async def _next_beat(self) -> None:
        since_s = time.monotonic() - self._group.begun_s - self._phase_s
        await asyncio.sleep(ceil(since_s / self._interval_s) * self._interval_s - since_s)
        self._last_beat_s = time.monotonic()

    def _dies(self) -> bool:
        """Whether it is to be gone now, after the answer to its heartbeat."""
        if self._dying is None:
            return False
        self.connection.close()
        self._dying.set_result(self._last_beat_s)
        return True


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat. Whoever is made leader assigns ranges."""

    async def leave(self) -> None:
        self.stop()
        await leave_classic(self.connection, self._group.group_id, [self.member_id])

    async def _run(self) -> None:
        group = self._group
        while True:
            joined = await self._join()
            group.joined()
            assignments: list[SyncGroupRequestAssignment] = []
            if joined.leader == joined.member_id:
                assignments = assign_ranges([one.member_id for one in joined.members], group.shape)
            synced = await self.connection.ask(
                ApiKey.SYNC_GROUP,
                SyncGroupRequest(
                    group_id=group.group_id,
                    generation_id=joined.generation_id,
                    member_id=self.member_id,
                    protocol_type=_PROTOCOL_TYPE,
                    protocol_name=_RANGE,
                    assignments=assignments,
                ),
                SyncGroupResponse,
            )
            if _again(synced.error_code, "SyncGroup"):
                continue
            group.changed(self, joined.generation_id, assigned_partitions(synced.assignment))
            if await self._beat():
                return

    async def _join(self) -> JoinGroupResponse:
        group = self._group
        while True:
            request = join_request(group.group_id, group.shape.topic, self.member_id, group.shape.session_timeout_ms)
            joined = await self.connection.ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse)
            if joined.error_code == ErrorCode.NONE:
                return joined
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                group.identified()
            elif joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif joined.error_code in NOT_YET:
                await asyncio.sleep(RETRY_S)
            elif not _again(joined.error_code, "JoinGroup"):
                raise AssertionError("no error is no reason to join again")

    async def _beat(self) -> bool:
        """Heartbeats until the group rebalances (False) or the member is killed (True)."""
        request = HeartbeatRequest(group_id=self._group.group_id, generation_id=self.epoch, member_id=self.member_id)
        while True:
            await self._next_beat()
            answer = await self.connection.ask(ApiKey.HEARTBEAT, request, HeartbeatResponse)
            if _again(answer.error_code, "Heartbeat"):
                self._group.last_told_s = self._last_beat_s
                return False
            if self._dies():
                return True


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat (KIP-848): whatever is assigned is taken at once, and said at once."""

    def __init__(self, group: Group, number: int, connection: Connection) -> None:
        super().__init__(group, number, connection)
        self.member_id = format_uuid(uuid4().bytes)

    async def leave(self) -> None:
        self.stop()
        await leave_consumer(self.connection, self._group.group_id, self.member_id)

    async def _run(self) -> None:
        joining = telling = True
        while True:
            answer = await self._beat(joining, telling)
            if _again(answer.error_code, f"ConsumerGroupHeartbeat ({answer.error_message})"):
                self._group.changed(self, 0, ())
                joining = telling = True
                continue
            if self._dies():
                return
            owned = self._assigned(answer)
            if answer.member_epoch != self.epoch or owned != self.owned:
                self._group.last_told_s = self._last_beat_s
            joining, telling = False, owned != self.owned
            self._group.changed(self, answer.member_epoch, owned)
            if not telling:
                await self._next_beat()

    async def _beat(self, joining: bool, telling: bool) -> ConsumerGroupHeartbeatResponse:
        group = self._group
        owned = [ConsumerGroupHeartbeatRequestTopicPartitions(group.topic_id, list(self.owned))] if self.owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=self.member_id,
            member_epoch=0 if joining else self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joining else -1,
            subscribed_topic_names=[group.shape.topic] if joining else None,
            topic_partitions=owned if telling else None,
        )
        while True:
            self._last_beat_s = time.monotonic()
            answer = await self.connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse)
            if answer.error_code not in NOT_YET:
                return answer
            await asyncio.sleep(RETRY_S)

    def _assigned(self, answer: ConsumerGroupHeartbeatResponse) -> Sequence[int]:
        if answer.assignment is None:
            return self.owned
        return tuple(sorted(number for one in answer.assignment.topic_partitions for number in one.partitions))


def join_request(group_id: str, topic: str, member_id: str, session_timeout_ms: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        member_id=member_id,
        protocol_type=_PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(_RANGE, _subscription(topic))],
    )


async def join_alone(connection: Connection, group_id: str, shape: GroupShape) -> tuple[str, int]:
    """A group of one that stays without heartbeats; returns member id and generation."""
    member_id = ""
    while True:
        request = join_request(group_id, shape.topic, member_id, PATIENT_SESSION_TIMEOUT_MS)
        joined = await connection.ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse)
        if joined.error_code == ErrorCode.NONE:
            break
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member_id = joined.member_id
        elif joined.error_code in NOT_YET:
            await asyncio.sleep(RETRY_S)
        else:
            raise LoadFailed(f"JoinGroup: {ErrorCode(joined.error_code).name}")
    request_of_leader = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=member_id,
        protocol_type=_PROTOCOL_TYPE,
        protocol_name=_RANGE,
        assignments=assign_ranges([member_id], shape),
    )
    synced = await connection.ask(ApiKey.SYNC_GROUP, request_of_leader, SyncGroupResponse)
    if synced.error_code:
        raise LoadFailed(f"SyncGroup: {ErrorCode(synced.error_code).name}")
    return member_id, joined.generation_id


async def leave_classic(connection: Connection, group_id: str, member_ids: Sequence[str]) -> None:
    """Any number at once; whoever is unknown has left already."""
    identities = [MemberIdentity(member_id=member_id) for member_id in member_ids if member_id]
    for start in range(0, len(identities), _MEMBERS_PER_LEAVE):
        request = LeaveGroupRequest(group_id=group_id, members=identities[start : start + _MEMBERS_PER_LEAVE])
        answer = await connection.ask(ApiKey.LEAVE_GROUP, request, LeaveGroupResponse)
        if answer.error_code:
            raise LoadFailed(f"LeaveGroup: {ErrorCode(answer.error_code).name}")


async def leave_consumer(connection: Connection, group_id: str, member_id: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=_LEAVE_EPOCH, topic_partitions=None
    )
    answer = await connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse)
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
        raise LoadFailed(f"leaving: {ErrorCode(answer.error_code).name}")


def assign_ranges(member_ids: Sequence[str], shape: GroupShape) -> list[SyncGroupRequestAssignment]:
    """As the range assignor of the clients: members in order of their ids, each a contiguous share."""
    ranges = _ranges(len(member_ids), shape.topic, shape.partitions)
    return [
        SyncGroupRequestAssignment(member_id, assignment)
        for member_id, assignment in zip(sorted(member_ids), ranges, strict=True)
    ]


def assigned_partitions(assignment: bytes) -> Sequence[int]:
    if not assignment:
        return ()
    decoded, _ = decode(ConsumerProtocolAssignment, _CONSUMER_PROTOCOL_VERSION, assignment, 2)
    return tuple(number for one in decoded.assigned_partitions for number in one.partitions)


@cache
def _ranges(members: int, topic: str, partitions: int) -> list[bytes]:
    """Encoded once for all samples of all sides: the leader's work is not what is measured."""
    bounds = [ceil(number * partitions / members) for number in range(members + 1)]
    shares = [list(range(start, stop)) for start, stop in pairwise(bounds)]
    return [
        _CONSUMER_PROTOCOL_PREFIX
        + to_bytes(
            ConsumerProtocolAssignment([TopicPartition(topic, share)] if share else []), _CONSUMER_PROTOCOL_VERSION
        )
        for share in shares
    ]


@cache
def _subscription(topic: str) -> bytes:
    return _CONSUMER_PROTOCOL_PREFIX + to_bytes(ConsumerProtocolSubscription([topic]), _CONSUMER_PROTOCOL_VERSION)


def _again(error_code: int, what: str) -> bool:
    """Whether the member has to join again; any other error is a failure."""
    if error_code == ErrorCode.NONE:
        return False
    if error_code in _MUST_JOIN_AGAIN:
        return True
    raise LoadFailed(f"{what}: {ErrorCode(error_code).name}")

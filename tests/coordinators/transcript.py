"""Readable scenarios of groups: what members ask, what the coordinator writes, and what it answers to whom.

How to read and extend the files in `scenarios/` is in `support.transcripts`. Everything is about one group. Time stands
still unless a command moves it. A member's second id is `ann#2`, its first just `ann`.

    topic orders 4                   create a topic
    join ann [instance=a]            JoinGroup of a classic member, with the id that it was given before, if any
    sync ann [ann=0,1 bob=2]         SyncGroup; the leader says who shall have what
    heartbeat ann                    Heartbeat
    leave ann                        LeaveGroup
    beat ann [orders] [instance=a]   ConsumerGroupHeartbeat: the member owns what it was last told; a first one joins
    quit ann [static]                its last heartbeat; a static member says that it will be back
    restart ann                      the client is started anew and has forgotten its id and what it owned
    commit ann orders/0 5            OffsetCommit, in the member's generation or epoch
    fetch orders/0                   OffsetFetch
    wait MS                          let time pass: timers fire
    failover                         another coordinator loads what this one wrote; whoever waits is sent to it
    status                           the group as it is described
"""

from __future__ import annotations

from typing import cast

from coordinators.groups.harness import Groups, subscription
from coordinators.support import Answer, Logged
from penstock.coordinators.groups import RequestInfo
from penstock.coordinators.groups.consumer import ConsumerGroup, records
from penstock.coordinators.groups.consumer.member import Owned
from penstock.coordinators.groups.records import decode_group, decode_offset_value, offset_key_partition
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages import consumer_group_records as r
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.group_records import GROUP_METADATA_KEY, OFFSET_COMMIT_KEY
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

GROUP = "g"
JOINING, LEAVING, STATIC_LEAVING = 0, -1, -2


class Client:
    """What a member knows of itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instance: str | None = None
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.epoch = JOINING
        self.owned: dict[bytes, list[int]] = {}


class Scenario:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.groups = Groups(group_initial_rebalance_delay_ms=3_000)
        self.clients: dict[str, Client] = {}
        self.names: dict[str, str] = {}
        """Of member ids."""
        self.waiting: list[tuple[Client, Answer]] = []
        self.logged = 0
        self.lines: list[str] = []

    def execute(self, line: str) -> str:
        self.lines = []
        name, *arguments = line.split()
        getattr(self, f"do_{name}")(*arguments)
        self.report()
        return "".join(text + "\n" for text in self.lines)

    def report(self) -> None:
        """What was written since, then who was answered: no answer leaves before what it tells is written."""
        news = self.groups.records[self.logged :]
        self.logged = len(self.groups.records)
        answered = [(client, answer) for client, answer in self.waiting if answer.done]
        self.waiting = [(client, answer) for client, answer in self.waiting if not answer.done]
        for client, answer in answered:
            if isinstance(answer.response, JoinGroupResponse):
                self.known(client, answer.response.member_id)
        told = [f"{client.name} <- {self.take(client, answer.response)}" for client, answer in answered]
        self.lines += [f"log: {self.record(record)}" for record in news] + told

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def known(self, client: Client, member_id: str) -> None:
        if member_id and member_id != client.member_id:
            client.member_id = member_id
            if member_id not in self.names:
                count = 1 + sum(name.partition("#")[0] == client.name for name in self.names.values())
                self.names[member_id] = client.name if count == 1 else f"{client.name}#{count}"

    # -- commands ----------------------------------------------------------------------------------------------------

    def do_topic(self, name: str, partitions: str) -> None:
        self.groups.create_topic(name, int(partitions))

    def do_join(self, name: str, *options: str) -> None:
        client = self.client(name)
        self.options(client, options)
        request = JoinGroupRequest(
            GROUP, 10_000, 60_000, client.member_id, client.instance, "consumer",
            [JoinGroupRequestProtocol("range", subscription("orders"))],
        )  # fmt: skip
        info = RequestInfo(9, name, "/127.0.0.1")
        shard = self.groups.shard
        self.ask(client, self.groups.call(lambda turn, ticket: shard.join_group(turn, ticket, info, request)))

    def do_sync(self, name: str, *assignments: str) -> None:
        client = self.client(name)
        ids = {name: member_id for member_id, name in self.names.items()}
        assigned = [
            SyncGroupRequestAssignment(ids[member], numbers.encode())
            for member, _, numbers in (text.partition("=") for text in assignments)
        ]
        request = SyncGroupRequest(
            GROUP, client.generation, client.member_id, client.instance, "consumer", "range", assigned
        )
        info = RequestInfo(5, name, "/127.0.0.1")
        shard = self.groups.shard
        self.ask(client, self.groups.call(lambda turn, ticket: shard.sync_group(turn, ticket, info, request)))

    def do_heartbeat(self, name: str) -> None:
        client = self.client(name)
        request = HeartbeatRequest(GROUP, client.generation, client.member_id, client.instance)
        info = RequestInfo(4, name, "/127.0.0.1")
        shard = self.groups.shard
        self.ask(client, self.groups.call(lambda turn, ticket: shard.heartbeat(turn, ticket, info, request)))

    def do_leave(self, name: str) -> None:
        client = self.client(name)
        request = LeaveGroupRequest(GROUP, [MemberIdentity(client.member_id, client.instance)])
        info = RequestInfo(5, name, "/127.0.0.1")
        shard = self.groups.shard
        self.ask(client, self.groups.call(lambda turn, ticket: shard.leave_group(turn, ticket, info, request)))
        client.forget()

    def do_beat(self, name: str, *options: str) -> None:
        client = self.client(name)
        topics = self.options(client, options)
        self.known(client, client.member_id or self.new_id(name))
        joins = client.epoch == JOINING
        self.beat(
            client,
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=client.member_id,
                member_epoch=client.epoch,
                instance_id=client.instance,
                rebalance_timeout_ms=60_000 if joins else -1,
                subscribed_topic_names=topics or (["orders"] if joins else None),
                topic_partitions=[
                    ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, numbers)
                    for topic_id, numbers in client.owned.items()
                ],
            ),
        )

    def do_quit(self, name: str, how: str = "") -> None:
        client = self.client(name)
        epoch = STATIC_LEAVING if how else LEAVING
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=client.member_id, member_epoch=epoch, instance_id=client.instance
        )
        self.beat(client, request)

    def do_restart(self, name: str) -> None:
        self.client(name).forget()

    def do_commit(self, name: str, place: str, offset: str) -> None:
        client = self.client(name)
        topic, _, partition = place.partition("/")
        generation = client.generation if client.generation >= 0 else client.epoch
        error = self.groups.commit(
            int(offset),
            topic=topic,
            partition=int(partition),
            member_id=client.member_id,
            generation=generation,
            instance=client.instance,
        )
        self.report()
        self.lines.append(f"{name} <- {ErrorCode(error).name if error else 'committed'}")

    def do_fetch(self, place: str) -> None:
        topic, _, partition = place.partition("/")
        self.lines.append(f"{place} is {self.groups.fetch(topic, int(partition)).committed_offset}")

    def do_wait(self, duration_ms: str) -> None:
        self.groups.advance(int(duration_ms))
        self.lines.append(f"now {self.groups.now_ms:.0f} ms")

    def do_failover(self) -> None:
        for client, _ in self.waiting:
            self.lines.append(f"{client.name} <- NOT_COORDINATOR")
        self.waiting = []
        before = self.groups.shard.durable_state()
        self.groups = self.groups.reloaded()
        assert self.rebalancing(before) or self.groups.shard.durable_state() == before

    def do_status(self) -> None:
        group = self.groups.shard.table.find(self.groups.turn(), GROUP)
        if group is None:
            self.lines.append("there is no such group")
        elif isinstance(group, ConsumerGroup):
            self.lines.append(f"{group.state}, epoch {group.epoch}, target of epoch {group.assignment_epoch}")
            for member in group.members.values():
                owned = self.owned(member.current.assigned)
                self.lines.append(f"  {self.name(member.member_id)} in epoch {member.current.epoch}: {owned}")
        else:
            leader = self.name(group.leader_id) if group.leader_id else "nobody"
            self.lines.append(f"{group.state.value}, generation {group.generation}, led by {leader}")
            for classic in group.members.values():
                self.lines.append(f"  {self.name(classic.member_id)}: {classic.assignment.decode() or 'nothing'}")

    # -- asking ------------------------------------------------------------------------------------------------------

    def options(self, client: Client, options: tuple[str, ...]) -> list[str]:
        for option in options:
            if option.startswith("instance="):
                client.instance = option.removeprefix("instance=")
        return [option for option in options if "=" not in option]

    def new_id(self, name: str) -> str:
        return f"{name}-{self.groups.rng.randbytes(8).hex()}"

    def beat(self, client: Client, request: ConsumerGroupHeartbeatRequest) -> None:
        info = RequestInfo(1, client.name, "/127.0.0.1")
        shard = self.groups.shard
        self.ask(
            client, self.groups.call(lambda turn, ticket: shard.consumer_group_heartbeat(turn, ticket, info, request))
        )

    def ask(self, client: Client, answer: Answer) -> None:
        self.waiting.append((client, answer))

    @staticmethod
    def rebalancing(state: dict[str, object]) -> bool:
        return "rebalancing" in cast(dict[str, object], state["classic"]).values()

    # -- in words ----------------------------------------------------------------------------------------------------

    def take(self, client: Client, response: Message) -> str:
        """What the client is told, which it remembers."""
        match response:
            case JoinGroupResponse():
                if response.error_code:
                    return ErrorCode(response.error_code).name
                client.generation = response.generation_id
                members = ", ".join(self.name(member.member_id) for member in response.members)
                leads = f"leads {members}" if members else f"follows {self.name(response.leader)}"
                skips = " and need not assign" if response.skip_assignment else ""
                return f"joined generation {response.generation_id}, {leads}{skips}"
            case SyncGroupResponse() if not response.error_code:
                return f"owns {response.assignment.decode() or 'nothing'}"
            case ConsumerGroupHeartbeatResponse() if not response.error_code:
                if response.member_epoch in (LEAVING, STATIC_LEAVING):
                    return "goodbye"
                client.epoch = response.member_epoch
                if response.assignment is None:
                    return f"epoch {client.epoch}"
                assigned = {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}
                client.owned = assigned
                return f"epoch {client.epoch}, owns {self.owned(assigned)}"
            case LeaveGroupResponse():
                return ", ".join(ErrorCode(member.error_code).name for member in response.members)
            case HeartbeatResponse() | SyncGroupResponse() | ConsumerGroupHeartbeatResponse():
                return ErrorCode(response.error_code).name if response.error_code else "alive"
        raise AssertionError(f"{type(response).__name__} is not expected here")

    def name(self, member_id: str) -> str:
        return self.names.get(member_id, member_id)

    def owned(self, owned: Owned | dict[bytes, list[int]] | dict[bytes, tuple[int, ...]]) -> str:
        topics = []
        for topic_id, partitions in owned.items():
            topic = self.groups.image.topic_by_id(topic_id)
            topics.append(f"{topic.name if topic else '?'}/{','.join(map(str, sorted(partitions)))}")
        return " ".join(topics) or "nothing"

    def record(self, record: Logged) -> str:
        key, value = record.key, record.value
        kind = key[1]
        if kind == OFFSET_COMMIT_KEY:
            topic, partition = offset_key_partition(key)
            committed = "gone" if value is None else decode_offset_value(value).offset
            return f"offset of {topic}/{partition}: {committed}"
        if kind == GROUP_METADATA_KEY:
            return "classic group gone" if value is None else self.classic_record(value)
        return self.consumer_record(kind, key, value)

    def classic_record(self, value: bytes) -> str:
        group = decode_group(GROUP, value)
        members = [f"{self.name(m.member_id)}={m.assignment.decode() or 'nothing'}" for m in group.members.values()]
        return f"classic group, generation {group.generation}: {' '.join(members) or 'nobody'}"

    def consumer_record(self, kind: int, key: bytes, value: bytes | None) -> str:
        match kind:
            case r.ConsumerGroupMetadataKey.record_type:
                if value is None:
                    return "consumer group gone"
                return f"consumer group, epoch {r.decode_value(r.ConsumerGroupMetadataValue, value).epoch}"
            case r.ConsumerGroupMemberMetadataKey.record_type:
                member = self.name(r.decode_key(r.ConsumerGroupMemberMetadataKey, key).member_id)
                if value is None:
                    return f"member {member} gone"
                return f"member {member} wants {' '.join(records.member_metadata(value, tuple).topic_names)}"
            case r.ConsumerGroupTargetAssignmentMetadataKey.record_type:
                if value is None:
                    return "target gone"
                target = r.decode_value(r.ConsumerGroupTargetAssignmentMetadataValue, value)
                return f"target of epoch {target.assignment_epoch} is complete"
            case r.ConsumerGroupTargetAssignmentMemberKey.record_type:
                member = self.name(r.decode_key(r.ConsumerGroupTargetAssignmentMemberKey, key).member_id)
                wanted = "gone" if value is None else self.owned(dict(records.target_assignment(value)))
                return f"target of {member}: {wanted}"
            case r.ConsumerGroupCurrentMemberAssignmentKey.record_type:
                member = self.name(r.decode_key(r.ConsumerGroupCurrentMemberAssignmentKey, key).member_id)
                if value is None:
                    return f"{member} owns nothing any more"
                current = records.current_assignment(value)
                revoking = f", must give up {self.owned(current.revoking)}" if current.revoking else ""
                return f"{member} owns {self.owned(current.assigned)} in epoch {current.epoch}{revoking}"
        raise AssertionError(f"records of type {kind} are not expected here")

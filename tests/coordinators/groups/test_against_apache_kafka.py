"""Scenes from the life of a group, played to the shard and to Apache Kafka: both must say the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from coordinators.groups.harness import Groups, subscription
from coordinators.groups.worlds import BrokerWorld, Reply, ShardWorld, World
from penstock.coordinators.groups.records import (
    decode_group,
    decode_offset_value,
    group_key,
    group_value,
    key_group,
    offset_key,
    offset_key_partition,
    offset_value,
)
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.group_records import GROUP_METADATA_KEY, OFFSET_COMMIT_KEY
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from penstock.wire.records import Record, iter_batches, iter_records
from support.apache_kafka import SHORT_LIVED, ApacheKafka, available

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("groups of Apache Kafka"), pytest.mark.timeout(300)]

SETTINGS = {"group_initial_rebalance_delay_ms": 0, "group_max_size": 3}
COORDINATOR_TIMEOUT_S = 60
TOPICS = {"t": 3, "u": 1}
RANGE = (("range", subscription("t")),)


class Scene:
    """What happens in one world, as plain values. Ids of members become names, in the order of their appearance."""

    def __init__(self, world: World, group: str) -> None:
        self.world = world
        self.group = group
        self.said: list[object] = []
        self._names: dict[str, str] = {"": ""}

    def ask(self, request: Message, version: int) -> Reply:
        return self.world.send(request, version)

    def name(self, member_id: str) -> str:
        return self._names.setdefault(member_id, f"member {len(self._names)}")

    # -- members -----------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 30_000,
        version: int = 9,
        group: str | None = None,
    ) -> Reply:
        group_id = self.group if group is None else group
        offered = [JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols]
        request = JoinGroupRequest(group_id, session_ms, 60_000, member_id, instance, protocol_type, offered)
        return self.ask(request, version)

    def joined(self, reply: Reply) -> str:
        """Note what came, return the member's id."""
        response = cast(JoinGroupResponse, reply.response)
        self.said.append(
            (
                "joined",
                ErrorCode(response.error_code).name,
                response.generation_id,
                response.protocol_name,
                response.skip_assignment,
                self.name(response.member_id),
                self.name(response.leader),
                sorted((self.name(m.member_id), m.group_instance_id, m.metadata) for m in response.members),
            )
        )
        return response.member_id

    def enter(self, **options: object) -> str:
        """Both rounds; whoever waits is answered later."""
        return self.joined(self.join(**options))  # type: ignore[arg-type]

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **o: object) -> Reply:
        options: dict[str, object] = {"instance": None, "protocol": "range", "protocol_type": "consumer", **o}
        request = SyncGroupRequest(
            self.group,
            generation,
            member_id,
            options["instance"],  # type: ignore[arg-type]
            options["protocol_type"],  # type: ignore[arg-type]
            options["protocol"],  # type: ignore[arg-type]
            [SyncGroupRequestAssignment(member, data) for member, data in (assignments or {}).items()],
        )
        return self.ask(request, 5)

    def synced(self, reply: Reply) -> None:
        response = cast(SyncGroupResponse, reply.response)
        self.said.append(("synced", ErrorCode(response.error_code).name, response.assignment, response.protocol_name))

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None, group: str | None = None) -> None:
        request = HeartbeatRequest(self.group if group is None else group, generation, member_id, instance)
        error = cast(HeartbeatResponse, self.ask(request, 4).response).error_code
        self.said.append(("heartbeat", ErrorCode(error).name))

    def leave(self, *members: tuple[str, str | None], version: int = 5, group: str | None = None) -> None:
        group_id = self.group if group is None else group
        request = LeaveGroupRequest(group_id, [MemberIdentity(m, i) for m, i in members], members[0][0])
        response = cast(LeaveGroupResponse, self.ask(request, version).response)
        results = [(self.name(m.member_id), m.group_instance_id, m.error_code) for m in response.members]
        self.said.append(("left", ErrorCode(response.error_code).name, results))

    def waits(self, reply: Reply) -> None:
        self.said.append(("waits", reply.waits))

    def stable(self, count: int) -> list[str]:
        """A stable group; the leader first."""
        ids = [self.enter() for _ in range(count)]
        replies = [self.join(member_id) for member_id in ids]
        generation = 0
        members: list[str] = []
        for reply in replies:
            members.append(self.joined(reply))
            generation = cast(JoinGroupResponse, reply.response).generation_id
        response = cast(JoinGroupResponse, replies[0].response)
        leader = response.leader
        followers = [member for member in members if member != leader]
        waiting = [self.sync(member, generation) for member in followers]
        self.synced(self.sync(leader, generation, dict.fromkeys(members, b"share")))
        for reply in waiting:
            self.synced(reply)
        return [leader, *followers]

    # -- offsets -----------------------------------------------------------------------------------------------------

    def commit(self, *, member_id: str = "", generation: int = -1, version: int = 9, **o: object) -> None:
        options: dict[str, object] = {"topic": "t", "partition": 0, "metadata": "", "instance": None, **o}
        partition = OffsetCommitRequestPartition(
            cast(int, options["partition"]), 7, 0, cast(str | None, options["metadata"])
        )
        request = OffsetCommitRequest(
            self.group,
            generation,
            member_id,
            cast(str | None, options["instance"]),
            -1,
            [OffsetCommitRequestTopic(name=cast(str, options["topic"]), partitions=[partition])],
        )
        response = cast(OffsetCommitResponse, self.ask(request, version).response)
        self.said.append(("committed", ErrorCode(response.topics[0].partitions[0].error_code).name))

    def fetch(self, *topics: tuple[str, list[int]], stable: bool = False, group: str | None = None) -> None:
        asked = [OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics]
        group_id = self.group if group is None else group
        request = OffsetFetchRequest([OffsetFetchRequestGroup(group_id, topics=asked or None)], require_stable=stable)
        answer = cast(OffsetFetchResponse, self.ask(request, 9).response).groups[0]
        self.said.append(
            (
                "fetched",
                ErrorCode(answer.error_code).name,
                sorted(
                    (
                        topic.name,
                        p.partition_index,
                        p.committed_offset,
                        p.committed_leader_epoch,
                        p.metadata,
                        p.error_code,
                    )
                    for topic in answer.topics
                    for p in topic.partitions
                ),
            )
        )

    def delete_offsets(self, *partitions: tuple[str, int], group: str | None = None) -> None:
        topics = [OffsetDeleteRequestTopic(n, [OffsetDeleteRequestPartition(number)]) for n, number in partitions]
        request = OffsetDeleteRequest(self.group if group is None else group, topics)
        response = cast(OffsetDeleteResponse, self.ask(request, 0).response)
        results = sorted((t.name, ErrorCode(p.error_code).name) for t in response.topics for p in t.partitions)
        self.said.append(("deleted offsets", ErrorCode(response.error_code).name, results))

    def commit_by_id(self, topic_id: bytes, partition: int) -> None:
        topic = OffsetCommitRequestTopic(topic_id, "", [OffsetCommitRequestPartition(partition, 9, 1, "by id")])
        response = cast(OffsetCommitResponse, self.ask(OffsetCommitRequest(self.group, topics=[topic]), 10).response)
        answer = response.topics[0]
        assert answer.topic_id == topic_id
        self.said.append(("committed", ErrorCode(answer.partitions[0].error_code).name))

    def fetch_by_id(self, *topic_ids: bytes) -> None:
        asked = [OffsetFetchRequestTopics(topic_id, partition_indexes=[0, 9]) for topic_id in topic_ids]
        request = OffsetFetchRequest([OffsetFetchRequestGroup(self.group, topics=asked or None)])
        answer = cast(OffsetFetchResponse, self.ask(request, 10).response).groups[0]
        self.said.append(
            (
                "fetched by id",
                ErrorCode(answer.error_code).name,
                sorted(
                    (self.name(topic.topic_id.hex()), p.partition_index, p.committed_offset, p.metadata, p.error_code)
                    for topic in answer.topics
                    for p in topic.partitions
                ),
            )
        )

    # -- administration ----------------------------------------------------------------------------------------------

    def describe(self, version: int = 6, group: str | None = None) -> None:
        group_id = self.group if group is None else group
        answer = cast(DescribeGroupsResponse, self.ask(DescribeGroupsRequest([group_id]), version).response).groups[0]
        self.said.append(
            (
                "described",
                ErrorCode(answer.error_code).name,
                (answer.error_message or "").replace(group_id, "GROUP"),
                answer.group_state,
                answer.protocol_type,
                answer.protocol_data,
                sorted(
                    (
                        self.name(m.member_id),
                        m.group_instance_id,
                        m.client_id,
                        m.client_host,
                        m.member_metadata,
                        m.member_assignment,
                    )
                    for m in answer.members
                ),
            )
        )

    def list(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> None:
        response = cast(ListGroupsResponse, self.ask(ListGroupsRequest([*states], [*types]), 5).response)
        listed = [
            (g.protocol_type, g.group_state, g.group_type.lower()) for g in response.groups if g.group_id == self.group
        ]
        self.said.append(("listed", ErrorCode(response.error_code).name, listed))

    def delete(self, group: str | None = None) -> None:
        request = DeleteGroupsRequest([self.group if group is None else group])
        response = cast(DeleteGroupsResponse, self.ask(request, 2).response)
        self.said.append(("deleted", ErrorCode(response.results[0].error_code).name))


# -- scenes ------------------------------------------------------------------------------------------------------------


def refused_joins(scene: Scene) -> None:
    scene.joined(scene.join("made-up"))
    scene.joined(scene.join(group=""))
    scene.joined(scene.join(session_ms=5_999))
    scene.joined(scene.join(session_ms=1_800_001))
    scene.joined(scene.join(protocols=()))
    scene.joined(scene.join(protocol_type=""))
    scene.describe(5, group="nobody")
    scene.describe(6, group="nobody")


def first_steps(scene: Scene) -> None:
    member = scene.enter()
    scene.describe()
    scene.list(("EMPTY",), ("Classic",))
    reply = scene.join(member)
    scene.joined(reply)
    scene.describe()
    scene.heartbeat(member, 1)
    scene.commit(member_id=member, generation=1)
    scene.synced(scene.sync(member, 0))
    scene.synced(scene.sync(member, 1, protocol="other"))
    scene.synced(scene.sync(member, 1, protocol_type="other"))
    scene.synced(scene.sync("stranger", 1))
    scene.synced(scene.sync(member, 1, {member: b"all", "stranger": b"none"}))
    scene.describe()
    scene.list(("stable",))
    scene.list(("Empty",))
    scene.list((), ("consumer",))
    scene.list((), ("nonsense",))


def old_versions(scene: Scene) -> None:
    member = scene.joined(scene.join(version=2))
    scene.synced(scene.sync(member, 1, {member: b"all"}))
    scene.joined(scene.join(member, version=0))
    scene.leave((member, None), version=1)
    scene.leave((member, None), version=2)


def life_of_a_stable_group(scene: Scene) -> None:
    member = scene.stable(1)[0]
    scene.heartbeat(member, 1)
    scene.heartbeat(member, 0)
    scene.heartbeat(member, -1)
    scene.heartbeat("stranger", 1)
    scene.heartbeat(member, 1, "instance")
    scene.heartbeat(member, 1, group="nobody")
    scene.heartbeat(member, 1, group="")
    scene.synced(scene.sync(member, 1))
    scene.delete()
    scene.commit()
    scene.commit(member_id=member)
    scene.commit(member_id=member, generation=1)
    scene.commit(member_id=member, generation=2)
    scene.commit(member_id="stranger", generation=1)
    scene.joined(scene.join(protocol_type="connect"))
    scene.joined(scene.join(protocols=(("sticky", b""),)))
    scene.joined(scene.join(member, protocols=(("sticky", b""),)))
    scene.leave(("stranger", None), (member, "instance"), ("", None), ("", "instance"))
    scene.describe()
    scene.leave((member, None))
    scene.describe()
    scene.heartbeat(member, 1)
    scene.synced(scene.sync(member, 1))
    scene.joined(scene.join(member))
    scene.commit()
    scene.commit(member_id=member, generation=1)
    scene.delete()
    scene.fetch()
    scene.delete()


def rebalances(scene: Scene) -> None:
    leader = scene.stable(1)[0]
    second = scene.enter()
    joining = scene.join(second)
    scene.waits(joining)
    scene.heartbeat(leader, 1)
    scene.commit(member_id=leader, generation=1)
    scene.synced(scene.sync(leader, 1))
    scene.describe()
    scene.joined(scene.join(leader))
    scene.joined(joining)
    scene.joined(scene.join(second))
    scene.commit(member_id=second, generation=2)
    waiting = scene.sync(second, 2)
    scene.waits(waiting)
    scene.joined(scene.join(leader))
    again = scene.join(leader, protocols=(("range", b"new"),))
    scene.waits(again)
    scene.synced(waiting)
    rejoined = scene.join(second)
    scene.joined(again)
    scene.joined(rejoined)
    waiting = scene.sync(second, 3)
    scene.synced(scene.sync(leader, 3, {leader: b"one", second: b"two"}))
    scene.synced(waiting)
    scene.joined(scene.join(second))
    scene.describe()
    scene.leave((leader, None))
    scene.joined(scene.join(second))


def full_group(scene: Scene) -> None:
    leader = scene.stable(1)[0]
    ids = [scene.enter() for _ in range(2)]
    waiting = [scene.join(member_id) for member_id in ids]
    scene.waits(waiting[1])
    waiting.append(scene.join(leader))
    for reply in waiting:
        scene.joined(reply)
    scene.joined(scene.join())
    scene.describe()


def static_members(scene: Scene) -> None:
    one = scene.joined(scene.join(instance="one"))
    scene.synced(scene.sync(one, 1, {one: b"mine"}, instance="one"))
    scene.describe()
    again = scene.joined(scene.join(instance="one"))
    scene.synced(scene.sync(again, 1, instance="one"))
    scene.heartbeat(one, 1, "one")
    scene.synced(scene.sync(one, 1, instance="one"))
    scene.commit(member_id=one, generation=1, instance="one")
    scene.joined(scene.join(one, instance="one"))
    scene.leave((one, "one"))
    scene.heartbeat(one, 1)
    scene.heartbeat(again, 1, "one")
    scene.heartbeat(again, 1, "other")
    older = scene.joined(scene.join(instance="one", version=8))
    scene.describe()
    scene.joined(scene.join(instance="one", protocols=(("range", b"changed"),)))
    scene.heartbeat(older, 1, "one")
    scene.leave(("", "one"), ("", "two"))
    scene.describe()


def offsets(scene: Scene) -> None:
    scene.fetch()
    scene.fetch(("t", [0]))
    scene.commit(member_id="m", generation=1, version=8)
    scene.commit(member_id="m", generation=1, version=9)
    scene.commit(metadata="here")
    scene.commit(partition=2, metadata=None)
    scene.commit(partition=3)
    scene.commit(topic="gone")
    scene.commit(metadata="x" * 4_096)
    scene.commit(metadata="x" * 4_097)
    scene.commit(topic="u", metadata="ü" * 200)
    scene.fetch()
    scene.fetch(("t", [0, 1, 2, 9]), ("gone", [0]), ("u", [0]))
    scene.fetch(("t", [0]), stable=True)
    scene.list()
    scene.describe()
    scene.delete_offsets(("t", 2), ("gone", 0))
    scene.delete_offsets(("t", 0), group="nobody")
    scene.delete_offsets(("t", 0), group="")
    scene.fetch()
    scene.delete("nobody")
    scene.delete()
    scene.fetch()
    scene.describe()


def offsets_by_topic_id(scene: Scene) -> None:
    topic_id = scene.world.topic_id("t")
    stranger = b"\x01" * 16
    scene.name(topic_id.hex())
    scene.commit_by_id(topic_id, 0)
    scene.commit_by_id(topic_id, 9)
    scene.commit_by_id(stranger, 0)
    scene.commit(topic="u")
    scene.fetch()
    scene.fetch_by_id(topic_id)
    scene.fetch_by_id(stranger, topic_id)
    scene.fetch_by_id()


def offsets_of_members(scene: Scene) -> None:
    member = scene.stable(1)[0]
    scene.commit(member_id=member, generation=1)
    scene.commit(topic="u", member_id=member, generation=1)
    scene.delete_offsets(("t", 0), ("u", 0))
    scene.fetch()
    scene.leave((member, None))
    scene.delete_offsets(("t", 0))
    scene.fetch()


def other_protocol_types(scene: Scene) -> None:
    first = scene.enter(protocol_type="connect", protocols=(("v1", b"?"),))
    scene.joined(scene.join(first, protocol_type="connect", protocols=(("v1", b"?"),)))
    scene.synced(scene.sync(first, 1, {first: b"x"}, protocol="v1", protocol_type="connect"))
    scene.delete_offsets(("t", 0))
    scene.list()
    scene.describe()


SCENES = (
    refused_joins, first_steps, old_versions, life_of_a_stable_group, rebalances, full_group, static_members, offsets,
    offsets_by_topic_id, offsets_of_members, other_protocol_types,
)  # fmt: skip


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    if reason := available():
        pytest.skip(reason)
    properties = {name.replace("_", "."): str(value) for name, value in SETTINGS.items()}
    properties["offsets.topic.num.partitions"] = "1"
    with ApacheKafka(heap="512M", properties=properties, jvm_flags=SHORT_LIVED) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(n, p, 1) for n, p in TOPICS.items()]).values():
            future.result(30)
        wait_for_coordinator(BrokerWorld(broker.port))
        yield broker


def wait_for_coordinator(world: World) -> None:
    """The offsets topic comes with the first who asks for a coordinator, and takes its time."""
    deadline_s = time.monotonic() + COORDINATOR_TIMEOUT_S
    fetch = OffsetFetchRequest([OffsetFetchRequestGroup("warm-up", topics=None)])
    while time.monotonic() < deadline_s:
        found = world.send(FindCoordinatorRequest(coordinator_keys=["warm-up"]), 6)
        assert found.response is not None
        response = cast(OffsetFetchResponse, world.send(fetch, 9).response)
        if response.groups[0].error_code == ErrorCode.NONE:
            return
    raise AssertionError("no coordinator came up")


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_shard_says_what_kafka_says(kafka: ApacheKafka, scene: Callable[[Scene], None]) -> None:
    groups = Groups(**SETTINGS)
    for topic, partitions in TOPICS.items():
        groups.create_topic(topic, partitions)
    ours = Scene(ShardWorld(groups), scene.__name__)
    scene(ours)
    theirs = Scene(BrokerWorld(kafka.port), scene.__name__)
    scene(theirs)
    for number, (mine, kafkas) in enumerate(zip(ours.said, theirs.said, strict=True)):
        assert mine == kafkas, f"step {number}"


def log_of_kafka(kafka: ApacheKafka) -> list[Record]:
    """What Kafka has in the one partition of its offsets topic, up to a batch that it is just writing."""
    records: list[Record] = []
    for path in sorted((kafka.data_dir / "__consumer_offsets-0").glob("*.log")):
        for _, batch in iter_batches(path.read_bytes(), partial_tail=True):
            records += iter_records(batch)
    return records


def test_kafkas_own_records_are_read_and_written_back_the_same(kafka: ApacheKafka) -> None:
    for play in (offsets, offsets_by_topic_id, static_members, first_steps):
        play(Scene(BrokerWorld(kafka.port), f"written-{play.__name__}"))
    kinds: dict[int, int] = {}
    for record in log_of_kafka(kafka):
        assert record.key is not None
        kind = record.key[1]
        group_id = key_group(record.key)
        if kind == OFFSET_COMMIT_KEY:
            assert record.key == offset_key(group_id, *offset_key_partition(record.key))
            if record.value is not None:
                assert record.value == offset_value(*decode_offset_value(record.value))
        else:
            assert record.key == group_key(group_id)
            if record.value is not None:
                assert record.value == group_value(decode_group(group_id, record.value))
        kinds[kind] = kinds.get(kind, 0) + 1
    assert min(kinds[OFFSET_COMMIT_KEY], kinds[GROUP_METADATA_KEY]) > 5


def test_a_shard_takes_over_from_kafka(kafka: ApacheKafka) -> None:
    """The log that Kafka wrote, loaded here: the same groups with the same offsets."""
    theirs = Scene(BrokerWorld(kafka.port), "taken-over")
    member = theirs.stable(1)[0]
    theirs.commit(member_id=member, generation=1, metadata="kept")
    theirs.commit(member_id=member, generation=1, partition=2)
    groups = Groups()
    for topic, partitions in TOPICS.items():
        groups.create_topic(topic, partitions)
    for record in log_of_kafka(kafka):
        assert record.key is not None
        groups.shard.replay(record.offset, -1, -1, record.key, record.value)
    ours = Scene(ShardWorld(groups), "taken-over")
    ours.name(member)
    for scene in (ours, theirs):
        scene.said.clear()
        scene.fetch()
        scene.describe()
        scene.list()
        scene.heartbeat(member, 1)
        scene.synced(scene.sync(member, 1))
        scene.commit(member_id=member, generation=1)
    assert ours.said == theirs.said
    groups_of_both = [
        sorted(g.group_id for g in cast(ListGroupsResponse, world.send(ListGroupsRequest(), 5).response).groups)
        for world in (ours.world, theirs.world)
    ]
    assert groups_of_both[0] == groups_of_both[1]

"""Groups on a whole broker: their topic, the two protocols, and connections that go away."""

from __future__ import annotations

from broker.group_session import (
    QUICK,
    SESSION_TIMEOUT_MS,
    ClassicMember,
    ConsumerMember,
    Rebalance,
    commit,
    committed,
    describe,
    describe_consumer,
    find,
    listed,
    rebalanced,
    settled,
    stable_group,
    until_told,
)
from broker.session import TOPIC, Session, simulated
from penstock.config import ConfigSource
from penstock.coordinators.partitioning import partition_of
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

OFFSETS_TOPIC = "__consumer_offsets"
GROUP = 32


# ---- the topic


@simulated({"offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "2000000"})
async def test_the_first_who_looks_for_a_coordinator_makes_the_topic(s: Session) -> None:
    assert await s.topics() == []
    answers = [(await s.connect()).send(FindCoordinatorRequest(coordinator_keys=["g"]), 4) for _ in range(3)]
    for answer in answers:
        (found,) = (await answer).coordinators
        assert (found.key, found.error_code, found.node_id) == ("g", 0, 1)
    topic = await s.describe(OFFSETS_TOPIC)
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 3)
    # offsets.topic.replication.factor is 3, and there is one broker.
    assert all(partition.replica_nodes == [1] for partition in topic.partitions)
    configs = dict(s.node.served.quorum.image.config(TOPIC, OFFSETS_TOPIC))
    assert configs == {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "2000000"}


@simulated()
async def test_it_has_fifty_partitions_unless_set_and_needs_no_setting_on_one_node(s: Session) -> None:
    await find(s)
    assert len((await s.describe(OFFSETS_TOPIC)).partitions) == 50
    assert await commit(s.client, "g", {("nowhere", 0): (1, None)}) == {
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


@simulated({"offsets.topic.num.partitions": "3"})
async def test_asking_for_its_metadata_makes_it_as_a_coordinator_would(s: Session) -> None:
    answer = await s.call(MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)]))
    assert (answer.topics[0].error_code, len(answer.topics[0].partitions)) == (0, 3)
    assert s.node.served.quorum.image.config(TOPIC, OFFSETS_TOPIC)["cleanup.policy"] == "compact"


@simulated(QUICK)
async def test_without_the_topic_nobody_is_a_coordinator_and_there_are_no_groups(s: Session) -> None:
    member = await ClassicMember.connect(s)
    assert (await member.join()).error_code == ErrorCode.NOT_COORDINATOR
    member.id, member.generation = "m", 1
    assert await member.heartbeat() == ErrorCode.NOT_COORDINATOR
    assert (await member.sync()).error_code == ErrorCode.NOT_COORDINATOR
    assert (await member.leave()).error_code == ErrorCode.NOT_COORDINATOR
    assert await member.commit({("t", 0): (1, None)}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    assert (await describe(s)).error_code == ErrorCode.NOT_COORDINATOR
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert (await s.call(request)).groups[0].error_code == ErrorCode.NOT_COORDINATOR
    consumer = await ConsumerMember.connect(s, topics=["t"])
    assert (await consumer.heartbeat()).error_code == ErrorCode.NOT_COORDINATOR
    assert (await describe_consumer(s)).error_code == ErrorCode.NOT_COORDINATOR
    assert await listed(s) == {}


@simulated(QUICK)
async def test_other_types_of_coordinators_are_refused_with_a_reason(s: Session) -> None:
    for key_type in (2, 7):
        (found,) = (await s.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]))).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert found.error_message
        assert s.node.events.said("coordinator refused", "reason")[-1] == found.error_message
    assert await s.topics() == []


@simulated(QUICK)
async def test_clients_read_the_topic_but_do_not_write_to_it(s: Session) -> None:
    await s.create("t")
    await find(s)
    for version in (7, 12):
        assert (await s.produce(OFFSETS_TOPIC, b"x", version=version)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    await commit(s.client, "g", {("t", 0): (5, "meta")})
    records = await s.records(OFFSETS_TOPIC, partition_of("g", 2))
    assert [record.key for record in records] == [b"\0\1\0\1g\0\1t\0\0\0\0"], "as Kafka writes it"


@simulated(QUICK)
async def test_deleting_the_topic_ends_all_groups_and_the_next_who_looks_makes_it_again(s: Session) -> None:
    await s.create("t")
    await find(s)
    (member,) = await stable_group(s, 1)
    await member.commit({("t", 0): (1, None)})
    joining = await ClassicMember.connect(s)
    joining.id = (await joining.send_join()).member_id
    waiting = joining.send_join()
    await s.runtime.sleep(10)
    assert not waiting.has_come
    await s.delete(OFFSETS_TOPIC)
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert await member.heartbeat() == ErrorCode.NOT_COORDINATOR
    await find(s)
    assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert await committed(s.client, "g") == {}


def test_a_group_is_kept_where_kafka_would_keep_it() -> None:
    """Values of Java's `Math.abs("…".hashCode()) % 50`."""
    assert [partition_of(name, 50) for name in ("", "g", "console-consumer-12345", "grüße", "😀")] == [0, 3, 6, 23, 49]
    # Its hash is the one number that has no absolute value.
    assert partition_of("polygenelubricants", 50) == 0


# ---- the classic protocol


@simulated(QUICK)
async def test_members_share_a_generation_and_are_told_when_another_comes(s: Session) -> None:
    await find(s)
    members = await stable_group(s, 3)
    assert len({member.generation for member in members}) == 1
    assert [await member.heartbeat() for member in members] == [ErrorCode.NONE] * 3
    another = await ClassicMember.connect(s)
    another.id = (await another.send_join()).member_id
    waiting = another.send_join()
    await s.runtime.sleep(10)
    assert [await member.heartbeat() for member in members] == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    joins = [member.send_join() for member in members]
    answers = [await join for join in (*joins, waiting)]
    assert {(answer.error_code, answer.generation_id) for answer in answers} == {(0, members[0].generation + 1)}
    assert sorted(len(answer.members) for answer in answers) == [0, 0, 0, 4], "the leader alone is told of all"


@simulated(QUICK)
async def test_a_member_that_leaves_and_one_that_falls_silent_make_the_others_rebalance(s: Session) -> None:
    await find(s)
    members = await stable_group(s, 3)
    leaving = members.pop()
    await leaving.leave()
    assert await members[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await rebalanced(s, members)
    assert len((await describe(s)).members) == 2
    members.pop().client.close()
    took_ms = await until_told(s, members[0])
    assert SESSION_TIMEOUT_MS * 0.9 <= took_ms <= SESSION_TIMEOUT_MS + 1_000
    await rebalanced(s, members)
    assert len((await describe(s)).members) == 1


@simulated({**QUICK, "group.initial.rebalance.delay.ms": "3000"})
async def test_members_that_are_started_together_wait_for_each_other(s: Session) -> None:
    await find(s)
    began_ms = s.runtime.now_ms()
    members = [await ClassicMember.connect(s) for _ in range(3)]
    joins = []
    for member in members:
        member.id = (await member.send_join()).member_id
        joins.append(member.send_join())
        await s.runtime.sleep(500)
    generations = {(await join).generation_id for join in joins}
    assert generations == {1}
    assert s.runtime.now_ms() - began_ms >= 3000


@simulated(QUICK)
async def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_double(s: Session) -> None:
    await find(s)
    first = await ClassicMember.connect(s, instance_id="one")
    other = await ClassicMember.connect(s, instance_id="two")
    await rebalanced(s, [first, other])
    generation = other.generation
    first.client.close()
    again = await ClassicMember.connect(s, instance_id="one")
    answer = await again.join()
    assert (answer.error_code, answer.generation_id) == (0, generation)
    assert await other.heartbeat() == ErrorCode.NONE
    synced = await again.sync()
    assert synced.assignment == f"for {first.id}".encode(), "what it had before"
    first.client = await s.connect()
    assert await first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


@simulated({**QUICK, "group.max.size": "2"})
async def test_a_full_group_takes_nobody_more(s: Session) -> None:
    await find(s)
    await stable_group(s, 2)
    another = await ClassicMember.connect(s)
    another.id = (await another.send_join()).member_id
    answer = await another.send_join()
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@simulated(QUICK)
async def test_a_member_whose_connection_drops_while_it_waits_leaves_nothing_behind(s: Session) -> None:
    await find(s)
    (member,) = await stable_group(s, 1)
    for _ in range(5):
        joining = await ClassicMember.connect(s)
        joining.id = (await joining.send_join()).member_id
        joining.send_join()
        await s.runtime.sleep(10)
        joining.client.frames.abort()
    coordinators = s.node.served.coordinators.groups
    assert coordinators.counts().waiting == 5
    connections = s.node.served.service.connection_count
    await s.runtime.sleep(100)
    assert s.node.served.service.connection_count <= connections
    rebalance = Rebalance(s, [member], lambda ids: dict.fromkeys(ids, b"x"))
    await rebalance.run()
    for _ in range(int(4 * SESSION_TIMEOUT_MS / 1000)):
        await s.runtime.sleep(1000)
        await Rebalance(s, [member], lambda ids: dict.fromkeys(ids, b"x")).run()
    assert coordinators.counts().waiting == 0
    assert [one.member_id for one in (await describe(s)).members] == [member.id]


@simulated(QUICK)
async def test_what_is_pipelined_behind_a_join_waits_for_it(s: Session) -> None:
    await find(s)
    (member,) = await stable_group(s, 1)
    joining = await ClassicMember.connect(s)
    joining.id = (await joining.send_join()).member_id
    join = joining.send_join()
    behind = joining.client.send(ListGroupsRequest(), 5)
    await s.runtime.sleep(100)
    assert not behind.has_come
    assert (await member.join()).error_code == ErrorCode.NONE
    assert (await join).error_code == ErrorCode.NONE
    assert [group.group_id for group in (await behind).groups] == ["g"]


# ---- the consumer protocol


@simulated(QUICK)
async def test_consumers_are_assigned_and_follow_members_and_topics(s: Session) -> None:
    await s.create("t", 4)
    await find(s, "c")
    first, second = [await ConsumerMember.connect(s, "c", ["t"]) for _ in range(2)]
    await settled([first], 4)
    await settled([first, second], 4)
    assert (len(first.partitions), len(second.partitions)) == (2, 2)
    topics = [CreatePartitionsTopic(name="t", count=6, assignments=None)]
    assert (await s.call(CreatePartitionsRequest(topics=topics))).results[0].error_code == 0
    await settled([first, second], 6)
    assert (await second.leave()).error_code == 0
    await settled([first], 6)
    found = await describe_consumer(s)
    assert (found.group_state, [member.member_id for member in found.members]) == ("Stable", [first.id])


@simulated(QUICK)
async def test_a_consumer_that_falls_silent_is_removed_after_its_session(s: Session) -> None:
    await s.create("t", 2)
    await find(s, "c")
    first, second = [await ConsumerMember.connect(s, "c", ["t"]) for _ in range(2)]
    await settled([first, second], 2)
    began_ms = s.runtime.now_ms()
    while len(first.partitions) < 2:
        assert (await first.heartbeat()).error_code == 0
        await s.runtime.sleep(1000)
    assert 44_000 <= s.runtime.now_ms() - began_ms <= 50_000
    assert (await second.heartbeat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@simulated(QUICK)
async def test_a_regular_expression_finds_topics_that_come_later(s: Session) -> None:
    first_id = await s.create("data-1")
    await s.create("other")
    await find(s, "c")
    member = await ConsumerMember.connect(s, "c", subscribed_topic_regex="data-.*")
    await settled([member], 1)
    assert member.partitions == [(first_id, 0)]
    second_id = await s.create("data-2")
    await settled([member], 2)
    assert sorted(member.partitions) == sorted([(first_id, 0), (second_id, 0)])


@simulated({**QUICK, "group.coordinator.rebalance.protocols": "classic"})
async def test_the_consumer_protocol_can_be_switched_off(s: Session) -> None:
    await s.create("t")
    await find(s, "c")
    member = await ConsumerMember.connect(s, "c", ["t"])
    assert (await member.heartbeat()).error_code == ErrorCode.UNSUPPORTED_VERSION
    await stable_group(s, 1)


@simulated(QUICK)
async def test_a_group_may_have_a_session_timeout_and_a_heartbeat_interval_of_its_own(s: Session) -> None:
    await s.create("t")
    await find(s, "c")
    member = await ConsumerMember.connect(s, "c", ["t"])
    await settled([member], 1)
    assert member.heartbeat_interval_ms == 5000
    changed = await s.alter("c", GROUP, consumer_heartbeat_interval_ms="7000", consumer_session_timeout_ms="60000")
    assert changed.error_code == 0
    await member.heartbeat(full=True)
    assert member.heartbeat_interval_ms == 7000
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=GROUP, resource_name="c", configuration_keys=None)],
        include_synonyms=True,
    )
    (result,) = (await s.call(request)).results
    told = {config.name: (config.value, config.config_source, config.read_only) for config in result.configs}
    assert told == {
        "consumer.assignment.interval.ms": ("1000", ConfigSource.DEFAULT_CONFIG, False),
        "consumer.heartbeat.interval.ms": ("7000", ConfigSource.GROUP_CONFIG, False),
        "consumer.session.timeout.ms": ("60000", ConfigSource.GROUP_CONFIG, False),
    }
    session = next(config for config in result.configs if config.name == "consumer.session.timeout.ms")
    synonyms = [(one.name, one.value) for one in session.synonyms]
    assert synonyms == [("consumer.session.timeout.ms", "60000"), ("group.consumer.session.timeout.ms", "45000")]
    await s.runtime.sleep(50_000)
    assert (await member.heartbeat()).error_code == ErrorCode.NONE, "its session is longer than the broker's"
    assert (await s.alter("c", GROUP, consumer_session_timeout_ms=None)).error_code == 0
    await member.heartbeat()
    await s.runtime.sleep(46_000)
    assert (await member.heartbeat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID

"""What an application does with a group through librdkafka, in both protocols."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from clients.groups.librdkafka import Member, all_partitions, members, poll_for, poll_until, produce

pytestmark = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def test_partitions_added_are_given_out(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, protocol: str
) -> None:
    topic = new_topic(2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    a, b = Member(bootstrap, group_id, protocol), Member(bootstrap, group_id, protocol)
    with members(a, b):
        a.subscribe(topic)
        b.subscribe(topic)
        poll_until("two shared", lambda: len(a.owned) == len(b.owned) == 1, a, b)
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
        poll_until("four shared", lambda: a.owned | b.owned == all_partitions(topic, 4), a, b)
        assert not a.owned & b.owned
        produce(bootstrap, topic, "to a new one", partition=3)
        poll_until("read", lambda: (a.values() + b.values()) == ["to a new one"], a, b)


def test_a_changed_subscription_is_followed(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, protocol: str
) -> None:
    first, second = new_topic(2), new_topic(2)
    a, b = Member(bootstrap, group_id, protocol), Member(bootstrap, group_id, protocol)
    with members(a, b):
        a.subscribe(first)
        b.subscribe(first)
        poll_until("shared", lambda: bool(a.owned and b.owned), a, b)
        a.subscribe(second)
        poll_until(
            "one topic each",
            lambda: a.owned == all_partitions(second, 2) and b.owned == all_partitions(first, 2),
            a,
            b,
        )
        a.subscribe(first, second)
        poll_until(
            "both again",
            lambda: a.owned >= all_partitions(second, 2) and a.owned | b.owned == all_partitions(first, 2) | a.owned,
            a,
            b,
        )
        assert not a.owned & b.owned


def test_a_pattern_picks_up_topics_that_are_created_later(bootstrap: str, group_id: str, protocol: str) -> None:
    prefix = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{prefix}-eu", 1, 1)])[f"{prefix}-eu"].result(60)
    member = Member(bootstrap, group_id, protocol)
    with members(member):
        member.subscribe(f"^{prefix}-.*")
        poll_until("the first", lambda: member.owned == {(f"{prefix}-eu", 0)}, member)
        admin.create_topics([NewTopic(f"{prefix}-us", 1, 1)])[f"{prefix}-us"].result(60)
        produce(bootstrap, f"{prefix}-us", "hello")
        poll_until("both", lambda: member.owned == {(f"{prefix}-eu", 0), (f"{prefix}-us", 0)}, member)
        poll_until("a record of the new one", lambda: member.values() == ["hello"], member)
        admin.delete_topics([f"{prefix}-eu"])[f"{prefix}-eu"].result(60)
        poll_until("the deleted one is gone", lambda: member.owned == {(f"{prefix}-us", 0)}, member)


def test_auto_commit_lets_the_next_one_go_on(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, protocol: str
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, *(str(n) for n in range(10)))
    auto = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    first = Member(bootstrap, group_id, protocol, **auto)
    with members(first):
        first.subscribe(topic)
        poll_until("all read", lambda: len(first.read) == 10, first)
        # By the interval, not by the end of the consumer.
        poll_until("committed", lambda: committed(bootstrap, group_id, topic) == 10, first)
    produce(bootstrap, topic, "next")
    second = Member(bootstrap, group_id, protocol, **auto)
    with members(second):
        second.subscribe(topic)
        poll_until("the next", lambda: bool(second.read), second)
    assert second.values() == ["next"]


def test_seek_pause_resume_positions_and_lag(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, protocol: str
) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        produce(bootstrap, topic, *(f"{partition}:{n}" for n in range(5)), partition=partition)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    member = Member(bootstrap, group_id, protocol)
    consumer = member.consumer
    with members(member):
        member.subscribe(topic)
        poll_until("all read", lambda: len(member.read) == 10, member)
        assert sorted(place.offset for place in consumer.position([zero, one])) == [5, 5]

        consumer.pause([one])
        for partition in (0, 1):
            produce(bootstrap, topic, f"{partition}:5", partition=partition)
        poll_until("the one that is not paused", lambda: "0:5" in member.values(), member)
        poll_for(0.3, member)
        assert "1:5" not in member.values()
        consumer.resume([one])
        poll_until("the other", lambda: "1:5" in member.values(), member)

        member.read.clear()
        consumer.seek(TopicPartition(topic, 0, 3))
        poll_until("again from 3", lambda: member.values() == ["0:3", "0:4", "0:5"], member)

        consumer.commit(offsets=[TopicPartition(topic, 0, 2, metadata="half way")], asynchronous=False)
        at = consumer.committed([zero, one], timeout=60)
        assert [(place.offset, place.metadata) for place in at] == [(2, "half way"), (OFFSET_INVALID, None)]
        _, end = consumer.get_watermark_offsets(zero, timeout=60)
        assert end - at[0].offset == 4


def test_a_static_member_restarts_without_a_rebalance(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, protocol: str
) -> None:
    topic = new_topic(4)
    left, right = (Member(bootstrap, group_id, protocol, group_instance_id=name) for name in ("left", "right"))
    with members(left):
        with members(right):
            left.subscribe(topic)
            right.subscribe(topic)
            poll_until("shared", lambda: len(left.owned) == len(right.owned) == 2, left, right)
            before, changes = set(right.owned), left.changes
        poll_for(0.8, left)
        back = Member(bootstrap, group_id, protocol, group_instance_id="right")
        with members(back):
            back.subscribe(topic)
            poll_until("its partitions again", lambda: back.owned == before, left, back)
            poll_for(0.8, left, back)
            assert left.changes == changes
            produce(bootstrap, topic, "one", partition=min(before)[1])
            poll_until("it works", lambda: back.values() == ["one"], left, back)


def test_a_second_member_with_the_same_instance_id_is_told(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, protocol: str
) -> None:
    """The classic protocol fences the older one; the new one does not let the second in."""
    topic = new_topic()
    older, newer = (Member(bootstrap, group_id, protocol, group_instance_id="one") for _ in range(2))
    with members(older, newer):
        older.subscribe(topic)
        poll_until("the first", lambda: bool(older.owned), older)
        newer.subscribe(topic)
        if protocol == "classic":
            poll_until("told", lambda: bool(older.errors), older, newer)
            assert older.errors[0].code() == KafkaError._FATAL
            poll_until("taken over", lambda: newer.owned == {(topic, 0)}, newer)
        else:
            poll_until("told", lambda: bool(newer.errors), older, newer)
            assert newer.errors[0].code() in (KafkaError._FATAL, KafkaError.UNRELEASED_INSTANCE_ID)
            assert older.owned == {(topic, 0)}


def test_a_commit_of_a_member_that_was_thrown_out_is_refused(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, protocol: str
) -> None:
    topic = new_topic()
    stranger = Member(bootstrap, group_id, protocol)
    inside = Member(bootstrap, group_id, protocol)
    with members(inside, stranger):
        inside.subscribe(topic)
        poll_until("inside", lambda: bool(inside.owned), inside)
        stranger.consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(KafkaException) as refused:
            stranger.consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
        assert refused.value.args[0].code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    assert committed(bootstrap, group_id, topic) is None


def test_groups_are_listed_described_altered_and_deleted(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, protocol: str
) -> None:
    topic = new_topic(2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    produce(bootstrap, topic, "a", "b", "c")
    member = Member(bootstrap, group_id, protocol, client_id="worker-1")
    with members(member):
        member.subscribe(topic)
        poll_until("read", lambda: len(member.read) == 3, member)
        member.consumer.commit(asynchronous=False)
        (listed,) = [group for group in admin.list_consumer_groups().result(60).valid if group.group_id == group_id]
        assert (listed.state, listed.type.name) == (ConsumerGroupState.STABLE, protocol.upper())
        described = admin.describe_consumer_groups([group_id])[group_id].result(60)
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == ("range" if protocol == "classic" else "uniform")
        (one,) = described.members
        assert one.client_id == "worker-1"
        assert one.host == "/127.0.0.1"
        assert {(place.topic, place.partition) for place in one.assignment.topic_partitions} == member.owned
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([group_id])[group_id].result(60)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        with pytest.raises(KafkaException) as refused:
            alter(admin, group_id, topic, 1)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert admin.describe_consumer_groups([group_id])[group_id].result(60).state == ConsumerGroupState.EMPTY
    alter(admin, group_id, topic, 1)
    again = Member(bootstrap, group_id, protocol)
    with members(again):
        again.subscribe(topic)
        poll_until("from where it was set", lambda: again.values() == ["b", "c"], again)
    admin.delete_consumer_groups([group_id])[group_id].result(60)
    assert group_id not in [group.group_id for group in admin.list_consumer_groups().result(60).valid]
    assert committed(bootstrap, group_id, topic) is None


def alter(admin: AdminClient, group_id: str, topic: str, offset: int) -> None:
    wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, offset)])
    for place in admin.alter_consumer_group_offsets([wanted])[group_id].result(60).topic_partitions:
        if place.error is not None:
            raise KafkaException(place.error)


def committed(bootstrap: str, group_id: str, topic: str) -> int | None:
    """What the broker has for partition 0."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result(60)
    offsets = {(place.topic, place.partition): int(place.offset) for place in answer.topic_partitions}
    return offsets.get((topic, 0))

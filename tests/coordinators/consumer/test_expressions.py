"""Subscriptions by regular expression."""

from __future__ import annotations

import pytest

from coordinators.consumer.harness import CONFIG, Cluster, Consumer, all_partitions, owned_by_all, rounds
from penstock.coordinators.groups.config import replace
from penstock.coordinators.groups.consumer.regexes import REGEX_BYTES_MAX, SLICE_NAMES_MAX
from penstock.wire.errors import ErrorCode


def test_a_member_gets_the_topics_that_its_expression_matches_as_a_whole() -> None:
    cluster = Cluster(orders_eu=1, orders_us=2, reorders_eu=1, orders=1)
    consumer = Consumer(cluster, "a", [], regex="orders_.*")
    consumer.join()
    consumer.settle()
    assert owned_by_all([consumer]) == all_partitions(cluster, "orders_eu", "orders_us")
    cluster.assert_replay_gives_the_same()


def test_names_and_expression_add_up() -> None:
    cluster = Cluster(orders_eu=1, refunds=1, other=1)
    consumer = Consumer(cluster, "a", ["refunds"], regex="orders_.*")
    consumer.join()
    consumer.settle()
    assert owned_by_all([consumer]) == all_partitions(cluster, "orders_eu", "refunds")


def test_topics_that_are_created_and_deleted_are_noticed_after_ten_seconds() -> None:
    cluster = Cluster(orders_eu=1)
    consumer = Consumer(cluster, "a", [], regex="orders_.*")
    consumer.join()
    consumer.settle()
    cluster.driver.create_topic("orders_us", 1)
    cluster.driver.create_topic("refunds", 1)
    cluster.advance(9_999)
    consumer.beat()
    assert len(consumer.told) == 1
    cluster.advance(1)
    consumer.beat()
    consumer.settle()
    assert owned_by_all([consumer]) == all_partitions(cluster, "orders_eu", "orders_us")
    cluster.driver.delete_topic("orders_eu")
    cluster.advance(10_000)
    rounds([consumer])
    assert owned_by_all([consumer]) == all_partitions(cluster, "orders_us")
    cluster.assert_replay_gives_the_same()


def test_an_expression_is_looked_at_again_after_the_refresh_interval() -> None:
    cluster = Cluster(replace(CONFIG, group_consumer_regex_refresh_interval_ms=30_000), orders_eu=1)
    consumer = Consumer(cluster, "a", [], regex="orders_.*")
    consumer.join()
    resolved = cluster.group.resolved["orders_.*"]
    rounds([consumer], 5)
    assert cluster.group.resolved["orders_.*"] == resolved
    rounds([consumer], 2)
    assert cluster.group.resolved["orders_.*"].timestamp_ms == resolved.timestamp_ms + 30_000
    assert cluster.group.epoch == 1, "nothing has changed"


def test_what_an_expression_matches_is_looked_up_again_after_a_restart() -> None:
    cluster = Cluster(orders_eu=1)
    consumer = Consumer(cluster, "a", [], regex="orders_.*")
    consumer.join()
    rounds([consumer])
    cluster.restart()
    cluster.driver.create_topic("orders_us", 1)
    cluster.restart()
    rounds([consumer])
    assert owned_by_all([consumer]) == all_partitions(cluster, "orders_eu", "orders_us")


def test_an_expression_is_forgotten_with_the_last_member_that_has_it() -> None:
    cluster = Cluster(orders_eu=2, refunds=1)
    consumers = [Consumer(cluster, "a", [], regex="orders_.*"), Consumer(cluster, "b", [], regex="orders_.*")]
    for consumer in consumers:
        consumer.join()
    rounds(consumers)
    assert [len(consumer.owned) for consumer in consumers] == [1, 1]
    consumers[0].beat(subscribed_topic_regex="", subscribed_topic_names=["refunds"])
    assert list(cluster.group.resolved) == ["orders_.*"]
    consumers[1].leave()
    assert cluster.group.resolved == {}
    assert cluster.shard.consumers.expressions._expressions._expressions == {}
    assert cluster.shard.consumers.index.groups_by_regex == {}
    rounds(consumers)
    assert owned_by_all(consumers) == all_partitions(cluster, "refunds")
    cluster.assert_replay_gives_the_same()


def test_members_with_different_expressions_share_what_both_match() -> None:
    cluster = Cluster(orders_eu=2, orders_us=2)
    consumers = [Consumer(cluster, "a", [], regex="orders_.*"), Consumer(cluster, "b", [], regex=".*_us")]
    for consumer in consumers:
        consumer.join()
    rounds(consumers)
    assert owned_by_all(consumers) == all_partitions(cluster, "orders_eu", "orders_us")
    assert {name for name, _ in consumers[1].owned} == {"orders_us"}
    assert [len(consumer.owned) for consumer in consumers] == [2, 2]


def test_many_topics_are_looked_at_in_slices() -> None:
    cluster = Cluster()
    for number in range(SLICE_NAMES_MAX * 2):
        cluster.driver.create_topic(f"orders-{number}", 1)
    consumer = Consumer(cluster, "a", [], regex="orders-1..")
    consumer.join()
    assert consumer.told == {}, "there is more to look at than one turn should"
    assert cluster.group.resolved == {}
    cluster.driver.delete_topic("orders-100")
    cluster.driver.create_topic("orders-1zz", 1)
    cluster.advance(0)
    assert len(cluster.group.resolved["orders-1.."].topics) == 100
    rounds([consumer])
    assert len(consumer.owned) == 100
    assert ("orders-1zz", 0) in consumer.owned
    assert ("orders-100", 0) not in consumer.owned


@pytest.mark.parametrize(
    "regex",
    [
        "(((a{1000}){1000}){1000})",
        "(?:" + ".{1000}" * 100 + ")",
        "x" * (REGEX_BYTES_MAX + 1),
        "(?=lookahead)",
        r"(a)\1",
        "[",
    ],
)
def test_a_bomb_is_refused_when_it_arrives(regex: str) -> None:
    cluster = Cluster(orders=1)
    response = cluster.join("a", [], subscribed_topic_regex=regex)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.error_message
    assert cluster.shard.groups == {}


@pytest.mark.parametrize("regex", ["(a*)*(a|aa)*(a+)+b", "(" * 2_000 + "a" + ")" * 2_000, "(a?){30}a{30}b"])
def test_what_takes_other_engines_forever_takes_no_time(regex: str) -> None:
    cluster = Cluster()
    for number in range(50):
        cluster.driver.create_topic("a" * 200 + f"{number}", 1)
    consumer = Consumer(cluster, "a", [], regex=regex)
    assert consumer.join().error_code == 0
    assert consumer.told == {}


def test_an_invalid_expression_does_not_disturb_a_member_that_has_a_valid_one() -> None:
    cluster = Cluster(orders_eu=1)
    consumer = Consumer(cluster, "a", [], regex="orders_.*")
    consumer.join()
    consumer.settle()
    before = cluster.shard.durable_state()
    assert consumer.beat(subscribed_topic_regex="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert cluster.shard.durable_state() == before

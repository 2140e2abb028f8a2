"""Topics that come, go and grow: the groups that have to do with them rebalance, others do not notice."""

from __future__ import annotations

from coordinators.consumer.harness import GROUP, Cluster, Consumer, all_partitions, owned_by_all, rounds


def test_partitions_that_are_added_are_assigned() -> None:
    cluster = Cluster(orders=2)
    consumers = [Consumer(cluster, "a"), Consumer(cluster, "b")]
    for consumer in consumers:
        consumer.join()
    rounds(consumers)
    epoch = cluster.group.epoch
    cluster.driver.add_partitions("orders", 3)
    assert cluster.group.epoch == epoch, "with the next heartbeat"
    rounds(consumers)
    assert cluster.group.epoch == epoch + 1
    assert owned_by_all(consumers) == all_partitions(cluster, "orders")


def test_a_topic_that_is_created_later_is_assigned() -> None:
    cluster = Cluster()
    consumer = Consumer(cluster, "a", ["orders"])
    consumer.join()
    assert consumer.told == {}
    assert cluster.group.state == "Stable"
    cluster.driver.create_topic("orders", 2)
    rounds([consumer])
    assert owned_by_all([consumer]) == all_partitions(cluster, "orders")


def test_a_topic_that_is_deleted_is_taken_off() -> None:
    cluster = Cluster(orders=2, refunds=2)
    consumer = Consumer(cluster, "a", ["orders", "refunds"])
    consumer.join()
    rounds([consumer])
    cluster.driver.delete_topic("orders")
    consumer.beat()
    assert sorted(consumer.told) == all_partitions(cluster, "refunds")
    cluster.assert_replay_gives_the_same()


def test_a_topic_of_the_same_name_is_another_topic() -> None:
    cluster = Cluster(orders=2)
    consumer = Consumer(cluster, "a")
    consumer.join()
    rounds([consumer])
    cluster.driver.delete_topic("orders")
    cluster.driver.create_topic("orders", 2)
    consumer.beat()
    consumer.settle()
    rounds([consumer], 2)
    assert cluster.group.members["a"].current.assigned.keys() == {cluster.topic_id("orders")}


def test_changes_that_do_not_matter_to_a_group_do_not_reach_it() -> None:
    cluster = Cluster(orders=2, refunds=2)
    consumer = Consumer(cluster, "a")
    consumer.join()
    rounds([consumer])
    cluster.driver.take_records()
    cluster.driver.add_partitions("refunds", 2)
    cluster.driver.create_topic("other", 2)
    cluster.driver.delete_topic("refunds")
    assert not cluster.group.refresh_due
    rounds([consumer])
    assert cluster.driver.take_records() == []


def test_what_changed_while_no_coordinator_was_there_is_noticed() -> None:
    cluster = Cluster(orders=2)
    consumer = Consumer(cluster, "a")
    consumer.join()
    rounds([consumer])
    records = list(cluster.driver.records)
    # The shard hears nothing of this: it is led elsewhere, and nobody leads there.
    cluster.shard.consumers.index.groups_by_topic.clear()
    cluster.driver.add_partitions("orders", 2)
    assert cluster.driver.records == records
    cluster.restart()
    rounds([consumer])
    assert owned_by_all([consumer]) == all_partitions(cluster, "orders")


def test_only_groups_that_subscribe_to_a_topic_are_looked_at() -> None:
    cluster = Cluster(orders=2, refunds=2)
    cluster.join("a", ["orders"])
    cluster.join("b", ["refunds"], group_id="refunds-app")
    index = cluster.shard.consumers.index
    assert list(index.groups_by_topic["orders"]) == [GROUP]
    assert list(index.groups_by_topic["refunds"]) == ["refunds-app"]
    cluster.heartbeat(member_id="a", member_epoch=-1)
    assert "orders" not in index.groups_by_topic

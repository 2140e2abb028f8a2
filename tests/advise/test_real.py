"""Advice on real clusters: a scene is made, the advice names it first, its cure removes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import client
from penstock.advise import Item, advise
from penstock.advise.gathering import gather
from penstock.testing import Cluster
from support.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        yield running


def look(running: Cluster) -> list[Item]:
    settings = client.ClientSettings.from_properties(
        {"bootstrap.servers": running.bootstrap_servers, "request.timeout.ms": 5_000, "default.api.timeout.ms": 5_000}
    )
    with client.Cluster(settings) as known:
        return advise(gather(known, seconds=1.0))


def test_a_healthy_cluster_needs_nothing_and_a_dead_broker_comes_first(cluster: Cluster) -> None:
    cluster.create_topic("calm", partitions=6, replication_factor=3)
    cluster.produce("calm", [("k", "v")] * 100)
    assert look(cluster) == []
    cluster.node(3).kill()
    wait_until(lambda: [one.code for one in look(cluster)][:1] == ["health.broker-down"], 60)
    items = look(cluster)
    assert items[0].subject == "broker 3"
    cluster.node(3).start()
    wait_until(lambda: all(len(cluster.in_sync("calm", number)) == 3 for number in range(6)), 60)
    elected = [one.code for one in look(cluster)]
    assert "health.broker-down" not in elected


def test_strayed_leaders_are_named_and_the_advised_command_cures_it(cluster: Cluster) -> None:
    from penstock.__main__ import main

    cluster.create_topic("strayed", partitions=12, replication_factor=3)
    cluster.node(1).restart()
    cluster.node(2).restart()
    topics = ("calm", "strayed")
    wait_until(
        lambda: all(
            len(cluster.in_sync(topic, n)) == 3 for topic in topics for n in range(6 if topic == "calm" else 12)
        ),
        60,
    )
    found = look(cluster)
    assert [one.code for one in found] == ["health.preferred-leaders"]
    words = found[0].command.split()
    assert main([*words[1:], "-b", cluster.bootstrap_servers]) == 0
    wait_until(lambda: look(cluster) == [], 60)


def test_a_stopped_group_is_named_and_gone_once_it_has_read(cluster: Cluster) -> None:
    cluster.create_topic("backlog", partitions=2)
    cluster.produce("backlog", [("k", "v")])
    assert _read(cluster, 1) == 1
    cluster.produce("backlog", [("k", "v")] * 12_000)
    found = look(cluster)
    assert found[0].code == "consumers.start"
    assert found[0].subject == "group readers"
    assert _read(cluster, 12_000) == 12_000
    assert "consumers.start" not in [one.code for one in look(cluster)]


def _read(cluster: Cluster, count: int) -> int:
    """Starts a consumer of the group, as advised, until it has read so much."""
    done = 0
    properties = {"auto.offset.reset": "earliest"}
    with client.Consumer(cluster.bootstrap_servers, "backlog", "readers", properties) as consumer:
        for _ in consumer:
            done += 1
            if done == count:
                break
        consumer.commit()
    return done

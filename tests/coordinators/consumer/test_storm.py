"""A storm: members join, leave, die, change their minds and are slow, the coordinator moves, topics come and go.

At no time do two members own a partition, as each sees itself: what it was given and has not given up. When the storm
is over everything settles, and at any time a coordinator that loads the log has the state of the one that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinators.consumer.harness import (
    CONFIG,
    HEARTBEAT_INTERVAL_MS,
    Cluster,
    Consumer,
    all_partitions,
    assert_one_owner,
    owned_by_all,
    rounds,
)
from penstock.coordinators.groups.config import replace
from penstock.coordinators.groups.consumer import ConsumerGroup

TOPICS = ("orders", "refunds", "returns")


class Storm:
    def __init__(self, rng: Random, size: int, *, assignment_interval_ms: int, partitions: int) -> None:
        config = replace(CONFIG, group_consumer_assignment_interval_ms=assignment_interval_ms)
        self.rng = rng
        self.cluster = Cluster(config, orders=partitions, refunds=max(1, partitions // 2), returns=1)
        self.consumers: list[Consumer] = []
        self.size = size
        self.names = 0

    def step(self) -> None:
        """One thing happens, to one member or to all."""
        rng = self.rng
        what = rng.random()
        alive = [consumer for consumer in self.consumers if consumer.alive]
        if not alive or (what < 0.15 and len(alive) < self.size):
            self._join()
        elif what < 0.2:
            rng.choice(alive).leave()
        elif what < 0.25:
            rng.choice(alive).die()
        elif what < 0.28:
            self._return(rng.choice(alive))
        elif what < 0.32:
            consumer = rng.choice(alive)
            consumer.topics = rng.sample(TOPICS, rng.randint(1, 3))
            if consumer.epoch:
                consumer.beat(subscribed_topic_names=consumer.topics)
        elif what < 0.36:
            rng.choice(alive).lose_an_answer()
        elif what < 0.38:
            self.cluster.driver.add_partitions(rng.choice(TOPICS), 1)
        elif what < 0.40:
            self.cluster.restart()
        elif what < 0.5:
            self._pass_time()
        elif what < 0.75:
            rng.choice(alive).beat()
        else:
            rng.choice(alive).settle()
        assert_one_owner(self.consumers)

    def _join(self) -> None:
        self.names += 1
        static = self.rng.random() < 0.2
        consumer = Consumer(
            self.cluster,
            f"m{self.names}",
            self.rng.sample(TOPICS, self.rng.randint(1, 3)),
            instance_id=f"i{self.names}" if static else None,
            regex="ref.*" if self.rng.random() < 0.1 else None,
            assignor=self.rng.choice([None, None, "uniform", "range"]),
        )
        self.consumers.append(consumer)
        consumer.join()

    def _return(self, consumer: Consumer) -> None:
        """A static member restarts; others simply start again under their ids."""
        if consumer.instance_id is None:
            consumer.join()
            return
        if consumer.leave(epoch=-2).error_code == 0:
            self.names += 1
            again = Consumer(self.cluster, f"m{self.names}", consumer.topics, instance_id=consumer.instance_id)
            self.consumers.append(again)
            assert again.join().error_code == 0

    def _pass_time(self) -> None:
        """Everyone who is alive is heard of in time, and nobody is slower than the rebalance timeout."""
        for consumer in self.consumers:
            if consumer.alive:
                consumer.settle()
                consumer.beat()
        self.cluster.advance(self.rng.choice([100, 1_000, HEARTBEAT_INTERVAL_MS]))

    def calm(self) -> None:
        """The storm is over: whoever is alive beats regularly."""
        # Nine rounds until the dead have expired, the rest for what they leave behind.
        for _ in range(16):
            rounds(self.consumers, 1)
        alive = [consumer for consumer in self.consumers if consumer.alive]
        wanted = {topic for consumer in alive for topic in consumer.topics}
        wanted |= {"refunds" for consumer in alive if consumer.regex}
        assert owned_by_all(alive) == all_partitions(self.cluster, *sorted(wanted))
        group = self.cluster.shard.groups.get("orders-app")
        if isinstance(group, ConsumerGroup):
            assert group.state == ("Stable" if alive else "Empty")
            assert sorted(group.members) == sorted(consumer.member_id for consumer in alive)
        self.cluster.assert_replay_gives_the_same()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), interval_ms=st.sampled_from([0, 1_000]), partitions=st.integers(1, 9))
def test_no_partition_ever_has_two_owners_and_everything_settles(seed: int, interval_ms: int, partitions: int) -> None:
    storm = Storm(Random(seed), 6, assignment_interval_ms=interval_ms, partitions=partitions)
    for number in range(120):
        storm.step()
        if number % 20 == 0:
            storm.cluster.assert_replay_gives_the_same()
    storm.calm()


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_many_members_settles(seed: int) -> None:
    storm = Storm(Random(seed), 100, assignment_interval_ms=1_000, partitions=150)
    for _ in range(1_000):
        storm.step()
    storm.calm()


def test_a_storm_of_a_thousand_members_settles() -> None:
    storm = Storm(Random(7), 1_000, assignment_interval_ms=1_000, partitions=1_000)
    for _ in range(1_000):
        storm._join()
    alive = storm.consumers
    for number in range(20):
        # A tenth of them goes, one way or another, as many come, and time passes for the others.
        for consumer in storm.rng.sample(alive, len(alive) // 10):
            ends: list[Callable[[], object]] = [consumer.leave, consumer.die, consumer.join, consumer.lose_an_answer]
            storm.rng.choice(ends)()
        for _ in range(60):
            storm._join()
        storm._pass_time()
        assert_one_owner(storm.consumers)
        alive = [consumer for consumer in storm.consumers if consumer.alive]
        if number == 10:
            storm.cluster.restart()
    for _ in range(14):
        for consumer in alive:
            consumer.beat()
            consumer.settle()
        assert_one_owner(alive)
        storm.cluster.advance(HEARTBEAT_INTERVAL_MS)
    assert owned_by_all(alive) == all_partitions(storm.cluster, *TOPICS)
    assert storm.cluster.group.state == "Stable"
    assert len(storm.cluster.group.members) == len(alive)
    storm.cluster.assert_replay_gives_the_same()


def test_a_thousand_members_join_and_each_gets_its_share() -> None:
    cluster = Cluster(replace(CONFIG, group_consumer_assignment_interval_ms=1_000), orders=1_000)
    consumers = [Consumer(cluster, f"m{number}") for number in range(1_000)]
    for consumer in consumers:
        consumer.join()
        consumer.settle()
    for _ in range(4):
        cluster.advance(HEARTBEAT_INTERVAL_MS)
        for consumer in consumers:
            consumer.beat()
            consumer.settle()
    assert_one_owner(consumers)
    assert [len(consumer.owned) for consumer in consumers] == [1] * 1_000
    assert cluster.group.state == "Stable"
    cluster.assert_replay_gives_the_same()

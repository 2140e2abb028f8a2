"""Striped, rack-aware placement."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.cluster import Cluster, registration
from penstock.metadata import BrokerRegistration, NewPartitions, place_replicas
from penstock.wire.errors import ErrorCode, KafkaError


class Zero:
    """Every starting point is the first."""

    def randrange(self, stop: int, /) -> int:
        return 0


def broker(node_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(node_id, 1, b"", (), {}, rack, fenced, False, ())


def test_partitions_are_striped_over_racks_and_brokers() -> None:
    brokers = [broker(10 * rack + index, "ABC"[rack]) for rack in range(3) for index in range(3)]
    assert place_replicas(brokers, 3, 3, Zero()) == [(0, 10, 20), (11, 21, 1), (22, 2, 12)]


def test_without_racks_leaders_take_turns() -> None:
    placed = place_replicas([broker(i) for i in range(4)], 4, 2, Zero())
    assert placed == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_one_broker_takes_everything() -> None:
    assert place_replicas([broker(7)], 3, 1, Zero()) == [(7,), (7,), (7,)]


def test_fenced_brokers_never_come_first_and_only_where_needed() -> None:
    brokers = [broker(0), broker(1), broker(2, fenced=True)]
    for replicas in place_replicas(brokers, 20, 2, Random(1)):
        assert sorted(replicas) == [0, 1]
    for replicas in place_replicas(brokers, 20, 3, Random(1)):
        assert replicas[0] != 2
        assert sorted(replicas) == [0, 1, 2]


def test_a_lonely_rack_gets_a_replica_of_every_partition() -> None:
    brokers = [broker(i, "A") for i in range(5)] + [broker(9, "C")]
    assert all(9 in replicas for replicas in place_replicas(brokers, 30, 2, Random(3)))


@pytest.mark.parametrize(
    ("brokers", "replication_factor", "message"),
    [
        ([broker(1)], 2, "only 1 broker(s) are registered"),
        ([broker(1, fenced=True)], 1, "All brokers are currently fenced."),
        ([], 1, "All brokers are currently fenced."),
        ([broker(1)], 0, "must be positive"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    brokers: list[BrokerRegistration], replication_factor: int, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        place_replicas(brokers, 1, replication_factor, Zero())
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert message in refused.value.message


@given(
    st.lists(st.tuples(st.sampled_from([None, "A", "B", "C"]), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 40),
    st.integers(0, 1000),
)
def test_replicas_are_distinct_leaders_active_and_racks_even(
    shapes: list[tuple[str | None, bool]], replication_factor: int, partitions: int, seed: int
) -> None:
    brokers = [broker(index, rack, fenced=fenced) for index, (rack, fenced) in enumerate(shapes)]
    active = [b.id for b in brokers if not b.fenced]
    if not active or replication_factor > len(brokers):
        return
    placed = place_replicas(brokers, partitions, replication_factor, Random(seed))
    assert placed == place_replicas(brokers, partitions, replication_factor, Random(seed))
    assert len(placed) == partitions
    racks = {b.id: b.rack for b in brokers}
    rack_count = len(Counter(racks.values()))
    for replicas in placed:
        assert len(dict.fromkeys(replicas)) == replication_factor
        assert replicas[0] in active
        # As many racks as there can be, unless a rack has only fenced brokers and so cannot have the leader.
        if len(active) == len(brokers):
            assert len(Counter(racks[i] for i in replicas)) == min(rack_count, replication_factor)
    if rack_count == 1 and len(active) == len(brokers):
        leaders = Counter(replicas[0] for replicas in placed)
        assert max(leaders.values()) - min(leaders.get(i, 0) for i in active) <= 2 + partitions // len(active) // 2


def racks_of(cluster: Cluster, topic: str, partition: int) -> list[str | None]:
    brokers = cluster.image.brokers
    return [brokers[replica].rack for replica in cluster.topic(topic).partitions[partition].replicas]


def test_topics_and_added_partitions_are_spread_over_the_racks_of_registered_brokers() -> None:
    cluster = Cluster(6, racks=("a", "b", "c"))
    cluster.create("t", 12, 3)
    assert not cluster.controller.decide_create_partitions([NewPartitions("t", 24)]).reply[0].outcome.failed
    for partition in range(24):
        assert sorted(map(str, racks_of(cluster, "t", partition))) == ["a", "b", "c"]
    led = [cluster.topic("t").partitions[partition].leader for partition in range(24)]
    assert {led.count(broker) for broker in range(1, 7)} <= {3, 4, 5}


def test_brokers_without_a_rack_are_one_of_their_own() -> None:
    cluster = Cluster(0)
    for broker_id, rack in enumerate(("a", "a", "b", None, None), 1):
        cluster.register(registration(broker_id, rack=rack))
    cluster.create("t", 10, 3)
    for partition in range(10):
        assert sorted(map(str, racks_of(cluster, "t", partition))) == ["None", "a", "b"]

"""Partitions that move to other brokers while they are written and read, with and without faults in between."""

from __future__ import annotations

import pytest

from broker.cluster_load import ClusterClient, log_of
from broker.clusters import a_cluster, ask
from broker.reassigning import (
    FIVE,
    SETTINGS,
    holders,
    is_at,
    move,
    move_request,
    ongoing,
    place,
    state_now,
    under_load,
)
from broker.test_replication_cluster import commit, coordinator, offset_of
from penstock.coordinators.partitioning import partition_of
from penstock.metadata import CONSUMER_OFFSETS
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


def test_a_partition_moves_under_load_and_nobody_notices() -> None:
    async def moves(client: ClusterClient, cluster: SimCluster) -> None:
        for target in ((4, 5, 3), (1, 2, 5), (3, 4, 1)):
            assert await move(client, target) == ErrorCode.NONE
            await client.until(lambda target=target: is_at(cluster, target))
            await client.runtime.sleep(500)

    with a_cluster(5, SETTINGS, seed="moves", roles=FIVE) as cluster:
        place(cluster, (1, 2, 3))
        ledger = under_load(cluster, moves, lambda: (3, 4, 1))
        assert len(ledger.acknowledged) > 60
        assert ledger.longest_gap_ms < 1000


@pytest.mark.parametrize("seed", range(4))
def test_a_node_that_dies_in_the_middle_of_a_move_costs_nothing(seed: int) -> None:
    """It may be the node that leaves, the one that joins, the leader or the controller. The move ends or is
    cancelled."""
    where: list[tuple[int, ...]] = [(1, 2, 3)]

    async def faults(client: ClusterClient, cluster: SimCluster) -> None:
        rng = client.runtime.rng
        for _ in range(4):
            target = tuple(rng.sample(range(1, 6), 3))
            before = tuple(sorted(where[0]))
            assert await move(client, target) == ErrorCode.NONE
            where[0] = target
            await client.runtime.sleep(rng.uniform(0, 60))
            victim = rng.choice([node for node in cluster.nodes if node.is_alive])
            victim.crash() if rng.random() < 0.5 else victim.power_loss()
            await client.runtime.sleep(rng.uniform(10, 4000))
            if rng.random() < 0.3 and await move(client, None) == ErrorCode.NONE:
                where[0] = before
            if not victim.is_alive:
                victim.begin()
            await client.until(lambda victim=victim: victim.ready)
            await client.until(lambda: is_at(cluster, where[0]))

    with a_cluster(5, SETTINGS, seed=f"dies-{seed}", roles=FIVE) as cluster:
        place(cluster, (1, 2, 3))
        ledger = under_load(cluster, faults, lambda: where[0])
        assert ledger.acknowledged
        assert ongoing(cluster) == {}


def test_a_move_to_a_broker_that_is_down_waits_and_can_be_cancelled() -> None:
    with a_cluster(5, SETTINGS, seed="down", roles=FIVE) as cluster:
        place(cluster, (1, 2, 3))

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            for number in range(20):
                assert (await client.produce(b"%d" % number)).error_code == 0
            cluster.node(5).crash()
            await client.until(lambda: fenced_in(cluster, 5))
            assert await move(client, (4, 5, 3)) == ErrorCode.NONE
            await client.until(lambda: 4 in state_now(cluster).isr)
            await runtime.sleep(10_000)
            assert (state_now(cluster).adding, state_now(cluster).removing) == ((4, 5), (1, 2))
            cluster.node(4).crash()
            await client.until(lambda: 4 not in state_now(cluster).isr)
            assert await move(client, None) == ErrorCode.NONE
            await client.until(lambda: is_at(cluster, (1, 2, 3)))
            # 4 was down when it ceased to be a replica: what it has is a stray, and goes when it starts.
            assert holders(cluster) == [1, 2, 3, 4]
            cluster.node(4).begin()
            cluster.node(5).begin()
            await client.until(lambda: cluster.node(4).ready and cluster.node(5).ready)
            assert holders(cluster) == [1, 2, 3]
            client.leader = -1
            assert await client.all_values() == [b"%d" % number for number in range(20)]

        cluster.world.execute(main)
        assert ongoing(cluster) == {}


def fenced_in(cluster: SimCluster, node_id: int) -> bool:
    controller = cluster.controller()
    broker = None if controller is None else controller.image.broker(node_id)
    return broker is not None and broker.fenced


def test_replicas_are_added_and_taken_away() -> None:
    with a_cluster(5, {**SETTINGS, "min.insync.replicas": "1"}, seed="factors", roles=FIVE) as cluster:
        place(cluster, (2,))

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            values = [b"%d" % number for number in range(50)]
            for value in values[:25]:
                assert (await client.produce(value)).error_code == 0
            assert await move(client, (2, 4, 5)) == ErrorCode.NONE
            await client.until(lambda: is_at(cluster, (2, 4, 5)))
            # An RF that grew counts: a follower that lags is dropped, as with any other.
            assert await move(client, (5,)) == ErrorCode.NONE
            await client.until(lambda: is_at(cluster, (5,)))
            client.leader = client.leader_epoch = -1
            for value in values[25:]:
                while (result := await client.produce(value)) is None or result.error_code:
                    await runtime.sleep(50)
            assert await client.all_values() == values
            await client.until(lambda: holders(cluster) == [5])

        cluster.world.execute(main)


def test_a_follower_that_came_by_a_move_is_watched_like_any_other() -> None:
    with a_cluster(5, {**SETTINGS, "min.insync.replicas": "1"}, seed="watched", roles=FIVE) as cluster:
        place(cluster, (2,))

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            assert await move(client, (2, 4)) == ErrorCode.NONE
            await client.until(lambda: is_at(cluster, (2, 4)))
            cluster.cut(4, 2)
            await client.produce(b"x", acks=1)
            await client.until(lambda: state_now(cluster).isr == (2,))

        cluster.world.execute(main)


def test_many_partitions_leave_a_broker_and_it_holds_nothing() -> None:
    count = 30
    with a_cluster(5, SETTINGS, seed="drain", roles=FIVE) as cluster:
        place(cluster, *[(1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3) for index in range(count)])
        targets = [(index, (4, 5, 3) if index % 2 else (5, 3, 2)) for index in range(count)]
        answer = ask(cluster, 4, move_request(*targets), 1)
        assert {entry.error_code for entry in answer.responses[0].partitions} == {0}
        cluster.await_(lambda: all(is_at(cluster, target, "t", index) for index, target in targets))
        cluster.await_(lambda: not any(1 in holders(cluster, "t", index) for index in range(count)))
        assert cluster.node(1).served.manager.held == 0
        assert cluster.node(3).served.manager.held == count
        assert ongoing(cluster) == {}
        cluster.node(1).restart()
        cluster.await_ready()
        assert cluster.node(1).served.manager.held == 0


def test_a_groups_positions_move_with_their_partition() -> None:
    with a_cluster(5, SETTINGS, seed="positions of groups", roles=FIVE) as cluster:
        place(cluster, (1, 2, 3))

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            await commit(client, await coordinator(client, cluster), 1)
            topic = cluster.await_controller().image.topic(CONSUMER_OFFSETS)
            assert topic is not None
            partition = partition_of("g", len(topic.partitions))
            for number, target in enumerate(((4, 5, 1), (2, 3, 1), (5, 4, 3)), 2):
                assert await move(client, target, topic=CONSUMER_OFFSETS, partition=partition) == ErrorCode.NONE
                await client.until(lambda target=target: is_at(cluster, target, CONSUMER_OFFSETS, partition))
                node = await coordinator(client, cluster)
                assert node in target
                assert await offset_of(client, node) == number - 1
                await commit(client, node, number)

        cluster.world.execute(main)


def test_a_topic_is_deleted_while_it_moves() -> None:
    with a_cluster(5, SETTINGS, seed="deleted", roles=FIVE) as cluster:
        place(cluster, (1, 2, 3))
        cluster.node(5).crash()
        assert ask(cluster, 1, move_request((0, (4, 5, 3))), 1).error_code == 0
        assert list(ongoing(cluster, at=4)) == [("t", 0)]
        deleted = ask(cluster, 2, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=30_000), 6)
        assert deleted.responses[0].error_code == 0
        cluster.await_(lambda: holders(cluster) == [])
        assert ongoing(cluster) == {}
        # A topic of that name begins anew, wherever it is.
        place(cluster, (5, 4, 1))
        cluster.node(5).begin()
        cluster.await_ready()
        cluster.await_(lambda: is_at(cluster, (5, 4, 1)))
        assert log_of(cluster.node(5)).end_offset == 0


@pytest.mark.parametrize("version", [0, 1])
def test_invalid_reassignments_are_refused_with_the_reason_and_change_nothing(version: int) -> None:
    with a_cluster(3, SETTINGS, seed="refused") as cluster:
        place(cluster, (1, 2, 3), (2, 3, 1))
        before = cluster.await_controller().image
        targets = [(0, (1, 2, 9)), (1, (1, 1)), (2, (1, 2, 3)), (1, None)]
        answers = []
        for target in targets:
            answer = ask(cluster, 2, move_request(target), version)
            assert (answer.error_code, answer.error_message) == (0, None)
            (entry,) = answer.responses[0].partitions
            assert entry.error_message
            answers.append(ErrorCode(entry.error_code))
        assert answers == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ]
        narrower = ask(cluster, 3, move_request((0, (1, 2)), allow=False), version).responses[0].partitions[0]
        # The first version cannot forbid it.
        assert narrower.error_code == (ErrorCode.INVALID_REPLICATION_FACTOR if version else 0)
        if version:
            assert cluster.await_controller().image.topic("t") == before.topic("t")
        wanted = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1, 5])
        assert ask(cluster, 1, ListPartitionReassignmentsRequest(topics=[wanted]), 0).topics == []


def test_new_replicas_of_a_large_log_copy_it_all_before_they_count() -> None:
    with a_cluster(5, {**SETTINGS, "replica.fetch.max.bytes": "3000"}, seed="large", roles=FIVE) as cluster:
        place(cluster, (1, 2, 3), internal_segment_bytes="20000")

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            values = [b"%d-" % number + bytes(1000) for number in range(100)]
            for start in range(0, 100, 10):
                while (result := await client.produce(*values[start : start + 10])) is None or result.error_code:
                    await runtime.sleep(50)
            end = len(values)
            assert await move(client, (4, 5, 1)) == ErrorCode.NONE
            while not is_at(cluster, (4, 5, 1)):
                for replica in (4, 5):
                    if replica in state_now(cluster).isr:
                        assert log_of(cluster.node(replica)).end_offset == end
                await runtime.sleep(1)
            client.leader = client.leader_epoch = -1
            assert await client.all_values() == values

        cluster.world.execute(main)


def test_the_metrics_tell_what_moves() -> None:
    with a_cluster(5, SETTINGS, seed="metrics", roles=FIVE) as cluster:
        place(cluster, (1, 2, 3), (2, 3, 1))

        def told(node_id: int, name: str) -> float:
            samples = {sample.name: sample.value for sample in cluster.node(node_id).served.metrics.samples()}
            return samples[name]

        moving = "kafka_server_replicamanager_reassigningpartitions"
        assert told(1, moving) == 0
        cluster.node(5).crash()
        ask(cluster, 1, move_request((0, (1, 4, 5))), 1)
        cluster.await_images()
        assert (told(1, moving), told(2, moving)) == (1, 0)
        cluster.node(5).begin()
        cluster.await_(lambda: is_at(cluster, (1, 4, 5)))
        cluster.await_images()
        assert told(1, moving) == 0

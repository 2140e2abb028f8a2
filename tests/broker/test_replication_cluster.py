"""Whole clusters: leaders die under load, tails diverge, controllers are unreachable; the ledger must agree."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.cluster_load import ClusterClient, Ledger, bytes_of, high_watermark, log_of
from broker.clusters import a_cluster, create
from penstock.coordinators.partitioning import partition_of
from penstock.metadata import CONSUMER_OFFSETS
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "3000", "offsets.topic.num.partitions": "3"}

Faults = Callable[[ClusterClient, SimCluster], Coroutine[Any, Any, None]]


def under_load(cluster: SimCluster, faults: Faults, *, pause_ms: float = 20) -> Ledger:
    """Run the faults under a producer and a reader; then let the cluster heal, and compare."""
    assert create(cluster, "t").error_code == 0
    ledger = Ledger()

    async def main(runtime: SimRuntime) -> None:
        producer, reader, watcher = (ClusterClient(runtime, cluster) for _ in range(3))
        tasks = [
            runtime.spawn(ledger.produce(producer, 7, pause_ms), "producer"),
            runtime.spawn(ledger.consume(reader, pause_ms), "reader"),
        ]
        await runtime.sleep(500)
        await faults(watcher, cluster)
        await heal(watcher, cluster)
        ledger.over = True
        for task in tasks:
            await task
        await equal(watcher, cluster)
        watcher.leader = -1
        ledger.check(await watcher.all_values())

    cluster.world.execute(main)
    logs = [bytes_of(log_of(node)) for node in cluster.nodes]
    assert logs[0] == logs[1] == logs[2]
    return ledger


async def heal(client: ClusterClient, cluster: SimCluster) -> None:
    """Restart and reconnect all nodes, and wait until all replicas are in sync."""
    cluster.heal_all()
    for node in cluster.nodes:
        node.resume()
        if not node.is_alive:
            node.begin()
    await client.until(lambda: all(node.ready for node in cluster.nodes))

    def in_sync() -> bool:
        controller = cluster.controller()
        found = None if controller is None else controller.image.partition("t", 0)
        return found is not None and len(found.isr) == 3 and found.leader > 0

    await client.until(in_sync)


async def equal(client: ClusterClient, cluster: SimCluster) -> None:
    """Wait until all replicas have the same end and know that it is committed."""

    def same() -> bool:
        ends = {log_of(node).end_offset for node in cluster.nodes}
        return len(ends) == 1 and {high_watermark(node) for node in cluster.nodes} == ends

    await client.until(same)


def test_a_leader_that_is_killed_under_load_is_followed_by_one_that_has_everything() -> None:
    async def faults(client: ClusterClient, cluster: SimCluster) -> None:
        for _ in range(4):
            leader = await current_leader(client, cluster)
            cluster.node(leader).crash()
            await client.until(lambda leader=leader: is_led_elsewhere(cluster, leader))
            await client.runtime.sleep(2000)
            cluster.node(leader).begin()
            await client.until(lambda leader=leader: cluster.node(leader).ready)
            await client.until(lambda: in_sync_count(cluster) == 3)

    with a_cluster(3, SETTINGS, seed="leader kill") as cluster:
        ledger = under_load(cluster, faults)
        assert len(ledger.acknowledged) > 100
        assert ledger.longest_gap_ms < 2000


@pytest.mark.parametrize("seed", range(4))
def test_leaders_that_change_fast_with_tails_of_their_own(seed: int) -> None:
    """KIP-101, KIP-279, KIP-320: cut off, killed, paused, powered off, one after the other."""

    async def faults(client: ClusterClient, cluster: SimCluster) -> None:
        rng = client.runtime.rng
        for _ in range(8):
            leader = await current_leader(client, cluster)
            node = cluster.node(leader)
            await write_a_tail(client, cluster, leader)
            match rng.randrange(4):
                case 0:
                    node.isolate()
                    await client.runtime.sleep(rng.uniform(1000, 15_000))
                    node.rejoin()
                case 1:
                    node.crash()
                    await client.runtime.sleep(rng.uniform(10, 2000))
                    node.begin()
                case 2:
                    node.pause()
                    await client.runtime.sleep(rng.uniform(100, 15_000))
                    node.resume()
                case 3:
                    node.power_loss()
                    await client.runtime.sleep(rng.uniform(10, 2000))
                    node.begin()
            await client.until(lambda node=node: node.ready or not node.is_alive)
            if rng.random() < 0.5:
                await client.until(lambda: in_sync_count(cluster) == 3)
            else:
                await client.until(lambda: in_sync_count(cluster) >= 2)

    with a_cluster(3, SETTINGS, seed=f"tails-{seed}") as cluster:
        ledger = under_load(cluster, faults)
        assert ledger.acknowledged
        assert ledger.read


async def write_a_tail(client: ClusterClient, cluster: SimCluster, leader: int) -> None:
    """Write records that only the leader has: acks=1, while its followers cannot reach it."""
    followers = [node.node_id for node in cluster.nodes if node.node_id != leader]
    for follower in followers:
        cluster.cut(follower, leader, one_way=True)
    client.leader = leader
    for number in range(3):
        await client.produce(b"tail-%d-%d-%f" % (leader, number, client.runtime.now_ms()), acks=1, timeout_ms=100)
    for follower in followers:
        cluster.heal(follower, leader, one_way=True)
    client.leader = -1


def test_a_leader_cut_from_the_controller_but_not_from_clients_acknowledges_nothing_that_gets_lost() -> None:
    with a_cluster(3, SETTINGS, seed="cut leader") as cluster:
        assert create(cluster, "t").error_code == 0

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            # The leader must not be the controller: that would be the one everybody else is cut off from.
            leader = await leader_that_is_not_the_controller(client, cluster)
            result = None
            while result is None or result.error_code:
                result = await client.produce(b"before")
            assert client.leader == leader
            cluster.node(leader).isolate()
            stranded = ClusterClient(runtime, cluster)
            answers = []
            for number in range(12):
                stranded.leader = leader
                answers.append(await stranded.produce(b"stranded %d" % number))
            # The ISR still has all three as far as it knows, and the others do not ask it any more.
            assert all(answer is None or answer.error_code in (7, 6, 19, 20) for answer in answers), answers
            stranded.leader = leader
            data = await stranded.fetch(0)
            assert data is None or data.error_code or data.high_watermark <= 1
            client.leader = -1
            client.leader_epoch = -1
            await client.until(lambda: is_led_elsewhere(cluster, leader))
            result = None
            while result is None or result.error_code:
                result = await client.produce(b"after")
            await heal(client, cluster)
            await equal(client, cluster)
            assert await client.all_values() == [b"before", b"after"]

        cluster.world.execute(main)


def test_a_replica_that_lost_its_unsynced_tail_is_not_elected() -> None:
    """It comes back before anyone noticed; then the leader dies. The third replica leads and has everything."""
    with a_cluster(3, SETTINGS, seed="lost tail") as cluster:
        assert create(cluster, "t").error_code == 0

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            values = [b"%d" % number for number in range(30)]
            for value in values:
                result = None
                while result is None or result.error_code:
                    result = await client.produce(value)
            leader = client.leader
            first, second = [node.node_id for node in cluster.nodes if node.node_id != leader]
            # Which of them the controller would choose, if it did not know better.
            replicas = state_now(cluster).replicas
            lost = next(replica for replica in replicas if replica != leader)
            other = second if lost == first else first
            registered = epoch_of(cluster, lost)
            cluster.node(lost).power_loss()
            cluster.node(lost).begin()
            while epoch_of(cluster, lost) == registered:
                await runtime.sleep(0.1)
            # In the same moment: there is no image in which it is back and still in sync.
            assert lost not in state_now(cluster).isr
            cluster.node(leader).crash()
            await client.until(lambda: state_now(cluster).leader in (lost, other))
            assert state_now(cluster).leader == other
            # Alone it is below the minimum: it may not tell what it has not known to be committed before.
            await client.until(lambda: high_watermark(cluster.node(other)) == 30)
            client.leader, client.leader_epoch = -1, -1
            assert await client.all_values() == values

        cluster.world.execute(main)


def test_the_metrics_tell_who_left_and_who_came_back() -> None:
    with a_cluster(3, SETTINGS, seed="metrics") as cluster:
        assert create(cluster, "t").error_code == 0

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            leader = await current_leader(client, cluster)
            follower = next(node for node in cluster.nodes if node.node_id != leader)
            follower.crash()
            await client.until(lambda: in_sync_count(cluster) == 2)
            follower.begin()
            await client.until(lambda: in_sync_count(cluster) == 3)
            samples = {sample.name: sample.value for sample in cluster.node(leader).served.metrics.samples()}
            assert samples["kafka_server_replicamanager_isrshrinks_total"] == 1
            assert samples["kafka_server_replicamanager_isrexpands_total"] == 1

        cluster.world.execute(main)


def test_a_producer_hardly_notices_a_follower_that_dies() -> None:
    async def faults(client: ClusterClient, cluster: SimCluster) -> None:
        leader = await current_leader(client, cluster)
        follower = next(node for node in cluster.nodes if node.node_id != leader)
        follower.crash()
        await client.runtime.sleep(5000)

    with a_cluster(3, SETTINGS, seed="follower kill") as cluster:
        ledger = under_load(cluster, faults)
        assert ledger.longest_gap_ms < 2000


def test_a_group_finds_its_offsets_on_the_next_coordinator() -> None:
    with a_cluster(3, SETTINGS, seed="coordinator") as cluster:
        assert create(cluster, "t").error_code == 0

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            for number in range(5):
                node = await coordinator(client, cluster)
                committed = await offset_of(client, node)
                assert committed == (number if number else -1), committed
                await commit(client, node, number + 1)
                cluster.node(node).crash()
                await client.runtime.sleep(100)
                node_down = node
                await client.until(lambda down=node_down: offsets_leader(cluster) not in (down, -1), limit_ms=30_000)
                cluster.node(node_down).begin()
                await client.until(lambda down=node_down: cluster.node(down).ready)
                await client.until(lambda: offsets_isr(cluster) == 3)

        cluster.world.execute(main)


def test_many_partitions_in_small_pieces() -> None:
    """One fetch has room for few of them; each gets its turn."""
    settings = {**SETTINGS, "replica.fetch.response.max.bytes": "20000", "replica.fetch.max.bytes": "5000"}
    with a_cluster(3, settings, seed="many partitions") as cluster:
        assert create(cluster, "t", partitions=30).error_code == 0

        async def main(runtime: SimRuntime) -> None:
            clients = [ClusterClient(runtime, cluster, "t", index) for index in range(30)]
            wanted = {index: [b"%d-%d-" % (index, number) + bytes(3000) for number in range(4)] for index in range(30)}

            async def fill(index: int) -> None:
                for value in wanted[index]:
                    result = None
                    while result is None or result.error_code:
                        result = await clients[index].produce(value)

            for task in [runtime.spawn(fill(index), "fill") for index in range(30)]:
                await task
            cluster.node(1).crash()
            await clients[0].until(lambda: all(part.leader > 1 for part in partitions_of(cluster)))
            for index, client in enumerate(clients):
                client.leader = -1
                assert await client.all_values() == wanted[index]
            cluster.node(1).begin()
            await clients[0].until(lambda: all(len(part.isr) == 3 for part in partitions_of(cluster)))
            for index in range(30):
                assert log_of(cluster.node(1), "t", index).end_offset == 4

        cluster.world.execute(main)


# ---- the group's side


async def coordinator(client: ClusterClient, cluster: SimCluster) -> int:
    while True:
        for node in cluster.live:
            try:
                answer = await client.call(node.node_id, FindCoordinatorRequest(key="g", coordinator_keys=["g"]), 4)
            except OSError:
                continue
            (found,) = answer.coordinators
            if not found.error_code and cluster.node(found.node_id).is_alive:
                return int(found.node_id)
        await client.runtime.sleep(100)


async def commit(client: ClusterClient, node: int, offset: int) -> None:
    entry = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[entry])],
    )
    while True:
        answer = await client.call(node, request, 9)
        code = answer.topics[0].partitions[0].error_code
        if not code:
            return
        # NOT_COORDINATOR: whoever named the node knew of its new part before it did itself.
        assert code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ), code
        await client.runtime.sleep(50)


async def offset_of(client: ClusterClient, node: int) -> int:
    group = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    while True:
        answer = await client.call(node, OffsetFetchRequest(groups=[group]), 9)
        (found,) = answer.groups
        if not found.error_code:
            return int(found.topics[0].partitions[0].committed_offset)
        assert found.error_code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ), found.error_code
        await client.runtime.sleep(50)
        node = await coordinator(client, client.cluster)


def offsets_partition(cluster: SimCluster) -> Any:
    controller = cluster.controller()
    topic = None if controller is None else controller.image.topic(CONSUMER_OFFSETS)
    return None if topic is None else topic.partitions[partition_of("g", len(topic.partitions))]


def offsets_leader(cluster: SimCluster) -> int:
    found = offsets_partition(cluster)
    return -1 if found is None else int(found.leader)


def offsets_isr(cluster: SimCluster) -> int:
    found = offsets_partition(cluster)
    return 0 if found is None else len(found.isr)


# ---- looks at the cluster


def state_now(cluster: SimCluster) -> Any:
    images = [node.image for node in cluster.live if node.ready_quorum]
    found = max(images, key=lambda image: image.offset).partition("t", 0)
    assert found is not None
    return found


def epoch_of(cluster: SimCluster, node_id: int) -> int:
    images = [node.image for node in cluster.live if node.ready_quorum]
    found = max(images, key=lambda image: image.offset).broker(node_id)
    return -1 if found is None else found.epoch


def partitions_of(cluster: SimCluster) -> Any:
    images = [node.image for node in cluster.live if node.ready_quorum]
    topic = max(images, key=lambda image: image.offset).topic("t")
    assert topic is not None
    return topic.partitions


def in_sync_count(cluster: SimCluster) -> int:
    return len(state_now(cluster).isr)


def is_led_elsewhere(cluster: SimCluster, leader: int) -> bool:
    return state_now(cluster).leader not in (leader, -1)


async def current_leader(client: ClusterClient, cluster: SimCluster) -> int:
    await client.until(lambda: state_now(cluster).leader > 0)
    return int(state_now(cluster).leader)


async def leader_that_is_not_the_controller(client: ClusterClient, cluster: SimCluster) -> int:
    leader = await current_leader(client, cluster)
    controller = cluster.await_controller()
    if controller.node_id == leader:
        controller.crash()
        await client.until(lambda: is_led_elsewhere(cluster, leader))
        controller.begin()
        await client.until(lambda: controller.ready)
        await client.until(lambda: in_sync_count(cluster) == 3)
        leader = await current_leader(client, cluster)
        assert cluster.await_controller().node_id != leader, "choose another seed"
    return leader

"""Disks with read errors or bit rot: the records come from other replicas."""

from __future__ import annotations

from broker.cluster_load import ClusterClient, bytes_of, log_of
from broker.clusters import a_cluster, create, state
from broker.test_replication_cluster import (
    SETTINGS,
    commit,
    coordinator,
    offset_of,
    offsets_isr,
    offsets_leader,
    offsets_partition,
)
from penstock.coordinators.partitioning import partition_of
from penstock.metadata import CONSUMER_OFFSETS
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster

SEGMENT = "00000000000000000000.log"
POINTS = "recovery-point-offset-checkpoint"
ALL_READS = 1_000


def write(cluster: SimCluster, count: int) -> None:
    async def produce(runtime: SimRuntime) -> None:
        client = ClusterClient(runtime, cluster)
        for number in range(count):
            assert (await client.produce(b"%d" % number)).error_code == 0

    cluster.world.execute(produce)


def test_a_log_that_cannot_be_read_at_the_start_ends_the_process_and_others_lead_it() -> None:
    with a_cluster(3, SETTINGS, seed="eio") as cluster:
        create(cluster, "t")
        write(cluster, 5)
        node = cluster.leader_of("t")
        assert node is not None
        node.crash()
        cluster.await_(lambda: state(cluster, "t").leader not in (node.node_id, -1))
        node.host.disk.fail_reads(f"t-0/{SEGMENT}", ALL_READS)
        process = node.begin(watched=True)
        cluster.await_(lambda: process.is_dead)
        assert "t-0 cannot be read" in node.host.exits[-1].reason
        assert not node.events.named("log not opened")
        assert state(cluster, "t").leader != node.node_id

        node.host.disk.stop_failing()
        node.start()
        cluster.await_(lambda: len(state(cluster, "t").isr) == 3)
        assert log_of(node).end_offset == 5


def test_a_coordinator_that_cannot_read_its_groups_ends_and_another_one_has_them() -> None:
    with a_cluster(5, SETTINGS, seed="eio of offsets") as cluster:
        create(cluster, "t")

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            first = await coordinator(client, cluster)
            await client.until(lambda: offsets_isr(cluster) == 3 and offsets_leader(cluster) == first)
            await runtime.sleep(500)
            await commit(client, first, 7)
            second, third = (replica for replica in offsets_partition(cluster).replicas if replica != first)
            partition = partition_of("g", int(SETTINGS["offsets.topic.num.partitions"]))
            cluster.node(second).host.disk.fail_reads(f"{CONSUMER_OFFSETS}-{partition}/{SEGMENT}", ALL_READS)
            cluster.node(second).process.is_watched = True
            cluster.node(first).crash()
            await client.until(lambda: not cluster.node(second).is_alive)
            assert f"{CONSUMER_OFFSETS}-{partition} cannot be read" in cluster.node(second).host.exits[-1].reason
            await client.until(lambda: offsets_leader(cluster) == third)
            cluster.node(first).begin()
            await client.until(lambda: offsets_isr(cluster) == 2)
            assert await offset_of(client, third) == 7

        cluster.world.execute(main)


def test_a_replica_that_rotted_where_it_was_synced_takes_the_rest_from_the_others() -> None:
    with a_cluster(3, SETTINGS, seed="rot") as cluster:
        create(cluster, "t")
        write(cluster, 6)
        node = cluster.leader_of("t")
        assert node is not None
        manager = node.served.manager

        async def checkpoint() -> None:
            await log_of(node).flush()
            await manager.checkpoint_start_offsets()

        node.process.deliver(lambda: node.served.quorum._runtime.spawn(checkpoint(), "checkpoint"))
        disk = node.host.disk
        cluster.await_(lambda: disk.namespace.find(POINTS) is not None and b"\nt 0 6" in disk.content(POINTS))
        size = len(bytes_of(log_of(node))) // 6
        node.crash()
        cluster.await_(lambda: state(cluster, "t").leader not in (node.node_id, -1))
        node.host.disk.rot(f"t-0/{SEGMENT}", 2 * size + 65)
        node.start()
        cluster.await_(lambda: len(state(cluster, "t").isr) == 3)
        told = node.events.said("damaged log", "what")
        assert told[-1] == "t-0 was truncated at offset 2; the rest will be copied from its leader"
        assert len({bytes_of(log_of(one)) for one in cluster.nodes}) == 1

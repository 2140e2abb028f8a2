"""Logs whose directories are missing, and logs that a metadata snapshot does not mention.

A partition that this broker held is never served empty, and nothing is deleted because the metadata lacks it.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from broker.cluster_load import ClusterClient, bytes_of, log_of
from broker.clusters import a_cluster, ask, create, state
from broker.damaging import SEGMENT, Files, copy_of, flipped, put, scene
from broker.session import Session, is_recovered, measured
from penstock.log.checkpoints import decode_offsets
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.sim.cluster import SimCluster, SimNode
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

POINTS = "recovery-point-offset-checkpoint"
CHECKPOINTED_MS = 61_000
"""After that the checkpoints list every log that is open."""
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


def without(files: Files, directory: str) -> Files:
    return {path: data for path, data in files.items() if not path.startswith(f"{directory}/")}


def produce(cluster: SimCluster, topic: str, count: int) -> None:
    async def main(runtime: SimRuntime) -> None:
        client = ClusterClient(runtime, cluster, topic)
        for number in range(count):
            assert (await client.produce(b"%d" % number)).error_code == 0

    cluster.world.execute(main)


def code_of(node: SimBroker, topic: str, partition: int = 0) -> int:
    """The error code that a producer gets."""
    codes: list[int] = []

    async def main(runtime: SimRuntime) -> None:
        s = await Session.open(runtime, node)
        await s.until(lambda: not node.served.manager.recovering)
        codes.append((await s.produce(topic, b"new", partition=partition)).error_code)

    node.world.execute(main)
    return codes[0]


def strays(node: SimBroker) -> list[str]:
    return [name for name in node.host.disk.namespace.root.entries if name.endswith("-stray")]


# ---- snapshots of the metadata


def follower_that_misses_a_deletion(cluster: SimCluster, topic: str) -> SimNode:
    """Cut one node off while the others delete a topic and take a snapshot without it; then reconnect the node."""
    away = next(node for node in cluster.nodes if not node.is_active_controller)
    away.isolate()
    at = cluster.await_controller().node_id
    for number in range(40):
        create(cluster, f"filler{number}", at=at, replication_factor=1)
    ask(cluster, at, DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000), 6)
    for number in range(40, 80):
        create(cluster, f"filler{number}", at=at, replication_factor=1)
    cluster.world.run(1_000)
    away.rejoin()
    cluster.await_images()
    assert away.events.named("metadata snapshot installed")
    return away


def test_a_log_that_an_installed_snapshot_lacks_is_set_aside_with_all_its_records() -> None:
    with a_cluster(settings=SNAPSHOTS, seed="snapshot") as cluster:
        create(cluster, "orders")
        produce(cluster, "orders", 5)
        before = {node.node_id: bytes_of(log_of(node, "orders")) for node in cluster.nodes}
        away = follower_that_misses_a_deletion(cluster, "orders")
        cluster.world.run(120_000)
        (kept,) = strays(away)
        assert kept.startswith("orders-0.")
        assert away.host.disk.content(f"{kept}/{SEGMENT}") == before[away.node_id]
        assert measured(away, "penstock_log_strays") == 1
        # Those that replayed the deletion have removed theirs.
        assert not any(strays(node) for node in cluster.nodes if node is not away)
        assert not any(node.host.disk.namespace.find("orders-0") for node in cluster.nodes)
        assert create(cluster, "orders", at=away.node_id).error_code == ErrorCode.NONE
        produce(cluster, "orders", 2)
        assert log_of(away, "orders").end_offset == 2
        away.restart()
        cluster.await_ready()
        assert strays(away) == [kept]


# ---- directories that are gone


@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_a_partition_whose_directory_is_gone_is_refused_until_an_operator_acts(stop: str) -> None:
    found = scene(stop=stop, wait_ms=CHECKPOINTED_MS)
    with World(f"gone-{stop}") as world:
        node = SimBroker(world)
        put(node.host.disk, without(found.files, "orders-1"))
        node.start()
        for _ in range(2):
            assert code_of(node, "orders", 1) == ErrorCode.KAFKA_STORAGE_ERROR
            assert code_of(node, "orders", 0) == ErrorCode.NONE
            assert "accept-loss" in node.events.said("log not opened", "error")[-1]
            assert measured(node, "penstock_log_refused_partitions") == 1
            node.restart()
            node.stop()
            node.start()
        node.stop()
        # The directory comes back from a copy.
        files = copy_of(node.host.disk)
    with World("copied back") as world:
        node = SimBroker(world)
        put(node.host.disk, files | {p: d for p, d in found.files.items() if p.startswith("orders-1/")})
        node.start()

        async def read(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.until(lambda: is_recovered(node))
            assert await s.values("orders", 1) == found.topics["orders"][1]

        world.execute(read)


def test_an_empty_directory_in_place_of_synced_records_is_refused() -> None:
    found = scene(settings={"log.flush.interval.messages": "1"}, wait_ms=CHECKPOINTED_MS)
    with World("emptied") as world:
        node = SimBroker(world)
        put(node.host.disk, without(found.files, "orders-1") | {"orders-1/": b""})
        node.start()
        assert code_of(node, "orders", 1) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_refused_partition_can_be_deleted_and_its_topic_created_again() -> None:
    found = scene(wait_ms=CHECKPOINTED_MS)
    with World("created again") as world:
        node = SimBroker(world)
        put(node.host.disk, without(found.files, "logs-0"))
        node.start()
        assert code_of(node, "logs") == ErrorCode.KAFKA_STORAGE_ERROR

        async def again(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.delete("logs")
            await s.create("logs", 1)

        world.execute(again)
        assert code_of(node, "logs") == ErrorCode.NONE
        assert node.served.manager.refused == 0
        node.restart()
        assert code_of(node, "logs") == ErrorCode.NONE


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_a_topic_deleted_and_created_again_is_never_taken_for_one_that_is_lost(power_loss: bool) -> None:
    """A crash at any operation of the deletion, of the recreation, and of the checkpoints between them."""
    for operation in range(1, 200):
        with World(f"again-{operation}") as world:
            node = SimBroker(world, {"log.flush.offset.checkpoint.interval.ms": "50"})
            node.start()

            async def fill(runtime: SimRuntime, node: SimBroker = node) -> None:
                s = await Session.open(runtime, node)
                await s.create("t", 1, flush_messages="1")
                assert (await s.produce("t", b"old")).error_code == 0
                await runtime.sleep(200)

            world.execute(fill)
            assert "t-0" in decode_offsets(node.host.disk.content(POINTS))
            node.host.disk.crash_after(operation)
            node.process.is_watched = True

            async def again(runtime: SimRuntime, node: SimBroker = node) -> None:
                with suppress(OSError):
                    s = await Session.open(runtime, node)
                    await s.delete("t")
                    await s.create("t", 1)
                    await runtime.sleep(200)

            client = world.host("again").start(again)
            world.run_until(lambda client=client, node=node: client.is_dead or node.process.is_dead)
            crashed = node.process.is_dead
            node.host.disk.cancel_crash()
            if not crashed:
                assert operation > 10
                return
            if power_loss:
                node.host.power_loss()
            node.start()

            async def use(runtime: SimRuntime, node: SimBroker = node, operation: int = operation) -> None:
                s = await Session.open(runtime, node)
                await s.try_create("t")
                await s.until(lambda: not node.served.manager.recovering)
                assert (await s.produce("t", b"new")).error_code == 0, operation

            world.execute(use)
            assert not node.events.named("log not opened"), operation
    raise AssertionError("it never got through")


@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_a_replica_whose_directory_is_gone_is_copied_again_and_does_not_lead_before(stop: str) -> None:
    with a_cluster(settings={"log.flush.offset.checkpoint.interval.ms": "500"}, seed=f"replica-{stop}") as cluster:
        create(cluster, "t")
        produce(cluster, "t", 6)
        cluster.world.run(2_000)
        node = cluster.leader_of("t")
        assert node is not None
        if stop == "clean":
            node.stop()
        else:
            node.crash()
        node.host.disk.namespace.remove("t-0")
        # At once, so that it may still be the leader by the metadata that it has.
        node.start()
        cluster.await_(lambda: len(state(cluster, "t").isr) == 3)
        assert node.events.said("log lost", "partition") == ["t-0"]
        assert len({bytes_of(log_of(one)) for one in cluster.nodes}) == 1
        assert log_of(node).end_offset == 6


# ---- refusals


def test_a_refused_partition_stays_refused_after_a_clean_stop() -> None:
    found = scene()
    path = "orders-0/partition.metadata"
    files = found.files | {path: flipped(found.files[path], 3, 2)}
    with World("refusal") as world:
        node = SimBroker(world)
        put(node.host.disk, files)
        node.start()
        for _ in range(3):
            assert code_of(node, "orders", 0) == ErrorCode.KAFKA_STORAGE_ERROR
            assert code_of(node, "orders", 1) == ErrorCode.NONE
            node.stop()
            node.start()
        assert node.host.disk.content(f"orders-0/{SEGMENT}") == files[f"orders-0/{SEGMENT}"]


def test_a_log_that_could_not_be_opened_is_refused_again_after_a_clean_stop() -> None:
    """Its end is damaged below the recovery point, so the end of the log is unknown."""
    found = scene(settings={"log.flush.interval.messages": "1"}, wait_ms=CHECKPOINTED_MS)
    path = f"orders-0/{SEGMENT}"
    files = found.files | {path: found.files[path][:-90] + bytes(90)}
    with World("corrupt") as world:
        node = SimBroker(world)
        put(node.host.disk, files)
        node.start()
        for _ in range(2):
            assert code_of(node, "orders", 0) == ErrorCode.KAFKA_STORAGE_ERROR
            assert code_of(node, "orders", 1) == ErrorCode.NONE
            node.stop()
            node.start()
        assert node.host.disk.content(path) == files[path]

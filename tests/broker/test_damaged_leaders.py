"""A leader with a damaged copy gives up leadership and copies the lost part again.

Bits flip in a part of the log that was synced long ago, which no start checks. The damage may be found by a replica
that copies everything, by a consumer, or by a coordinator. In the end every replica has the same bytes, and readers
can read everything.
"""

from __future__ import annotations

import pytest

from broker.cluster_load import ClusterClient, bytes_of, log_of
from broker.clusters import a_cluster, create, run, state
from broker.session import fetch_request, produce_request
from broker.test_groups_cluster import commit, committed, coordinator
from penstock.broker.replicas.roles import ReplicaRoles
from penstock.log import Log
from penstock.metadata import CONSUMER_OFFSETS
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster, SimNode
from penstock.wire.errors import ErrorCode
from penstock.wire.records import Record, build_batch

SETTINGS = {"min.insync.replicas": "2", "offsets.topic.num.partitions": "1"}
RECORDS = 60
PAYLOAD = b"x" * 500


def write(cluster: SimCluster, count: int = RECORDS) -> list[bytes]:
    async def scenario(runtime: SimRuntime) -> list[bytes]:
        client = ClusterClient(runtime, cluster)
        values = [b"%06d" % number + PAYLOAD for number in range(count)]
        for value in values:
            while (result := await client.produce(value)) is None or result.error_code:
                await runtime.sleep(50)
        return values

    found: list[bytes] = run(cluster, scenario)
    return found


def produce(cluster: SimCluster, count: int = RECORDS) -> list[bytes]:
    """Write, and wait until every node has the records."""
    found = write(cluster, count)
    cluster.await_(lambda: len({log_of(node).end_offset for node in cluster.nodes}) == 1)
    return found


def read_all(cluster: SimCluster) -> list[bytes]:
    return run(cluster, lambda runtime: ClusterClient(runtime, cluster).all_values())  # type: ignore[no-any-return]


def rot(node: SimNode, topic: str, share: float = 0.5) -> None:
    """Flip a bit in the middle of a batch somewhere in the log."""
    log = log_of(node, topic)
    content = node.host.disk.content(f"{log.name}/{log.active.base_offset:020}.log")
    batches = []
    at = 0
    while at < len(content):
        batches.append(at)
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    start = batches[int(share * (len(batches) - 1))]
    node.host.disk.rot(f"{log.name}/{log.active.base_offset:020}.log", start + 70)


def leader(cluster: SimCluster, topic: str = "t") -> SimNode:
    found = cluster.leader_of(topic)
    assert found is not None
    return found


def is_whole(cluster: SimCluster, topic: str = "t") -> bool:
    logs = [log_of(node, topic) for node in cluster.nodes if node.ready]
    return (
        len(logs) == len(cluster.nodes)
        and all(log is not None for log in logs)
        and len(state(cluster, topic).isr) == len(cluster.nodes)
        and len({log.end_offset for log in logs}) == 1
    )


def test_a_replaced_replica_catches_up_although_the_leaders_copy_has_rotted() -> None:
    with a_cluster(3, SETTINGS, seed=1) as cluster:
        create(cluster, "t")
        cluster.await_images()
        values = produce(cluster)
        first = leader(cluster)
        rot(first, "t")
        replaced = next(node for node in cluster.nodes if node is not first)
        replaced.crash()
        replaced.wipe()
        replaced.begin()
        cluster.await_(lambda: replaced.ready and leader(cluster) is not first and is_whole(cluster))
        assert read_all(cluster) == values
        logs = [bytes_of(log_of(node)) for node in cluster.nodes]
        assert logs[0] == logs[1] == logs[2]
        assert first.events.named("damaged log")
        assert first.events.named("damaged log cut")


def test_a_repair_that_fails_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate = ReplicaRoles._truncate_damaged
    failures = iter([RuntimeError("planted")])

    async def fails_once(self: ReplicaRoles, log: Log, offset: int) -> None:
        for failure in failures:
            raise failure
        await truncate(self, log, offset)

    monkeypatch.setattr(ReplicaRoles, "_truncate_damaged", fails_once)
    with a_cluster(3, SETTINGS, seed=1) as cluster:
        cluster.world.tolerate_errors = True
        create(cluster, "t")
        cluster.await_images()
        values = produce(cluster)
        first = leader(cluster)
        rot(first, "t")
        partition = first.served.manager.table.find(b"t", 0)
        assert partition is not None
        first.served.manager.roles.damage.suspect_all(partition)
        cluster.await_(lambda: bool(first.events.named("damaged log cut")) and is_whole(cluster))
        assert read_all(cluster) == values
        assert next(failures, None) is None, "the planted failure never happened"


def test_a_leader_that_is_alone_in_the_isr_keeps_what_it_has() -> None:
    with a_cluster(1, seed=2) as cluster:
        create(cluster, "t", replication_factor=1)
        produce(cluster)
        node = leader(cluster)
        rot(node, "t")
        partition = node.served.manager.table.find(b"t", 0)
        assert partition is not None
        node.served.manager.roles.damage.suspect(partition, 0)
        cluster.world.run(10_000)
        assert partition.damaged_at == RECORDS // 2 - 1
        assert leader(cluster) is node
        assert log_of(node).end_offset == RECORDS
        assert node.events.named("damaged log")


def test_a_whole_log_under_suspicion_is_left_alone() -> None:
    with a_cluster(3, SETTINGS, seed=9) as cluster:
        create(cluster, "t")
        cluster.await_images()
        produce(cluster)
        first = leader(cluster)
        partition = first.served.manager.table.find(b"t", 0)
        assert partition is not None
        first.served.manager.roles.damage.suspect(partition, 7)
        first.served.manager.roles.damage.suspect_all(partition)
        cluster.world.run(10_000)
        assert leader(cluster) is first
        assert first.events.named("damaged log") == []


def test_a_consumer_that_asks_again_in_its_session_makes_the_leader_look() -> None:
    with a_cluster(3, SETTINGS, seed=3) as cluster:
        create(cluster, "t")
        cluster.await_images()
        values = produce(cluster)
        first = leader(cluster)
        rot(first, "t")

        async def consume(runtime: SimRuntime) -> None:
            client = await cluster.connect(runtime, first.node_id)
            request = fetch_request("t", 0, 0, session_id=0, session_epoch=0)
            answer = await client.call(request, 12)
            # The batch does not match its checksum: nothing else can be done than to ask again.
            again = fetch_request("t", 0, 0, session_id=answer.session_id, session_epoch=1)
            await client.call(again, 12)

        run(cluster, consume)
        cluster.await_(lambda: leader(cluster) is not first and is_whole(cluster))
        assert read_all(cluster) == values
        logs = [bytes_of(log_of(node)) for node in cluster.nodes]
        assert logs[0] == logs[1] == logs[2]


def test_a_coordinator_that_cannot_load_its_log_lets_another_coordinate() -> None:
    with a_cluster(3, SETTINGS, seed=4) as cluster:
        create(cluster, "t")
        before = cluster.node(coordinator(cluster))
        for offset in range(20):
            assert commit(cluster, before.node_id, offset) == ErrorCode.NONE
        # The first replica that is left leads next: it is the one that has rotted.
        replicas = state(cluster, CONSUMER_OFFSETS).replicas
        successor = next(cluster.node(replica) for replica in replicas if replica != before.node_id)
        rot(successor, CONSUMER_OFFSETS)
        before.crash()
        cluster.await_(lambda: cluster.leader_of(CONSUMER_OFFSETS) not in (None, before, successor))
        assert successor.events.named("coordinator not loaded")
        before.begin()
        cluster.await_ready()
        cluster.await_(lambda: is_whole(cluster, CONSUMER_OFFSETS))
        cluster.await_(lambda: committed(cluster, coordinator(cluster)) == (ErrorCode.NONE, 19))
        logs = [bytes_of(log_of(node, CONSUMER_OFFSETS)) for node in cluster.nodes]
        assert logs[0] == logs[1] == logs[2]


def test_a_log_that_compaction_finds_damaged_is_repaired_and_compacted_again() -> None:
    with a_cluster(3, {**SETTINGS, "log.cleaner.backoff.ms": "1000"}, seed=5) as cluster:
        small = {"cleanup.policy": "compact", "internal.segment.bytes": "1000", "file.delete.delay.ms": "100"}
        create(cluster, "t", configs=small)
        cluster.await_images()
        first = leader(cluster)

        def fill(first_round: int, last_round: int) -> None:
            async def scenario(runtime: SimRuntime) -> None:
                client = ClusterClient(runtime, cluster)
                for number in range(first_round, last_round):
                    pairs = [(b"%d" % key, b"%d-%d" % (key, number)) for key in range(5)]
                    made = [Record(timestamp=runtime.wall_ms(), key=key, value=value) for key, value in pairs]
                    request = produce_request("t", build_batch(made), 0, -1, timeout_ms=5_000)
                    assert await client.find_leader() > 0
                    answer = await client.call(client.leader, request, 12)
                    assert not answer.responses[0].partition_responses[0].error_code

            run(cluster, scenario)

        fill(0, 40)
        first.host.disk.rot(log_of(first).segments[1].path(".log"), 70)
        cluster.await_(lambda: bool(first.events.named("log not compacted")))
        cluster.await_(lambda: bool(first.events.named("damaged log cut")) and is_whole(cluster))
        assert leader(cluster) is not first
        before = len(first.events.named("compacted"))
        fill(40, 80)
        cluster.await_(lambda: len(first.events.named("compacted")) > before)


def two_replicas(cluster: SimCluster) -> tuple[SimNode, SimNode, list[bytes]]:
    """A topic with two replicas, its leader first, and the records written to it."""
    create(cluster, "t", replication_factor=2)
    cluster.await_images()

    values = write(cluster)
    cluster.world.run(3_000)
    first = leader(cluster)
    second = cluster.node(next(one for one in state(cluster, "t").replicas if one != first.node_id))
    assert log_of(second).end_offset == RECORDS
    return first, second, values


@pytest.mark.parametrize("delay_ms", [0, 10, 80])
@pytest.mark.parametrize("min_isr", ["1", "2"])
def test_an_unreadable_owner_costs_nothing_when_all_brokers_crash(min_isr: str, delay_ms: int) -> None:
    """Each broker may turn out to be the last of the ISR, so none may set its log aside."""
    with a_cluster(3, {"min.insync.replicas": min_isr}, seed=delay_ms) as cluster:
        _, second, values = two_replicas(cluster)
        for node in cluster.nodes:
            node.crash()
        second.host.disk.rot("t-0/partition.metadata", 3)
        for node in cluster.nodes:
            if node is not second:
                node.begin()
        cluster.world.run(delay_ms)
        second.begin()
        cluster.await_(lambda: all(node.ready for node in cluster.nodes) and cluster.leader_of("t") is not None)
        cluster.await_(lambda: len(state(cluster, "t").isr) == 2)
        assert read_all(cluster) == values
        assert second.events.named("log adopted")


def test_an_unreadable_owner_costs_nothing_to_an_eligible_leader() -> None:
    with a_cluster(3, {"min.insync.replicas": "2"}, seed=1) as cluster:
        first, second, values = two_replicas(cluster)
        second.stop()
        cluster.world.run(3_000)
        second.host.disk.rot("t-0/partition.metadata", 3)
        first.stop()
        cluster.world.run(1_000)
        second.begin()
        cluster.await_(lambda: second.ready)
        first.begin()
        cluster.await_(lambda: first.ready and len(state(cluster, "t").isr) == 2)
        assert read_all(cluster) == values


def test_a_damaged_log_is_not_cut_while_its_broker_may_still_be_elected() -> None:
    """A leader that is fenced before it could give up leadership is still eligible, and may have the only copy."""
    with a_cluster(3, {"min.insync.replicas": "2"}, seed=1) as cluster:
        first, second, _ = two_replicas(cluster)
        rot(first, "t")
        first.isolate()
        partition = first.served.manager.table.find(b"t", 0)
        assert partition is not None
        first.served.manager.roles.damage.suspect_all(partition)

        def is_replaced() -> bool:
            controller = cluster.controller()
            if controller is None or controller is first:
                return False
            known = controller.image.partition("t", 0)
            return known is not None and known.leader == second.node_id

        cluster.await_(is_replaced)
        assert state(cluster, "t").elr == (first.node_id,)
        first.rejoin()
        cluster.cut(first.node_id, second.node_id)
        cluster.world.run(10_000)
        assert log_of(first).end_offset == RECORDS
        assert not first.events.named("damaged log cut")

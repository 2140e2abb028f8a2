"""Coordinators in a cluster: they move with their partitions, and wait with them while too few replicas are in sync."""

from __future__ import annotations

from typing import Any

from broker.clusters import a_cluster, ask, create, fenced, state
from penstock.metadata import CONSUMER_OFFSETS
from penstock.sim.cluster import BROKER, CONTROLLER, SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

SETTINGS = {"offsets.topic.num.partitions": "1", "min.insync.replicas": "2"}


def coordinator(cluster: SimCluster) -> int:
    answers: list[Any] = []

    def found() -> bool:
        at = next(node.node_id for node in cluster.live if node.is_broker)
        answers.append(ask(cluster, at, FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0])
        if answers[-1].error_code != ErrorCode.NONE:
            return False
        # That broker may hear a little later that it leads.
        known = ask(cluster, answers[-1].node_id, HeartbeatRequest(group_id="g", member_id="m"), 4).error_code
        return known not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    while not found():
        cluster.world.run(50)
    return int(answers[-1].node_id)


def commit(cluster: SimCluster, at: int, offset: int) -> int:
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
            )
        ],
    )
    return int(ask(cluster, at, request, 8).topics[0].partitions[0].error_code)


def committed(cluster: SimCluster, at: int) -> tuple[int, int]:
    group = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    answer = ask(cluster, at, OffsetFetchRequest(groups=[group]), 8).groups[0]
    if answer.error_code:
        return answer.error_code, -1
    (found,) = answer.topics[0].partitions
    return found.error_code, found.committed_offset


def test_below_the_minimum_isr_commits_are_refused_at_once_and_what_is_known_is_kept() -> None:
    roles = [CONTROLLER, BROKER, BROKER, BROKER]
    with a_cluster(4, SETTINGS, roles=roles, seed=3) as cluster:
        create(cluster, "t", at=2)
        at = coordinator(cluster)
        assert commit(cluster, at, 5) == ErrorCode.NONE
        others = [node for node in cluster.nodes if node.is_broker and node.node_id != at]
        for node in others:
            node.crash()
        cluster.await_(lambda: all(fenced(cluster, node.node_id) for node in others))
        cluster.await_(lambda: state(cluster, CONSUMER_OFFSETS, at=at).isr == (at,))
        for _ in range(3):
            began_ms = cluster.world.now_ms
            assert commit(cluster, at, 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert cluster.world.now_ms - began_ms < 100
            assert committed(cluster, at) == (ErrorCode.NONE, 5)
            cluster.world.run(3_000)
        for node in others:
            node.begin()
        cluster.await_ready()
        cluster.await_(lambda: len(state(cluster, CONSUMER_OFFSETS, at=at).isr) == 3)
        assert commit(cluster, at, 7) == ErrorCode.NONE
        assert committed(cluster, at) == (ErrorCode.NONE, 7)
        assert cluster.node(at).served.coordinators.groups.failures == 0
        assert cluster.node(at).events.named("coordinator restarts") == []


def test_a_coordinator_moves_with_its_partition_and_knows_what_was_committed() -> None:
    with a_cluster(3, SETTINGS, seed=4) as cluster:
        create(cluster, "t")
        for offset in range(3):
            old = coordinator(cluster)
            assert commit(cluster, old, offset) == ErrorCode.NONE
            cluster.node(old).crash()
            cluster.await_(lambda old=old: cluster.controller() is not None and fenced(cluster, old))  # type: ignore[misc]
            new = coordinator(cluster)
            assert new != old
            while committed(cluster, new)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                cluster.world.run(10)
            assert committed(cluster, new) == (ErrorCode.NONE, offset)
            cluster.node(old).begin()
            cluster.await_ready()
            cluster.await_(lambda: len(state(cluster, CONSUMER_OFFSETS).isr) == 3)

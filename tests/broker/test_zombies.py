"""Leaders and coordinators that are cut off from the other nodes while their clients still reach them.

Such a coordinator does not know its successor. It must not keep its members: their commits would not be committed, and
they would miss the group's rebalances elsewhere.
"""

from __future__ import annotations

from broker.clusters import a_cluster, ask, create, run
from broker.session import fetch_request
from broker.test_groups_cluster import SETTINGS, commit, committed, coordinator
from penstock.metadata import CONSUMER_OFFSETS
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 9_000
COMMIT_TIMEOUT_MS = 5_000
"""`offsets.commit.timeout.ms`."""


def joined(cluster: SimCluster, at: int) -> tuple[str, int]:
    """A classic group of one member: its id and generation."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    request.member_id = ask(cluster, at, request, 9).member_id
    answer = ask(cluster, at, request, 9)
    assert answer.error_code == ErrorCode.NONE
    assignment = SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"all")
    sync = SyncGroupRequest(
        group_id="g", generation_id=answer.generation_id, member_id=answer.member_id, assignments=[assignment]
    )
    assert ask(cluster, at, sync, 5).error_code == ErrorCode.NONE
    return answer.member_id, answer.generation_id


def heartbeat(cluster: SimCluster, at: int, member_id: str, generation: int) -> ErrorCode:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    return ErrorCode(ask(cluster, at, request, 4).error_code)


def consumer_heartbeat(cluster: SimCluster, at: int, member_id: str, epoch: int) -> tuple[ErrorCode, int]:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    answer = ask(cluster, at, request, 1)
    return ErrorCode(answer.error_code), int(answer.member_epoch)


def test_a_classic_member_is_sent_away_by_a_coordinator_that_is_cut_off() -> None:
    with a_cluster(3, SETTINGS, seed=5) as cluster:
        create(cluster, "t")
        zombie = coordinator(cluster)
        member, generation = joined(cluster, zombie)
        cluster.node(zombie).isolate()
        began_ms = cluster.world.now_ms
        while (code := heartbeat(cluster, zombie, member, generation)) == ErrorCode.NONE:
            cluster.world.run(500)
        assert code == ErrorCode.NOT_COORDINATOR
        assert cluster.world.now_ms - began_ms < SESSION_MS + 5_000
        (found,) = ask(cluster, zombie, FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        successor = next(node.node_id for node in cluster.nodes if node.node_id != zombie)
        (found,) = ask(cluster, successor, FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
        assert found.node_id != zombie
        # The group lives on there, with its member.
        while (code := heartbeat(cluster, found.node_id, member, generation)) != ErrorCode.NONE:
            assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            cluster.world.run(50)


def test_a_member_of_the_new_protocol_is_sent_away_too_and_its_commits_end() -> None:
    with a_cluster(3, SETTINGS, seed=6) as cluster:
        create(cluster, "t")
        zombie = coordinator(cluster)
        code, epoch = consumer_heartbeat(cluster, zombie, "m-1", 0)
        assert code == ErrorCode.NONE
        assert commit(cluster, zombie, 7) == ErrorCode.UNKNOWN_MEMBER_ID  # as a stranger: the group has members
        cluster.node(zombie).isolate()
        began_ms = cluster.world.now_ms
        while consumer_heartbeat(cluster, zombie, "m-1", epoch)[0] == ErrorCode.NONE:
            cluster.world.run(500)
        assert consumer_heartbeat(cluster, zombie, "m-1", epoch)[0] == ErrorCode.NOT_COORDINATOR
        assert cluster.world.now_ms - began_ms < SESSION_MS + 5_000


def test_a_commit_that_cannot_be_replicated_is_answered_in_time() -> None:
    with a_cluster(3, SETTINGS, seed=7) as cluster:
        create(cluster, "t")
        zombie = coordinator(cluster)
        assert commit(cluster, zombie, 1) == ErrorCode.NONE
        cluster.node(zombie).isolate()
        for offset in range(2, 6):
            began_ms = cluster.world.now_ms
            code = commit(cluster, zombie, offset)
            assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
            assert cluster.world.now_ms - began_ms < COMMIT_TIMEOUT_MS + 500
        cluster.heal_all()
        cluster.await_images()
        # What was not acknowledged may be there or not; what was is.
        code, offset = committed(cluster, coordinator(cluster))
        assert code == ErrorCode.NONE
        assert 1 <= offset <= 5


def test_a_consumer_that_waits_at_a_leader_that_is_cut_off_is_told_to_look_elsewhere() -> None:
    with a_cluster(3, SETTINGS, seed=9) as cluster:
        create(cluster, "t")
        cluster.await_images()
        zombie = cluster.leader_of("t")
        assert zombie is not None
        zombie.isolate()

        async def consume(runtime: SimRuntime) -> tuple[int, float]:
            client = await cluster.connect(runtime, zombie.node_id)
            began_ms = runtime.now_ms()
            request = fetch_request("t", 0, 0, max_wait_ms=60_000, min_bytes=1)
            data = (await client.call(request, 12)).responses[0].partitions[0]
            return data.error_code, runtime.now_ms() - began_ms

        code, waited_ms = run(cluster, consume)
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert waited_ms < SESSION_MS + 5_000


def test_a_coordinator_that_was_cut_off_and_still_leads_serves_again() -> None:
    with a_cluster(3, SETTINGS, seed=8) as cluster:
        create(cluster, "t")
        at = coordinator(cluster)
        assert commit(cluster, at, 3) == ErrorCode.NONE
        partition = cluster.node(at).served.manager.table.find(CONSUMER_OFFSETS.encode(), 0)
        assert partition is not None
        partition.strand(True)
        assert commit(cluster, at, 4) == ErrorCode.NOT_COORDINATOR
        partition.strand(False)
        while committed(cluster, at)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            cluster.world.run(10)
        assert committed(cluster, at) == (ErrorCode.NONE, 3)
        assert commit(cluster, at, 5) == ErrorCode.NONE

"""The metadata quorum under failing disks, leaders that die half-way, voter changes, and requests of other clusters."""

from __future__ import annotations

from typing import Any

import pytest

from broker.clusters import a_cluster, ask, create, fenced
from broker.test_access import ask_at, to_controller
from broker.test_cluster_control import QUORUM
from penstock.broker.quorum.synced_end import LATE_MS
from penstock.broker.starting import StartRefused
from penstock.raft import Propose, ReplicaKey
from penstock.raft import messages as m
from penstock.sim import SimRuntime
from penstock.sim.cluster import CONTROLLER, CONTROLLER_PORT, SimCluster, SimNode
from penstock.wire.apis import OF_CONTROLLERS, ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from penstock.wire.messages.metadata_records import (
    BeginTransactionRecord,
    TopicRecord,
    encode_metadata_record,
)
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

QUORUM_STATE = "__cluster_metadata-0/quorum-state"


# -- what is on disk -------------------------------------------------------------------------------------------------


def test_a_node_whose_vote_is_damaged_does_not_start_and_says_what_to_do() -> None:
    with a_cluster() as cluster:
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        node.stop()
        node.host.disk.rot(QUORUM_STATE, 20)
        process = node.begin(watched=True)
        cluster.world.run_until(lambda: process.is_dead, 10_000)
        with pytest.raises(StartRefused, match=r"quorum-state is damaged .* other voters, format this node"):
            process.result()
        assert create(cluster, "t", at=cluster.await_controller().node_id, replication_factor=2).error_code == 0
        node.wipe()
        node.start()
        cluster.await_ready()


def test_a_node_with_a_damaged_log_elects_nobody_until_it_holds_everything_again() -> None:
    """One of the two nodes with the newest topic is down, and the log of the other is damaged: no node may lead."""
    with a_cluster(seed=5) as cluster:
        leader = cluster.await_controller()
        behind, damaged = (node for node in cluster.nodes if node is not leader)
        behind.crash()
        cluster.await_(lambda: fenced(cluster, behind.node_id))
        assert create(cluster, "t", at=leader.node_id, replication_factor=2).error_code == ErrorCode.NONE
        cluster.await_(lambda: damaged.image.topic("t") is not None)
        cluster.world.run(2 * LATE_MS)
        damaged.crash()
        leader.crash()
        damaged.host.disk.rot("__cluster_metadata-0/00000000000000000000.log", 100)
        damaged.begin()
        behind.begin()
        cluster.world.run(30_000)
        assert damaged.events.named("metadata log damaged")
        assert cluster.controller() is None
        assert damaged.served.quorum.core.hard.suspect
        leader.begin()
        cluster.await_ready()
        assert all(node.image.topic("t") is not None for node in cluster.nodes)
        assert not damaged.served.quorum.core.hard.suspect


def test_a_tail_that_was_never_synced_may_be_torn() -> None:
    """The power fails on all nodes, repeatedly: that must not exclude any of them from elections."""
    with a_cluster(seed=15) as cluster:
        for number in range(6):
            assert create(cluster, f"t{number}", at=1 + number % 3).error_code == ErrorCode.NONE
            cluster.world.run(700 * number)
            for node in cluster.nodes:
                node.power_loss()
            cluster.start()
        assert all(node.events.named("metadata log damaged") == [] for node in cluster.nodes)
        cluster.await_images()
        assert all(len(node.image.topic_names()) == 6 for node in cluster.nodes)


@pytest.mark.parametrize("path", ["__cluster_metadata-0/0000", "quorum-state"])
def test_a_failed_sync_of_the_quorum_ends_the_process(path: str) -> None:
    with a_cluster(seed=6) as cluster:
        node = cluster.await_controller()
        node.process.is_watched = True
        node.host.disk.fail_next_syncs(path_contains=path)
        if path == "quorum-state":
            # A newer epoch is the next thing that it has to remember.
            forged = m.VoteRequest(
                9,
                node.node_id,
                0,
                node.served.quorum.core.epoch + 1,
                ReplicaKey(9, b"9" * 16),
                node.served.quorum.key,
                0,
                0,
                False,
            )
            to_controller(cluster, node.node_id, forged)
        else:
            create(cluster, "t", at=1 + node.node_id % 3)
        cluster.await_(lambda: not node.is_alive, limit_ms=5_000)
        assert node.host.exits[-1].reason.startswith("fatal")
        cluster.await_controller()
        node.start()
        cluster.await_ready()
        assert create(cluster, "u").error_code == ErrorCode.NONE


# -- a leader that dies half-way -------------------------------------------------------------------------------------


def test_a_decision_with_only_its_first_batch_written_has_no_effect() -> None:
    with a_cluster(seed=7) as cluster:
        old = cluster.await_controller()
        half = (BeginTransactionRecord(name="large"), TopicRecord(name="half", topic_id=b"h" * 16))

        async def propose(runtime: SimRuntime) -> None:
            quorum = old.served.quorum
            values = tuple(encode_metadata_record(record) for record in half)
            quorum._step(Propose(quorum.core.epoch, values))

        old.process.runtime.spawn(propose(old.process.runtime), "half a decision")
        cluster.await_(lambda: all(node.served.quorum._applied.in_transaction for node in cluster.nodes))
        old.crash()
        new = cluster.await_controller()
        assert new.events.named("metadata transaction aborted")
        assert create(cluster, "t", at=new.node_id, replication_factor=2).error_code == ErrorCode.NONE
        old.start()
        cluster.await_ready()
        cluster.await_images()
        for node in cluster.nodes:
            assert node.image.topic_names() == ["t"]


# -- calm ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["the controller", "another node"])
def test_a_second_of_standstill_elects_nobody_and_fences_nobody(role: str) -> None:
    with a_cluster(seed=8) as cluster:
        create(cluster, "t", partitions=3)
        cluster.await_images()
        controller = cluster.await_controller()
        still = controller if role == "the controller" else next(n for n in cluster.nodes if n is not controller)
        offsets, epoch = [node.image.offset for node in cluster.nodes], controller.served.quorum.core.epoch
        for _ in range(3):
            still.pause()
            cluster.world.run(1_000)
            still.resume()
            cluster.world.run(4_000)
        assert cluster.controller() is controller
        assert controller.served.quorum.core.epoch == epoch
        assert [node.image.offset for node in cluster.nodes] == offsets


# -- voters over the network -----------------------------------------------------------------------------------------


def observer(cluster: SimCluster, **settings: str) -> SimNode:
    """A controller that is not a voter yet."""
    servers = ",".join(f"{node.name}:{CONTROLLER_PORT}" for node in cluster.nodes)
    node = cluster.add(
        CONTROLLER,
        {
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": servers,
            **{name.replace("_", "."): value for name, value in settings.items()},
        },
    )
    node.start()
    return node


def addition(cluster: SimCluster, node: SimNode, **changes: Any) -> AddRaftVoterRequest:
    key = node.served.quorum.key
    request = AddRaftVoterRequest(
        cluster_id=node.served.quorum.cluster_id,
        timeout_ms=10_000,
        voter_id=key.id,
        voter_directory_id=key.directory_id,
        listeners=[Listener(name="CONTROLLER", host=node.name, port=CONTROLLER_PORT)],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def voters(cluster: SimCluster) -> tuple[int, ...]:
    return cluster.await_controller().served.quorum.core.voter_set.ids


def test_a_controller_becomes_a_voter_and_ceases_to_be_one_through_any_broker() -> None:
    with a_cluster(seed=9) as cluster:
        node = observer(cluster)
        cluster.world.run(1_000)
        described = ask(cluster, 1, QUORUM, 2).topics[0].partitions[0]
        assert [replica.replica_id for replica in described.observers] == [4]
        assert ask(cluster, 2, addition(cluster, node), 1).error_code == ErrorCode.NONE
        assert voters(cluster) == (1, 2, 3, 4)
        cluster.await_(lambda: node.served.quorum.key in node.served.quorum.core.voter_set)
        again = ask(cluster, 3, addition(cluster, node), 1)
        assert again.error_code == ErrorCode.DUPLICATE_VOTER
        # The leader itself goes: it leads until that is decided, and then another one does.
        old = cluster.await_controller()
        key = old.served.quorum.key
        stranger = node.served.quorum.key.directory_id
        wrong = RemoveRaftVoterRequest(cluster_id=None, voter_id=key.id, voter_directory_id=stranger)
        assert ask(cluster, old.node_id, wrong, 0).error_code == ErrorCode.VOTER_NOT_FOUND
        removal = RemoveRaftVoterRequest(cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id)
        assert ask(cluster, 1 + old.node_id % 3, removal, 0).error_code == ErrorCode.NONE
        cluster.await_(lambda: cluster.controller() not in (None, old))
        assert key.id not in voters(cluster)
        assert create(cluster, "t", at=old.node_id).error_code == ErrorCode.NONE


def test_voters_are_changed_one_at_a_time() -> None:
    with a_cluster(seed=10) as cluster:
        more = [observer(cluster), observer(cluster)]
        cluster.world.run(1_000)

        leader = cluster.await_controller().node_id

        async def both(runtime: SimRuntime) -> list[Any]:
            clients = [await cluster.connect(runtime, leader) for _ in more]
            answers = [client.send(addition(cluster, node), 1) for client, node in zip(clients, more, strict=True)]
            return [await answer for answer in answers]

        # Either may come first.
        first, second = sorted(cluster.world.execute(both), key=lambda answer: answer.error_code)
        assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        assert "still changing" in second.error_message
        (late,) = [node for node in more if node.node_id not in voters(cluster)]
        assert ask(cluster, 1, addition(cluster, late), 1).error_code == ErrorCode.NONE
        assert voters(cluster) == (1, 2, 3, 4, 5)


def test_a_controller_that_joins_by_itself_asks_to_be_a_voter() -> None:
    with a_cluster(seed=11) as cluster:
        node = observer(cluster, controller_quorum_auto_join_enable="true")
        cluster.await_(lambda: node.served.quorum.key in node.served.quorum.core.voter_set)
        assert voters(cluster) == (1, 2, 3, 4)


def test_a_voter_that_nobody_could_reach_is_refused_and_nothing_is_changed() -> None:
    with a_cluster(seed=12) as cluster:
        node = observer(cluster)
        cluster.world.run(1_000)
        nowhere = [Listener(name="CONTROLLER", host="node-1", port=1)]
        refused = ask(cluster, 1, addition(cluster, node, listeners=nowhere), 1)
        assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "No controller answers at node-1:1" in refused.error_message
        nobody = ask(cluster, 1, addition(cluster, node, voter_directory_id=bytes(16)), 1)
        assert nobody.error_code == ErrorCode.INVALID_REQUEST
        negative = ask(cluster, 1, addition(cluster, node, voter_id=-1), 1)
        assert negative.error_code == ErrorCode.INVALID_REQUEST
        assert voters(cluster) == (1, 2, 3)


# -- strangers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT],
)
def test_a_node_of_another_cluster_is_not_answered(key: ApiKey) -> None:
    with a_cluster(seed=13) as cluster:
        leader = cluster.await_controller()
        epoch = leader.served.quorum.core.epoch
        request: Any = OF_CONTROLLERS[key].request()
        request.cluster_id = "another"
        for node in cluster.nodes:
            answer = ask_at(cluster, node.node_id, CONTROLLER_PORT, request, OF_CONTROLLERS[key].max_version)
            assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert cluster.controller() is leader
        assert leader.served.quorum.core.epoch == epoch

"""The quorum over the network, and the controller: nodes find each other, elect, register, are fenced and return."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from broker.clusters import a_cluster, ask, create, fenced, state
from penstock.broker.apis import envelope
from penstock.broker.net.peer_connection import PeerUnavailable
from penstock.broker.quorum.controlling import PROBE_CHANNEL, PROBE_WAITS_MS, REFUSALS
from penstock.broker.starting import StartRefused
from penstock.metadata import CLUSTER_METADATA, NO_LEADER
from penstock.sim import SimDisk, World
from penstock.sim.cluster import BOTH, BROKER, CONTROLLER, SimCluster
from penstock.wire.apis import OF_CONTROLLERS, ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages import describe_quorum as dq
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

QUORUM = dq.DescribeQuorumRequest(
    topics=[
        dq.DescribeQuorumRequestTopicData(
            topic_name=CLUSTER_METADATA, partitions=[dq.DescribeQuorumRequestPartitionData()]
        )
    ]
)


# -- the quorum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_three_nodes_found_one_cluster_and_all_of_them_vote(seed: int) -> None:
    with a_cluster(seed=seed) as cluster:
        cluster.await_images()
        leaders = [node for node in cluster.nodes if node.is_active_controller]
        assert len(leaders) == 1
        for node in cluster.nodes:
            assert node.served.quorum.core.voter_set.ids == (1, 2, 3)
            assert node.served.quorum.leader_id == leaders[0].node_id
            assert sorted(node.image.brokers) == [1, 2, 3]
            assert not any(broker.fenced for broker in node.image.brokers.values())
        ids = {node.served.quorum.cluster_id for node in cluster.nodes}
        assert len(ids) == 1


@pytest.mark.parametrize("seed", range(4))
def test_when_the_leader_crashes_another_is_elected_within_a_fraction_of_the_fetch_timeout(seed: int) -> None:
    with a_cluster(seed=seed) as cluster:
        old = cluster.await_controller()
        epoch = old.served.quorum.core.epoch
        began_ms = cluster.world.now_ms
        old.crash()
        new = cluster.await_controller()
        assert new is not old
        assert new.served.quorum.core.epoch > epoch
        assert cluster.world.now_ms - began_ms < 500
        old.start()
        cluster.await_ready()
        assert cluster.controller() is new


def test_a_leader_that_stands_still_for_a_second_stays_the_leader() -> None:
    with a_cluster() as cluster:
        leader = cluster.await_controller()
        epoch = leader.served.quorum.core.epoch
        offset = leader.image.offset
        leader.pause()
        cluster.world.run(1_000)
        leader.resume()
        cluster.world.run(5_000)
        assert cluster.controller() is leader
        assert leader.served.quorum.core.epoch == epoch
        assert leader.image.offset == offset  # nobody was fenced either


def test_a_leader_that_is_cut_off_resigns_and_follows_when_it_is_back() -> None:
    with a_cluster() as cluster:
        old = cluster.await_controller()
        old.isolate()
        cluster.await_(lambda: not old.is_active_controller, limit_ms=10_000)
        new = cluster.await_controller(limit_ms=10_000)
        assert new is not old
        assert create(cluster, "t", at=new.node_id, replication_factor=2).error_code == ErrorCode.NONE
        old.rejoin()
        cluster.await_images()
        assert old.image.topic("t") is not None
        assert cluster.controller() is new


def test_without_a_majority_nothing_is_decided() -> None:
    with a_cluster() as cluster:
        cluster.node(2).crash()
        cluster.node(3).crash()
        cluster.await_(lambda: cluster.controller() is None, limit_ms=10_000)
        request_time_ms = cluster.world.now_ms
        result = create(cluster, "t", at=1, replication_factor=1)
        assert result.error_code == ErrorCode.NOT_CONTROLLER
        assert cluster.world.now_ms - request_time_ms >= 25_000
        cluster.node(2).start()
        cluster.await_controller()
        assert create(cluster, "t", at=1, replication_factor=1).error_code == ErrorCode.NONE


def test_power_loss_of_everyone_at_once_loses_no_decision() -> None:
    with a_cluster(seed=5) as cluster:
        for number in range(5):
            assert create(cluster, f"t{number}", at=1 + number % 3).error_code == ErrorCode.NONE
        for node in cluster.nodes:
            node.power_loss()
        cluster.start()
        cluster.await_images()
        for node in cluster.nodes:
            assert node.image.topic_names() == [f"t{number}" for number in range(5)]


def test_a_follower_that_was_away_for_long_gets_a_snapshot() -> None:
    with a_cluster(settings={"metadata.log.max.record.bytes.between.snapshots": "2000"}) as cluster:
        away = next(node for node in cluster.nodes if not node.is_active_controller)
        create(cluster, "early")
        away.crash()
        at = cluster.await_controller().node_id
        for number in range(40):
            assert create(cluster, f"t{number}", at=at, replication_factor=2).error_code == ErrorCode.NONE
        ask(cluster, at, DeleteTopicsRequest(topics=[DeleteTopicState(name="early")], timeout_ms=10_000), 6)
        cluster.world.run(1_000)
        away.start()
        cluster.await_ready()
        cluster.await_images()
        assert away.events.named("metadata snapshot installed")
        assert away.image.topic_names() == cluster.await_controller().image.topic_names()
        assert away.image.topic("early") is None


def test_a_wiped_voter_comes_back_as_another_replica_and_takes_the_place_of_the_one_that_is_gone() -> None:
    with a_cluster() as cluster:
        create(cluster, "t")
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        before = node.served.quorum.key
        node.crash()
        node.wipe()
        node.start()
        cluster.await_(lambda: node.ready_quorum and node.served.quorum.key in node.served.quorum.core.voter_set)
        assert node.served.quorum.key.id == before.id
        assert node.served.quorum.key.directory_id != before.directory_id
        cluster.await_ready()
        cluster.await_images()
        voters = cluster.await_controller().served.quorum.core.voter_set
        assert before not in voters
        assert len(voters) == 3


def test_a_wiped_founder_joins_the_cluster_it_once_founded() -> None:
    with a_cluster() as cluster:
        create(cluster, "t")
        cluster_id = cluster.node(1).served.quorum.cluster_id
        cluster.node(1).crash()
        cluster.node(1).wipe()
        cluster.node(1).start()
        assert cluster.node(1).served.quorum.cluster_id == cluster_id
        cluster.await_ready()
        assert cluster.node(1).image.topic("t") is not None


def test_the_founder_waits_until_every_voter_has_said_that_it_knows_no_cluster() -> None:
    with World(1) as world:
        cluster = SimCluster(world, 3)
        cluster.node(1).begin()
        cluster.node(2).begin()
        world.run(10_000)
        assert not cluster.node(1).ready_quorum
        assert any("node-3" in reason for reason in cluster.node(1).events.said("looking for the cluster", "reason"))
        cluster.node(3).begin()
        cluster.await_ready()


def test_a_node_that_waits_for_its_cluster_can_be_stopped() -> None:
    with World(2) as world:
        cluster = SimCluster(world, 3)
        cluster.node(2).begin()
        world.run(2_000)
        cluster.node(2).stop()
        assert cluster.node(2).events.named("stopped")


def test_a_damaged_metadata_log_is_fetched_again_and_its_node_votes_only_afterwards() -> None:
    with a_cluster(seed=3) as cluster:
        create(cluster, "t")
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        node.stop()
        path = "__cluster_metadata-0/00000000000000000000.log"
        node.host.disk.rot(path, 100)
        rotten = node.host.disk.content(path)
        node.start()
        cluster.await_ready()
        cluster.await_images()
        (kept,) = node.events.said("metadata log damaged", "kept")
        assert node.host.disk.content(f"{kept}/00000000000000000000.log") == rotten, "what is damaged is kept"
        assert not node.events.named("stray log set aside")
        assert node.image.topic("t") is not None
        cluster.await_(lambda: not node.served.quorum.core.hard.suspect)


def test_voters_are_described_added_and_removed() -> None:
    with a_cluster() as cluster:
        answer = ask(cluster, 2, QUORUM, 2)
        (data,) = answer.topics[0].partitions
        assert (answer.error_code, data.error_code) == (0, 0)
        assert data.leader_id == cluster.await_controller().node_id
        assert [voter.replica_id for voter in data.current_voters] == [1, 2, 3]
        assert [node.node_id for node in answer.nodes] == [1, 2, 3]
        keys = {voter.replica_id: voter.replica_directory_id for voter in data.current_voters}
        gone = next(node for node in cluster.nodes if not node.is_active_controller)
        gone.crash()
        at = cluster.await_controller().node_id
        other = next(n.node_id for n in cluster.nodes if n.node_id not in (at, gone.node_id))
        cluster.world.run(5_000)
        cluster_id = cluster.node(at).served.quorum.cluster_id
        # Two of three are left: without the second of them nobody could decide anything.
        one_more = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=other, voter_directory_id=keys[other])
        refused = ask(cluster, at, one_more, 0)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "stand still" in refused.error_message
        done = ask(
            cluster,
            other,
            RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=gone.node_id, voter_directory_id=keys[gone.node_id]),
            0,
        )
        assert done.error_code == ErrorCode.NONE
        assert gone.node_id not in cluster.await_controller().served.quorum.core.voter_set.ids
        again = ask(
            cluster,
            at,
            AddRaftVoterRequest(
                cluster_id=cluster_id,
                voter_id=gone.node_id,
                voter_directory_id=keys[gone.node_id],
                listeners=[Listener(name="CONTROLLER", host=gone.name, port=9192)],
            ),
            1,
        )
        assert again.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert f"No controller answers at {gone.name}:9192" in again.error_message
        wrong = ask(cluster, at, RemoveRaftVoterRequest(cluster_id="other", voter_id=1), 0)
        assert wrong.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


# -- requests that any node accepts ----------------------------------------------------------------------------------


def test_a_topic_is_created_through_any_node_and_is_there_at_once() -> None:
    with a_cluster() as cluster:
        for node_id in (1, 2, 3):
            result = create(cluster, f"t{node_id}", partitions=3, at=node_id)
            assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 3)
            wanted = [MetadataRequestTopic(name=f"t{node_id}")]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            (topic,) = ask(cluster, node_id, request, 12).topics
            assert topic.error_code == ErrorCode.NONE
            assert all(len(partition.isr_nodes) == 3 for partition in topic.partitions)
        again = create(cluster, "t1", at=2)
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        too_many = create(cluster, "t9", replication_factor=4, at=3)
        assert too_many.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "only 3 broker(s) are registered" in too_many.error_message


def test_a_topic_is_created_while_the_controller_changes() -> None:
    with a_cluster(seed=2) as cluster:
        old = cluster.await_controller()
        at = next(node.node_id for node in cluster.nodes if node is not old)
        old.crash()
        assert create(cluster, "t", at=at, replication_factor=2).error_code == ErrorCode.NONE


def test_every_node_tells_the_same_cluster() -> None:
    with a_cluster() as cluster:
        controller = cluster.await_controller().node_id
        for node_id in (1, 2, 3):
            answer = ask(cluster, node_id, DescribeClusterRequest(), 1)
            assert answer.controller_id == controller
            assert [(b.broker_id, b.host) for b in answer.brokers] == [(1, "node-1"), (2, "node-2"), (3, "node-3")]


def test_producer_ids_of_different_brokers_never_meet() -> None:
    with a_cluster() as cluster:
        given = [ask(cluster, 1 + n % 3, InitProducerIdRequest(transactional_id=None), 4).producer_id for n in range(9)]
        assert len(dict.fromkeys(given)) == 9


def test_feature_levels_are_changed_by_all_or_nobody() -> None:
    with a_cluster() as cluster:
        unknown = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="metadata.version", max_version_level=99, upgrade_type=1)]
        )
        before = cluster.await_controller().image.offset
        answer = ask(cluster, 2, unknown, 1)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "only supports versions" in answer.error_message
        assert cluster.await_controller().image.offset == before
        lower = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2)
        assert ask(cluster, 2, UpdateFeaturesRequest(feature_updates=[lower]), 1).error_code == ErrorCode.NONE
        assert "eligible.leader.replicas.version" not in cluster.await_controller().image.features


@pytest.mark.parametrize("at", ["the controller", "another node"])
def test_what_the_controller_does_not_know_is_refused_in_the_words_of_the_api(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active controller runs an older release, as during a rolling upgrade."""
    older = {
        key: replace(api, max_version=1) if key in (ApiKey.CREATE_TOPICS, ApiKey.UPDATE_FEATURES) else api
        for key, api in OF_CONTROLLERS.items()
    }
    with a_cluster() as cluster:
        controller = cluster.await_controller().node_id
        node_id = controller if at == "the controller" else 1 + controller % 3
        monkeypatch.setattr(envelope, "OF_CONTROLLERS", older)
        monkeypatch.delitem(envelope.ADMINISTRATIVE, ApiKey.UNREGISTER_BROKER)
        expected = ErrorCode.NONE if node_id == controller else ErrorCode.UNSUPPORTED_VERSION
        result = create(cluster, "t", at=node_id)
        assert result.error_code == expected
        level = FeatureUpdateKey(feature="metadata.version", max_version_level=25, upgrade_type=1)
        answer = ask(cluster, node_id, UpdateFeaturesRequest(feature_updates=[level]), 2)
        assert answer.error_code == expected
        if node_id != controller:
            assert "the active controller does not serve CreateTopicsRequest v7" in result.error_message
            gone = ask(cluster, node_id, UnregisterBrokerRequest(broker_id=9), 0)
            assert gone.error_code == ErrorCode.UNSUPPORTED_VERSION


# -- brokers come and go ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_crashes_is_fenced_long_before_its_session_ends(seed: int) -> None:
    with a_cluster(seed=seed) as cluster:
        create(cluster, "t", partitions=6)
        gone = next(node for node in cluster.nodes if not node.is_active_controller)
        began_ms = cluster.world.now_ms
        gone.crash()
        cluster.await_(lambda: fenced(cluster, gone.node_id))
        assert cluster.world.now_ms - began_ms < 500
        for partition in range(6):
            found = state(cluster, "t", partition)
            assert gone.node_id not in found.isr
            assert found.leader not in (gone.node_id, NO_LEADER)


def test_the_controller_and_leader_in_one_process_crashes_and_both_have_successors_within_a_second() -> None:
    with a_cluster(seed=7) as cluster:
        create(cluster, "t", partitions=3)
        gone = cluster.await_controller()
        began_ms = cluster.world.now_ms
        gone.crash()
        cluster.await_(lambda: cluster.controller() is not None and fenced(cluster, gone.node_id))
        assert cluster.world.now_ms - began_ms < 1_000
        assert all(state(cluster, "t", p).leader != gone.node_id for p in range(3))


def test_a_broker_that_falls_silent_is_fenced_when_its_session_ends() -> None:
    with a_cluster() as cluster:
        create(cluster, "t")
        gone = next(node for node in cluster.nodes if not node.is_active_controller)
        began_ms = cluster.world.now_ms
        gone.power_loss()
        cluster.world.run(5_000)
        assert not fenced(cluster, gone.node_id)
        cluster.await_(lambda: fenced(cluster, gone.node_id))
        assert 8_000 < cluster.world.now_ms - began_ms < 12_000


def test_a_broken_connection_is_only_a_hint() -> None:
    with a_cluster() as cluster:
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        for _ in range(5):
            cluster.world.network.reset_connections(node.name)
            cluster.world.run(500)
        assert not fenced(cluster, node.node_id)


def test_a_process_that_still_seems_to_accept_while_it_dies_is_fenced_once_its_port_is_closed() -> None:
    """While a process is being killed, its kernel accepts connections for a moment and resets them."""
    with a_cluster(seed=2) as cluster:
        create(cluster, "t", partitions=6)
        active = cluster.await_controller()
        gone = next(node for node in cluster.nodes if node is not active)
        peers = active.served.peers
        reach, attempts = peers.call, []

        async def reset_at_first(target: Any, request: Any, **options: Any) -> Any:
            if options.get("channel") == PROBE_CHANNEL:
                attempts.append(cluster.world.now_ms)
                if len(attempts) <= 3:
                    raise PeerUnavailable("reset", sent=True, closed=True)
            return await reach(target, request, **options)

        peers.call = reset_at_first  # type: ignore[method-assign]
        began_ms = cluster.world.now_ms
        gone.crash()
        cluster.await_(lambda: fenced(cluster, gone.node_id))
        assert len(attempts) == 3 + REFUSALS
        assert cluster.world.now_ms - began_ms < 1_000


def test_a_broker_whose_listener_only_resets_is_left_to_its_session() -> None:
    with a_cluster(seed=3) as cluster:
        active = cluster.await_controller()
        node = next(node for node in cluster.nodes if node is not active)
        peers = active.served.peers
        reach, attempts = peers.call, []

        async def reset(target: Any, request: Any, **options: Any) -> Any:
            if options.get("channel") == PROBE_CHANNEL:
                attempts.append(cluster.world.now_ms)
                raise PeerUnavailable("reset", sent=True, closed=True)
            return await reach(target, request, **options)

        peers.call = reset  # type: ignore[method-assign]
        cluster.world.network.reset_connections(node.name)
        cluster.world.run(5_000)
        assert len(attempts) >= len(PROBE_WAITS_MS)
        assert not fenced(cluster, node.node_id)
        # The next hint is followed again.
        before = len(attempts)
        cluster.world.network.reset_connections(node.name)
        cluster.world.run(2_000)
        assert len(attempts) > before


def test_a_crashed_broker_comes_back_as_a_new_incarnation_outside_of_every_isr() -> None:
    with a_cluster(seed=4) as cluster:
        create(cluster, "t", partitions=3)
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        epoch = node.served.lifecycle.epoch
        node.crash()
        began_ms = cluster.world.now_ms
        node.start()
        assert cluster.world.now_ms - began_ms < 2_000
        assert node.served.lifecycle.epoch > epoch
        assert node.events.named("registration refused") == []


def test_a_restart_faster_than_detection_still_leaves_every_isr_in_one_batch() -> None:
    """The controller did not see the crash: only the new registration shows that records may be lost."""
    with a_cluster(seed=6) as cluster:
        create(cluster, "t", partitions=3)
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        node.power_loss()
        node.begin()
        controller = cluster.await_controller()
        registered = -1

        def again() -> bool:
            broker = controller.image.broker(node.node_id)
            return broker is not None and broker.epoch > registered and broker.incarnation_id != b""

        before = controller.image.broker(node.node_id)
        assert before is not None
        cluster.await_(lambda: again() and controller.image.broker(node.node_id) != before)
        broker = controller.image.broker(node.node_id)
        assert broker is not None
        if broker.fenced:
            assert all(node.node_id not in state(cluster, "t", p).isr for p in range(3))


def test_a_clean_stop_hands_over_first_and_a_clean_start_keeps_its_places() -> None:
    with a_cluster(seed=8) as cluster:
        create(cluster, "t", partitions=6)
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        cluster.world.network.slow(node.name, "client", 1)
        began_ms = cluster.world.now_ms
        node.stop()
        assert cluster.world.now_ms - began_ms < 3_000
        assert fenced(cluster, node.node_id)
        assert all(state(cluster, "t", p).leader not in (node.node_id, NO_LEADER) for p in range(6))
        epochs = [state(cluster, "t", p).leader_epoch for p in range(6)]
        node.start()
        cluster.await_ready()
        assert [state(cluster, "t", p).leader_epoch for p in range(6)] == epochs


def test_stopping_the_active_controller_moves_the_role_at_once() -> None:
    with a_cluster(seed=9) as cluster:
        old = cluster.await_controller()
        old.stop()
        new = cluster.await_controller(limit_ms=2_000)
        assert new is not old


def test_preferred_leaders_are_elected_on_request() -> None:
    with a_cluster(seed=10) as cluster:
        create(cluster, "t", partitions=6)
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        led = [p for p in range(6) if state(cluster, "t", p).replicas[0] == node.node_id]
        assert led
        everything = ElectLeadersRequest(election_type=0, topic_partitions=None)
        assert ask(cluster, 1, everything, 2).replica_election_results == []
        one = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[led[0], 77])])
        (result,) = ask(cluster, 1, one, 2).replica_election_results
        assert [p.error_code for p in result.partition_result] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


def test_a_broker_that_is_gone_for_good_is_unregistered() -> None:
    with a_cluster(seed=11) as cluster:
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        node.crash()
        at = cluster.await_controller().node_id
        early = ask(cluster, at, UnregisterBrokerRequest(broker_id=node.node_id), 0)
        assert early.error_code == ErrorCode.INVALID_REQUEST
        cluster.await_(lambda: fenced(cluster, node.node_id))
        assert ask(cluster, at, UnregisterBrokerRequest(broker_id=node.node_id), 0).error_code == ErrorCode.NONE
        assert cluster.await_controller().image.broker(node.node_id) is None
        again = ask(cluster, at, UnregisterBrokerRequest(broker_id=node.node_id), 0)
        assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        node.start()
        cluster.await_ready()


# -- roles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_controllers_and_brokers_may_be_different_nodes(seed: int) -> None:
    roles = [CONTROLLER] * 3 + [BROKER] * 2
    with a_cluster(5, seed=seed, roles=roles) as cluster:
        assert sorted(cluster.await_controller().image.brokers) == [4, 5]
        # Clients cannot reach a controller that is no broker: they are told of one that passes on what they ask.
        assert ask(cluster, 5, MetadataRequest(topics=[]), 12).controller_id == 5
        assert create(cluster, "t", at=5, replication_factor=2).error_code == ErrorCode.NONE
        old = cluster.await_controller()
        old.crash()
        assert create(cluster, "u", at=4, replication_factor=2).error_code == ErrorCode.NONE
        cluster.node(4).crash()
        cluster.await_(lambda: fenced(cluster, 4))
        assert state(cluster, "t").leader == 5
        old.start()
        cluster.node(4).start()
        cluster.await_ready()


def test_a_broker_joins_a_cluster_of_one() -> None:
    with a_cluster(1) as cluster:
        assert create(cluster, "t", replication_factor=1).error_code == ErrorCode.NONE
        more = cluster.add(BROKER)
        more.start()
        cluster.await_ready()
        assert create(cluster, "u", at=2, replication_factor=2).error_code == ErrorCode.NONE
        assert more.image.topic("t") is not None
        assert cluster.await_controller().served.quorum.core.voter_set.ids == (1,)


# -- who does not belong ---------------------------------------------------------------------------------------------


def test_a_node_of_another_cluster_is_refused_with_the_reason() -> None:
    with a_cluster() as cluster:
        stranger = cluster.add(BROKER)
        stranger.host.disk = disk_of_another_cluster(stranger.node_id)
        process = stranger.begin(watched=True)
        cluster.world.run_until(lambda: process.is_dead, 10_000)
        with pytest.raises(StartRefused, match="the data directory belongs to cluster"):
            process.result()
        assert sorted(cluster.await_controller().image.brokers) == [1, 2, 3]


def disk_of_another_cluster(node_id: int) -> SimDisk:
    with World("elsewhere") as world:
        cluster = SimCluster(world, node_id, roles=[BOTH, *[BROKER] * (node_id - 1)])
        cluster.node(1).start()
        cluster.node(node_id).start()
        cluster.node(node_id).stop()
        return cluster.node(node_id).host.disk


def test_two_clusters_do_not_become_one_by_configuration() -> None:
    with World(3) as world:
        first, second = (SimCluster(world, 1) for _ in range(2))
        first.start()
        other = SimCluster(world, 2)
        other.founders = [1]
        lone = other.node(2)
        lone.settings["controller.quorum.voters"] = "2@node-2:9192"
        lone.start()
        lone.stop()
        lone.settings["controller.quorum.voters"] = "1@node-1:9192,2@node-2:9192"
        process = lone.begin(watched=True)
        world.run_until(lambda: process.is_dead, 10_000)
        assert process.exit is not None
        assert "the data directory belongs to cluster" in f"{process.exit.reason} {process.exit.error}"
        assert second is not None


def test_a_voter_without_the_controller_role_does_not_start() -> None:
    with a_cluster() as cluster:
        node = next(node for node in cluster.nodes if not node.is_active_controller)
        node.stop()
        node.roles = BROKER
        others = [n.node_id for n in cluster.nodes if n is not node]
        node.settings["controller.quorum.voters"] = ",".join(f"{n}@node-{n}:9192" for n in others)
        process = node.begin(watched=True)
        cluster.world.run_until(lambda: process.is_dead, 10_000)
        with pytest.raises(StartRefused, match="needs the controller role"):
            process.result()
        node.ready = True


def test_a_second_node_with_a_living_nodes_id_is_refused() -> None:
    with a_cluster(settings={"initial.broker.registration.timeout.ms": "3000"}) as cluster:
        twin = cluster.add(BROKER, {"node.id": "2", "initial.broker.registration.timeout.ms": "3000"})
        twin.settings["controller.quorum.voters"] = "1@node-1:9192,3@node-3:9192"
        process = twin.begin(watched=True)
        cluster.world.run_until(lambda: process.is_dead, 60_000)
        with pytest.raises(Exception, match=r"another live broker uses the same node\.id"):
            process.result()
        assert not fenced(cluster, 2)
        cluster.nodes.remove(twin)

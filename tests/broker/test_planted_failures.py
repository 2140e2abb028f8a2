"""Bugs planted in background work: the node goes on, the failure is counted, and the work is done all the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from broker.clusters import ask, create, state
from broker.session import Session, batch, fetch_request, produce_request, run_session
from penstock.broker.apis.fetch import PendingFetch
from penstock.broker.chores import Chores
from penstock.broker.net.peer_channel import Channel
from penstock.broker.produce.parked import ParkedProduce
from penstock.broker.quorum import shell as quorum
from penstock.broker.quorum import wire as quorum_wire
from penstock.broker.quorum.controlling import ControllerDuties
from penstock.broker.quorum.shell import MetadataQuorum
from penstock.broker.registration import BrokerLifecycle
from penstock.broker.replicas.fetcher import Fetcher
from penstock.broker.replicas.isr_changes import IsrChanges
from penstock.log.trimming import Trimmer
from penstock.sim import World
from penstock.sim.cluster import SimCluster
from penstock.wire.errors import ErrorCode

TIMES = 2
SETTINGS = {"replica.lag.time.max.ms": "2000", "broker.session.timeout.ms": "2000"}


class Planted(LookupError):
    """Nobody expects it."""


class Plant:
    """Makes a function fail the first times it is called."""

    def __init__(self) -> None:
        self.armed = False
        self.hits = 0

    def bloom(self) -> None:
        if self.armed and self.hits < TIMES:
            self.hits += 1
            raise Planted("planted")

    def into(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        async def later(*args: Any, **more: Any) -> Any:
            self.bloom()
            return await function(*args, **more)

        def now(*args: Any, **more: Any) -> Any:
            self.bloom()
            return function(*args, **more)

        monkeypatch.setattr(owner, name, later if inspect.iscoroutinefunction(function) else now)


@contextmanager
def a_cluster_with(plant: Plant, seed: str) -> Iterator[SimCluster]:
    with World(seed) as world:
        cluster = SimCluster(world, 3, SETTINGS)
        cluster.start()
        assert create(cluster, "t").error_code == ErrorCode.NONE
        cluster.await_images()
        world.tolerate_errors = True
        plant.armed = True
        yield cluster
        assert plant.hits
        assert all(node.is_alive for node in cluster.nodes)


def produced(cluster: SimCluster) -> int:
    answer = ask(cluster, state(cluster, "t").leader, produce_request("t", batch(b"x"), acks=-1), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (BrokerLifecycle, "_heartbeat"),
        (IsrChanges, "_ask"),
        (Fetcher, "_exchange"),
        (Fetcher, "_take_one"),
        (ControllerDuties, "_is_refused"),
        (ControllerDuties, "_fence"),
        (Channel, "_greet"),
        (quorum_wire, "from_response"),
        (MetadataQuorum, "_note_progress"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_a_failure_in_what_nodes_do_with_each_other_passes(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = Plant()
    plant.into(monkeypatch, owner, name)
    with a_cluster_with(plant, f"planted-{name}") as cluster:
        assert produced(cluster) == ErrorCode.NONE
        follower = next(node for node in cluster.nodes if node.node_id != state(cluster, "t").leader)
        follower.crash()
        cluster.await_(lambda: len(state(cluster, "t").isr) == 2)
        follower.start()
        cluster.await_(lambda: len(state(cluster, "t").isr) == 3)
        assert produced(cluster) == ErrorCode.NONE
        assert create(cluster, "after").error_code == ErrorCode.NONE
        assert any("Planted" in str(error) for error in cluster.world.errors)


def test_a_log_that_could_not_be_cut_is_cut_when_the_leader_says_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = Plant()
    plant.into(monkeypatch, Trimmer, "truncate_to")
    with a_cluster_with(plant, "cut") as cluster:
        assert produced(cluster) == ErrorCode.NONE
        node = next(node for node in cluster.nodes if node.node_id != state(cluster, "t").leader)
        manager = node.served.manager
        partition = manager.table.by_name[b"t"][0]
        log, follower = partition.log, partition.follower
        assert log is not None
        assert follower is not None
        fetcher = manager.roles.fetchers._fetchers[follower.leader_id]
        follower.is_cutting = True
        node.process.deliver(lambda: fetcher._cut(partition, follower, 0, whole=False))
        cluster.await_(lambda: plant.hits == 1 and partition.cutting is None)
        assert log.end_offset == 1
        follower.is_cutting = True
        plant.hits = TIMES
        node.process.deliver(lambda: fetcher._cut(partition, follower, 0, whole=False))
        cluster.await_(lambda: partition.cutting is None and log.end_offset == 1 and not follower.is_cutting)
        assert produced(cluster) == ErrorCode.NONE
        cluster.await_(lambda: log.end_offset == 2)


def test_a_chore_that_fails_is_done_again() -> None:
    done: list[float] = []

    async def scenario(s: Session) -> None:
        s.world.tolerate_errors = True

        async def work() -> None:
            done.append(s.runtime.now_ms())
            if len(done) < 3:
                raise Planted("planted")

        chores = Chores(s.runtime)
        chores.add("a chore", work, lambda: 100.0)
        await s.runtime.sleep(450)
        chores.close()

    run_session(scenario)
    assert len(done) == 4


@pytest.mark.parametrize("name", ["_reached", "advanced"])
def test_a_failing_waiter_ends_only_its_own_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = Plant()
    if name == "_reached":
        plant.into(monkeypatch, ParkedProduce, name)
    else:
        plant.into(monkeypatch, PendingFetch, "_has_enough")

    async def scenario(s: Session) -> None:
        topic_id = await s.create("t")
        waiting = await s.connect()
        if name == "advanced":
            parked = waiting.send(fetch_request(topic_id, max_wait_ms=30_000, min_bytes=1_000), 13)
            await s.runtime.sleep(50)
            plant.hits, plant.armed = TIMES - 1, True
            assert (await s.produce("t", b"one")).error_code == ErrorCode.NONE
        else:
            plant.hits, plant.armed = TIMES - 1, True
            parked = waiting.send(produce_request("t", batch(b"one"), acks=-1), 9)
        with pytest.raises(ConnectionError):
            await parked
        assert plant.hits == TIMES
        assert (await s.produce("t", b"two")).error_code == ErrorCode.NONE
        assert s.node.broker is not None
        assert s.node.broker.metrics.unexpected_errors == 1
        s.node.broker.metrics.unexpected_errors = 0
        s.node.events.all.clear()

    run_session(scenario, {"log.flush.interval.messages": "1"})


def test_a_decision_that_cannot_be_encoded_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = Plant()
    plant.into(monkeypatch, quorum, "encode_metadata_record")
    with a_cluster_with(plant, "decision") as cluster:
        controller = cluster.await_controller()
        plant.hits = TIMES - 1
        with pytest.raises(ConnectionError):
            create(cluster, "new", at=controller.node_id)
        assert create(cluster, "new", at=controller.node_id).error_code == ErrorCode.NONE


def test_a_failing_image_condition_fails_only_its_own_caller() -> None:
    plant = Plant()
    told: list[str] = []

    def condition(image: object) -> bool:
        told.append("asked")
        if len(told) > 1:
            plant.bloom()
        return False

    with a_cluster_with(plant, "condition") as cluster:
        node = cluster.node(2)

        async def ask_for_it() -> None:
            with pytest.raises(Planted):
                await node.served.quorum.image_where(condition, 60_000)
            told.append("failed")

        node.process.deliver(lambda: node.process.runtime.spawn(ask_for_it(), "a request"))
        assert create(cluster, "new").error_code == ErrorCode.NONE
        cluster.await_(lambda: told[-1] == "failed")
        cluster.await_images()
        assert node.image.topic("new") is not None

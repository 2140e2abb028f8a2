"""The metadata of whole clusters under faults: what a client was told has happened, has happened, everywhere."""

from __future__ import annotations

from random import Random

import pytest

from broker.session import expect_no_surprise
from penstock.metadata import snapshot_values as image_values
from penstock.sim import SimRuntime, World
from penstock.sim.cluster import BROKER, CONTROLLER, SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.sampling import some

STEPS = 14
CALM_MS = 20_000


def mayhem(cluster: SimCluster, rng: Random) -> None:
    """One fault, or the end of some. At most one node of three is down at a time, most of the time."""
    node = rng.choice(cluster.nodes)
    down = [one for one in cluster.nodes if not one.is_alive]
    fault = rng.choice(("crash", "power", "pause", "cut", "one way", "reset", "stop", "wake", "wake", "wake"))
    if fault == "wake" or (down and fault in ("crash", "power", "stop")):
        cluster.heal_all()
        for one in cluster.nodes:
            one.resume()
        for one in down:
            one.begin()
    elif fault == "crash":
        node.crash()
    elif fault == "power":
        node.power_loss()
    elif fault == "stop":
        node.host.stop()
    elif fault == "pause":
        node.pause()
    elif fault == "cut":
        node.isolate()
    elif fault == "one way":
        other = rng.choice([one for one in cluster.nodes if one is not node])
        cluster.cut(node.node_id, other.node_id, one_way=True)
    else:
        cluster.world.network.reset_connections(node.name)


@pytest.mark.parametrize("seed", some(range(6), usual=(1, 5)))
@pytest.mark.parametrize("roles", [None, [CONTROLLER] * 3 + [BROKER] * 2], ids=["combined", "apart"])
def test_no_decision_is_lost_or_made_twice(seed: int, roles: list[str] | None) -> None:
    rng = Random(f"chaos-{seed}")
    created: list[str] = []
    leaders: dict[int, int] = {}
    with World(f"chaos-{seed}") as world:
        cluster = SimCluster(
            world, len(roles) if roles else 3, {"metadata.log.max.record.bytes.between.snapshots": "3000"}, roles=roles
        )
        cluster.start()
        stopped = False

        async def client(runtime: SimRuntime) -> None:
            number = 0
            brokers = [node for node in cluster.nodes if node.is_broker]
            while not stopped:
                number += 1
                name = f"t{number}"
                node = brokers[number % len(brokers)]
                request = CreateTopicsRequest(
                    topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=5_000
                )
                try:
                    connection = await cluster.connect(runtime, node.node_id)
                    # A machine without power does not even say that it is gone.
                    patience = runtime.call_later(40_000, connection.frames.abort)
                    (result,) = (await connection.call(request, 7)).topics
                    patience.cancel()
                    connection.close()
                    if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        created.append(name)
                except OSError:
                    pass
                await runtime.sleep(150)

        def watch() -> None:
            for node in cluster.nodes:
                if node.is_active_controller:
                    core = node.served.quorum.core
                    assert leaders.setdefault(core.epoch, node.node_id) == node.node_id, "two leaders in one epoch"

        process = world.host("client").start(client)
        for _ in range(STEPS):
            mayhem(cluster, rng)
            for _ in range(10):
                world.run(rng.choice((5, 30, 150, 400)))
                watch()
        cluster.heal_all()
        for node in cluster.nodes:
            node.resume()
            if not node.is_alive:
                node.begin()
        cluster.await_ready()
        stopped = True
        world.run_until(lambda: process.is_dead, 60_000)
        world.run(CALM_MS)
        cluster.await_images()
        assert len(created) > 5
        for node in cluster.nodes:
            expect_no_surprise(node)
            missing = [name for name in created if node.image.topic(name) is None]
            assert not missing, f"{node.name} does not know {missing}"
            for ended in node.host.exits:
                assert not ended.reason.startswith("fatal"), f"{node.name}: {ended.reason}"
        contents = {tuple(image_values(node.image)) for node in cluster.nodes}
        assert len(contents) == 1

"""A start is interrupted at every disk operation: a later start finds everything."""

from __future__ import annotations

from contextlib import suppress

import pytest

from broker.session import Session, expect_no_surprise, is_recovered
from penstock.broker.starting import StartRefused
from penstock.runtime import DirectoryInUse
from penstock.sim import ProcessEnded, SimRuntime, SimulatedCrash, World
from penstock.sim.broker import SimBroker
from penstock.wire.messages.metadata import MetadataRequest

CRASHES_MAX = 500


def start(node: SimBroker) -> bool:
    """Start the broker; returns whether it began to serve."""
    process = node.begin(watched=True)
    node.world.run_until(lambda: node.ready or process.is_dead)
    if process.is_dead:
        assert isinstance(process.exit and process.exit.error, SimulatedCrash), process.exit
    return node.ready


async def use(s: Session, name: str) -> None:
    assert (await s.try_create(name)).error_code == 0
    await s.alter(name, flush_messages="1")
    assert (await s.produce(name, b"value")).error_code == 0


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_a_new_directory_survives_a_crash_at_any_operation_of_its_first_start(power_loss: bool) -> None:
    for operation in range(1, CRASHES_MAX):
        with World(f"format-{operation}") as world:
            node = SimBroker(world)
            node.host.disk.crash_after(operation)
            if start(node):
                node.host.disk.cancel_crash()
                assert operation > 10
                return
            if power_loss:
                node.host.power_loss()
            node.start()
            world.execute(lambda runtime, node=node: _use_and_check(runtime, node))
            node.restart(power_loss=True)
            world.execute(lambda runtime, node=node: _check(runtime, node))
            expect_no_surprise(node)
    raise AssertionError("it never got to start")


async def _use_and_check(runtime: SimRuntime, node: SimBroker) -> None:
    s = await Session.open(runtime, node)
    await use(s, "t")
    await _check(runtime, node)


async def _check(runtime: SimRuntime, node: SimBroker) -> None:
    s = await Session.open(runtime, node)
    await s.until(lambda: is_recovered(node))
    answer = await s.call(MetadataRequest(topics=None))
    assert answer.cluster_id
    assert [topic.name for topic in answer.topics] == ["t"]
    assert await s.values("t") == [b"value"]


@pytest.mark.parametrize("stop", ["clean", "kill", "power loss"])
def test_a_directory_with_data_survives_a_crash_at_any_operation_of_a_later_start(stop: str) -> None:
    for operation in range(1, CRASHES_MAX):
        with World(f"{stop}-{operation}") as world:
            node = SimBroker(world)
            node.start()
            cluster = node.served.node.cluster_id
            world.execute(lambda runtime, node=node: _use_and_check(runtime, node))
            if stop == "clean":
                node.stop()
            elif stop == "kill":
                node.host.kill()
            else:
                node.host.power_loss()
            node.host.disk.crash_after(operation)
            if start(node):
                world.run(100)
            if not node.process.is_dead:
                node.host.disk.cancel_crash()
                assert operation > 5
                return
            if operation % 2:
                node.host.power_loss()
            node.start()
            assert node.served.node.cluster_id == cluster
            world.execute(lambda runtime, node=node: _check(runtime, node))
            expect_no_surprise(node)
    raise AssertionError("it never got to start")


def test_a_crash_while_it_stops_is_an_unclean_stop() -> None:
    for operation in range(1, CRASHES_MAX):
        with World(f"stop-{operation}") as world:
            node = SimBroker(world)
            node.start()
            world.execute(lambda runtime, node=node: _use_and_check(runtime, node))
            node.host.disk.crash_after(operation)
            node.process.is_watched = True
            node.host.stop()
            world.run_until(lambda node=node: node.process.is_dead)
            with suppress(SimulatedCrash):
                node.process.result()
                node.host.disk.cancel_crash()
                assert operation > 5
                return
            if operation % 2:
                node.host.power_loss()
            node.start()
            world.execute(lambda runtime, node=node: _check(runtime, node))
            expect_no_surprise(node)
    raise AssertionError("it never got to stop")


# ---- what is refused at the start


def refusal(node: SimBroker) -> Exception:
    process = node.begin(watched=True)
    node.world.run_until(lambda: node.ready or process.is_dead)
    assert not node.ready
    assert process.exit is not None
    assert isinstance(process.exit.error, Exception)
    return process.exit.error


def test_a_directory_of_another_node_is_refused() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()
        node.stop()
        node.settings["node.id"] = "2"
        error = refusal(node)
        assert isinstance(error, StartRefused)
        assert "node.id" in str(error) or "node id" in str(error)
        node.settings["node.id"] = "1"
        node.start()


def test_a_directory_that_is_no_data_directory_is_refused_and_left_alone() -> None:
    with World(1) as world:
        node = SimBroker(world)

        async def litter(runtime: SimRuntime) -> None:
            runtime.disk.open("holiday.jpg", create=True).pwrite(b"beach", 0)

        world.execute(litter, host="broker")
        error = refusal(node)
        assert isinstance(error, StartRefused)
        assert "holiday.jpg" in str(error)
        assert node.host.disk.content("holiday.jpg") == b"beach"


def test_a_directory_that_is_in_use_is_refused() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()
        other = SimBroker(world, name="other")
        other.host.disk = node.host.disk
        process = node.process
        # The lock is the disk's; a second machine that mounts it finds it taken.
        locks = dict(node.host.disk.locks)
        other_process = other.begin(watched=True)
        node.host.disk.locks.update(locks)
        world.run_until(lambda: other.ready or other_process.is_dead)
        assert other_process.exit is not None
        assert isinstance(other_process.exit.error, DirectoryInUse)
        assert not process.is_dead


def test_a_port_that_is_in_use_is_found_before_anything_is_written() -> None:
    with World(1) as world:
        node = SimBroker(world)

        async def squatter(runtime: SimRuntime) -> None:
            from penstock.sim import FrameClient

            await runtime.listen("broker", 9092, lambda: FrameClient(runtime))
            disk = runtime.disk
            broker = node
            with pytest.raises(OSError, match="in use"):
                await broker._main(runtime)
            assert disk.list("") == [".lock"]

        world.execute(squatter, host="broker")


def test_damaged_meta_properties_are_refused() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()
        node.stop()

        async def damage(runtime: SimRuntime) -> None:
            runtime.disk.open("meta.properties").truncate(0)

        world.execute(damage, host="broker")
        error = refusal(node)
        assert isinstance(error, StartRefused), error
        assert "meta.properties" in str(error)


def test_nobody_is_answered_by_a_process_that_has_ended() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()
        node.host.kill()
        with pytest.raises(ProcessEnded):
            node.process.result()

"""Groups that go on while the broker is killed, loses power, stands still and drops connections."""

from __future__ import annotations

from random import Random

import pytest

from broker.group_load import GroupLoad
from broker.group_session import ready
from broker.session import Session, expect_no_surprise, is_recovered
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker

FAULTS = 6
COMMITS = 40
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "10",
    "log.flush.offset.checkpoint.interval.ms": "200",
}


def under_faults(seed: int, *, power_loss: bool) -> None:
    """Members of both protocols, alone and in company, until each has made its commits; then they are read back."""
    rng = Random(f"{seed}-{power_loss}")
    settings = {**SETTINGS, **({"log.flush.interval.messages": "1"} if power_loss else {})}
    with World(seed) as world:
        node = SimBroker(world, settings)
        node.start()

        async def main(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.create("t", 2)
            alone = [
                GroupLoad(runtime, node, "t", f"alone-{number}", Random(rng.random()), COMMITS, classic=number % 2 == 0)
                for number in range(4)
            ]
            company = [
                GroupLoad(runtime, node, "t", f"company-{kind}", Random(rng.random()), 10, classic=kind == 0)
                for kind in (0, 1) * 3
            ]
            tasks = [runtime.spawn(one.run(), "member") for one in (*alone, *company)]
            for _ in range(FAULTS):
                await runtime.sleep(50 + rng.random() * 300)
                await fault(runtime)
            for task in tasks:
                await task
            await s.until(lambda: is_recovered(node))
            await s.reconnect()
            for one in alone:
                await ready(s, one.group)
                await one.check(s.client)
            assert sum(one.rejoined for one in alone) > len(alone), "the faults were felt"

        async def fault(runtime: SimRuntime) -> None:
            kind = rng.randrange(4)
            if kind == 0:
                world.network.reset_connections("broker")
            elif kind == 1:
                node.host.pause()
                await runtime.sleep(rng.random() * 10_000)
                node.host.resume()
            else:
                node.host.power_loss() if power_loss else node.host.kill()
                await runtime.sleep(rng.random() * 50)
                node.begin()

        world.execute(main)
        expect_no_surprise(node)
        assert not node.events.named("coordinator restarts")
        assert not node.events.named("coordinator not loaded")
        node.stop()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_what_members_were_told_is_committed_stays_so(power_loss: bool, seed: int) -> None:
    under_faults(seed, power_loss=power_loss)

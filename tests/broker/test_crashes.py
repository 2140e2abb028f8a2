"""Kill and power loss under load: acknowledged records are stored once, in order; records that were read remain."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from broker.load import IdempotentProducer, PlainProducer, Reader
from broker.session import Session, batch, expect_no_surprise, is_recovered, produce_request, run_session
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.wire.errors import ErrorCode

RECORDS = 60
CRASHES = 4
PARTITIONS = 2

SETTINGS: dict[str, dict[str, str]] = {
    "no flush": {},
    "flush.messages=1": {"flush.messages": "1"},
    "flush.messages=7": {"flush.messages": "7"},
    "flush.ms=10": {"flush.ms": "10"},
    "small segments": {"internal.segment.bytes": "700", "index.interval.bytes": "100"},
}


def under_load(seed: int, configs: dict[str, str], *, power_loss: bool, idempotent: bool, acks: int) -> None:
    """Producers and a reader run to their end while the broker crashes; then every record is checked."""
    rng = Random(f"{seed}-{configs}-{power_loss}-{idempotent}")
    with World(seed) as world:
        node = SimBroker(world, {"log.flush.offset.checkpoint.interval.ms": "200"})
        node.start()

        async def main(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.create("t", partitions=PARTITIONS, **configs)
            kind: Any = IdempotentProducer if idempotent else PlainProducer
            producers = [
                kind(runtime, node, f"p{number}", "t", number % PARTITIONS, Random(rng.random()), RECORDS, acks)
                for number in range(4)
            ]
            readers = [Reader(runtime, node, "t", partition) for partition in range(PARTITIONS)]
            tasks = [runtime.spawn(one.run(), "load") for one in (*producers, *readers)]
            for _ in range(CRASHES):
                await runtime.sleep(20 + rng.random() * 120)
                node.host.power_loss() if power_loss else node.host.kill()
                await runtime.sleep(rng.random() * 50)
                node.begin()
            for _ in range(600):
                if all(producer.is_done for producer in producers):
                    break
                await runtime.sleep(100)
            await s.until(lambda: is_recovered(node))
            for reader in readers:
                reader.stop = True
            for task in tasks:
                await task
            await s.reconnect()
            await account(s, producers, readers, idempotent)

        world.execute(main)
        expect_no_surprise(node)


async def account(s: Session, producers: list[Any], readers: list[Reader], idempotent: bool) -> None:
    for partition in range(PARTITIONS):
        records = await s.records("t", partition)
        assert [record.offset for record in records] == list(range(len(records)))
        found = {record.offset: record.value for record in records}
        for offset, value in readers[partition].seen.items():
            assert found.get(offset) == value, f"{value!r} was read at {offset} and is gone"
        for producer in producers:
            if producer.partition != partition:
                continue
            prefix = producer.name.encode() + b"-"
            mine = [record.value or b"" for record in records if (record.value or b"").startswith(prefix)]
            assert mine == sorted(mine), "order is kept"
            if idempotent:
                assert len(mine) == RECORDS, "each once, and all of them"
                assert len(set(mine)) == RECORDS
            for value, offset in producer.acknowledged.items():
                assert found.get(offset) == value, f"{value!r} was acknowledged at {offset} and is gone"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SETTINGS)
def test_a_kill_loses_nothing_that_was_acknowledged_in_any_setting(name: str, seed: int) -> None:
    under_load(seed, SETTINGS[name], power_loss=False, idempotent=seed % 2 == 0, acks=1 if seed == 1 else -1)


@pytest.mark.parametrize("seed", range(8))
def test_a_power_loss_loses_nothing_that_was_acknowledged_with_flush_messages_1(seed: int) -> None:
    configs = {"flush.messages": "1"} | (SETTINGS["small segments"] if seed % 2 else {})
    under_load(seed, configs, power_loss=True, idempotent=seed % 4 != 3, acks=-1 if seed % 3 else 1)


# ---- the leader's epoch


@pytest.mark.parametrize(("how", "epochs"), [("clean", [0, 0, 0]), ("kill", [0, 1, 2]), ("power loss", [0, 1, 2])])
def test_the_leader_epoch_counts_unclean_restarts_and_no_others(how: str, epochs: list[int]) -> None:
    async def scenario(s: Session) -> None:
        await s.create("t", flush_messages="1")
        found = []
        for _ in epochs:
            found.append((await s.describe("t")).partitions[0].leader_epoch)
            await s.produce("t", b"x")
            if how == "clean":
                s.node.host.stop()
                await s.until(lambda: s.node.process.is_dead)
                await s.started()
            else:
                await s.restarted(power_loss=how == "power loss")
        assert found == epochs
        assert len(await s.records("t")) == len(epochs)

    run_session(scenario)


# ---- a sync that fails


@pytest.mark.parametrize("acks", [1, -1])
def test_after_a_failed_sync_nothing_is_acknowledged_and_the_process_ends(acks: int) -> None:
    async def scenario(s: Session) -> None:
        await s.create("t", flush_messages="1")
        await s.create("other")
        assert (await s.produce("t", b"safe", acks=acks)).error_code == 0
        s.node.host.disk.fail_next_syncs(1, path_contains="t-0/")
        other = await s.connect()
        answers = [s.client.send(produce_request("t", batch(b"lost?"), acks=acks), 12) for _ in range(3)]
        behind = other.send(produce_request("t", batch(b"lost too?"), acks=acks), 12)
        for answer in (*answers, behind):
            with pytest.raises(ConnectionError):
                await answer
        assert s.node.process.exit is not None
        assert "sync failed" in s.node.process.exit.reason
        await s.restarted(power_loss=True)
        assert (await s.values("t"))[:1] == [b"safe"]
        assert (await s.produce("t", b"again")).error_code == 0

    run_session(scenario)


@pytest.mark.parametrize("path", ["__cluster_metadata-0/0", "quorum-state"])
def test_after_a_failed_sync_of_the_metadata_nothing_is_acknowledged_and_the_process_ends(path: str) -> None:
    async def scenario(s: Session) -> None:
        await s.create("before")
        s.node.host.disk.fail_next_syncs(1, path_contains=path)
        if path == "quorum-state":
            s.node.host.stop()
            await s.until(lambda: s.node.process.is_dead)
            process = s.node.begin(watched=True)
            await s.until(lambda: process.is_dead or s.node.ready)
        else:
            with pytest.raises(ConnectionError):
                await s.try_create("t")
        assert s.node.process.is_dead
        await s.restarted(power_loss=True)
        assert "before" in await s.topics()

    run_session(scenario)


def test_a_full_disk_ends_the_process_and_loses_nothing_that_was_acknowledged() -> None:
    async def scenario(s: Session) -> None:
        await s.create("t")
        await s.produce("t", b"first")
        s.node.host.disk.fill(5_000)
        acknowledged = 1
        with suppress(ConnectionError):
            while acknowledged < 100:
                assert (await s.produce("t", bytes(500))).error_code == 0
                acknowledged += 1
        assert s.node.process.exit is not None
        assert "no space left" in s.node.process.exit.reason
        s.node.host.disk.capacity_bytes += 1_000_000
        await s.started()
        assert len(await s.records("t")) == acknowledged
        assert (await s.produce("t", b"more")).error_code == ErrorCode.NONE

    run_session(scenario)

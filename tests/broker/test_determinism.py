"""A seed decides everything: the whole broker, its clients and its crashes give the same trace in every process.

Each seed runs twice, in processes of their own with different `PYTHONHASHSEED`. Where two runs differ,

    python tests/broker/test_determinism.py SEED FILE

writes the trace; the first line in which two of them differ shows the leak.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, TextIO

import pytest

TESTS = Path(__file__).parent.parent
SOURCE = TESTS.parent / "src"
sys.path[:0] = [str(TESTS)] if str(TESTS) not in sys.path else []

from broker.group_load import GroupLoad  # noqa: E402
from broker.load import IdempotentProducer, PlainProducer, Reader, connect  # noqa: E402
from broker.session import Session, is_recovered  # noqa: E402
from penstock.sim import SimRuntime, World  # noqa: E402
from penstock.sim.broker import SimBroker  # noqa: E402
from penstock.sim.fuzz.frames import random_frame, with_length  # noqa: E402

SEEDS = range(4)
HASH_SEEDS = ("0", "4242")
RUN_LIMIT_S = 100
CRASHES = 3


def run(seed: int, trace_to: TextIO | None = None) -> str:
    """Scripted and random traffic from several machines, with crashes; the digest of everything that happened."""
    rng = Random(f"determinism-{seed}")
    with World(seed, trace_to=trace_to) as world:
        settings = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "10"}
        node = SimBroker(world, {"log.flush.offset.checkpoint.interval.ms": "100", **settings})
        node.start()

        async def load(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            for name, flush in (("synced", "1"), ("lazy", "1000")):
                await s.create(name, partitions=2, flush_messages=flush, **{"internal.segment.bytes": "3000"})
            producers = [
                IdempotentProducer(runtime, node, "p", "synced", 0, Random(rng.random()), 30),
                IdempotentProducer(runtime, node, "q", "synced", 1, Random(rng.random()), 30),
                PlainProducer(runtime, node, "r", "lazy", 0, Random(rng.random()), 40),
            ]
            readers = [Reader(runtime, node, "synced", number) for number in (0, 1)]
            members = [
                GroupLoad(runtime, node, "synced", group, Random(rng.random()), 15, classic=group == "classic")
                for group in ("classic", "classic", "consumer", "consumer")
            ]
            loads: list[Any] = [*producers, *members]
            tasks = [runtime.spawn(one.run(), "load") for one in (*loads, *readers)]
            while not all(one.is_done for one in loads):
                await runtime.sleep(50)
            for reader in readers:
                reader.stop = True
            for task in tasks:
                await task

        async def noise(runtime: SimRuntime) -> None:
            """Random requests, most of them nonsense."""
            for _ in range(60):
                client = await connect(runtime, node)
                client.frames.send_raw(with_length(random_frame(rng, {"x": bytes(16)}, harmless=True)))
                await runtime.sleep(rng.random() * 20)
                client.frames.abort()

        async def faults(runtime: SimRuntime) -> None:
            for _ in range(CRASHES):
                await runtime.sleep(50 + rng.random() * 150)
                fault = rng.randrange(4)
                if fault == 0:
                    node.host.kill()
                elif fault == 1:
                    node.host.power_loss()
                elif fault == 2:
                    world.network.reset_connections("broker")
                    continue
                else:
                    node.host.pause()
                    await runtime.sleep(rng.random() * 100)
                    node.host.resume()
                    continue
                await runtime.sleep(rng.random() * 50)
                node.begin()

        processes = [
            world.host(name).start(main) for name, main in (("load", load), ("noise", noise), ("faults", faults))
        ]
        world.run_until(lambda: all(process.is_dead for process in processes), 600_000)
        for process in processes:
            process.result()
        world.run_until(lambda: is_recovered(node))
        node.stop()
        return f"{world.digest()} {world.events}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_run_in_every_process(seed: int) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, __file__, str(seed)],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in HASH_SEEDS
    ]
    digests = [run.communicate(timeout=RUN_LIMIT_S)[0] for run in runs]
    assert all(run.returncode == 0 for run in runs)
    assert digests[0]
    assert len(set(digests)) == 1, f"seed {seed} depends on more than the seed"


def test_different_seeds_give_different_runs() -> None:
    assert run(100) != run(101)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            print(run(int(sys.argv[1]), file))
    else:
        print(run(int(sys.argv[1])))

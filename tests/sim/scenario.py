"""A small cluster under every fault the simulator knows; prints the digest of a run. `python scenario.py SEED`"""

from __future__ import annotations

import sys
from asyncio import BaseTransport, BufferedProtocol
from collections.abc import Callable
from random import Random
from typing import Any, cast

from penstock.runtime import Runtime, Transport
from penstock.sim import FrameClient, Host, SimRuntime, World

PORT = 9092
SERVERS = ("alpha", "beta", "gamma")
DURATION_MS = 10_000


class Session(BufferedProtocol):
    """Stores every byte it gets and sends it back once it is synced."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.transport: Transport
        self.buffer = bytearray(512)

    def connection_made(self, transport: BaseTransport) -> None:
        self.transport = cast(Transport, transport)

    def get_buffer(self, sizehint: int) -> Any:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.runtime.spawn(self.store(bytes(self.buffer[:nbytes])), "store")

    async def store(self, data: bytes) -> None:
        file = self.runtime.disk.open("data", create=True)
        try:
            file.pwrite(data, file.size())
            await file.sync()
        except OSError as error:
            self.runtime.fatal("cannot store", error)
        if not self.transport.is_closing():
            self.transport.write(data)


async def serve(runtime: Runtime) -> None:
    await runtime.listen("", PORT, lambda: Session(runtime))
    while True:
        await runtime.sleep(runtime.rng.uniform(50, 150))
        try:
            await runtime.disk.replace_bytes("uuid", runtime.uuid())
        except OSError as error:
            runtime.fatal("cannot store", error)


async def ask(runtime: SimRuntime) -> None:
    answers = dict.fromkeys(SERVERS, 0)
    while True:
        name = runtime.rng.choice(SERVERS)
        try:
            client = await FrameClient.connect(runtime, name, PORT)
            for _ in range(runtime.rng.randint(1, 20)):
                client.send(runtime.rng.randbytes(runtime.rng.randint(1, 2000)))
                await runtime.sleep(runtime.rng.random() * 20)
            answers[name] += len(await client.receive())
            client.close()
        except OSError:
            await runtime.sleep(100)


async def break_things(runtime: SimRuntime) -> None:
    while True:
        await runtime.sleep(runtime.rng.uniform(50, 500))
        host = runtime.world.host(runtime.rng.choice(SERVERS))
        runtime.rng.choice(faults_of(host, runtime.rng))()
        await runtime.sleep(runtime.rng.uniform(50, 500))
        runtime.world.network.heal_all()
        host.resume()
        host.restart()


def faults_of(host: Host, rng: Random) -> list[Callable[[], object]]:
    network = host.world.network
    return [
        host.kill,
        host.power_loss,
        host.pause,
        host.disk.fail_next_syncs,
        lambda: network.cut(host.name, "client", one_way=rng.random() < 0.5),
        lambda: network.reset_connections(host.name, count=2),
        lambda: network.slow(host.name, "client", rng.uniform(0.1, 50)),
        lambda: host.jump_wall_clock(rng.uniform(-1000, 1000)),
        lambda: setattr(host.disk, "slowness", rng.choice([1, 10, 50])),
    ]


def run_scenario(seed: int) -> World:
    with World(seed) as world:
        for name in SERVERS:
            world.host(name).start(serve)
        world.host("client").start(ask)
        world.host("nemesis").start(break_things)
        world.run(DURATION_MS)
        return world


if __name__ == "__main__":
    print(run_scenario(int(sys.argv[1])).digest())

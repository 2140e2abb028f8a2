"""Cuts, resets, deaths and delays, as a client and a server live through them."""

from __future__ import annotations

from asyncio import BaseTransport, BufferedProtocol
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from penstock.runtime import Runtime, Transport
from penstock.sim import FrameClient, SimRuntime, World

PORT = 9092


class Echo(BufferedProtocol):
    def __init__(self) -> None:
        self.transport: Transport
        self.buffer = bytearray(4096)

    def connection_made(self, transport: BaseTransport) -> None:
        self.transport = cast(Transport, transport)

    def get_buffer(self, sizehint: int) -> Any:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


async def serve(runtime: Runtime) -> None:
    await runtime.listen("0.0.0.0", PORT, Echo)
    await runtime.future()


@pytest.fixture(params=range(5))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(seed=request.param) as world:
        world.host("server").start(serve)
        world.run(1)
        yield world


def later(runtime: SimRuntime, delay_ms: float, action: Callable[[], object]) -> None:
    """Something befalls the world, whatever the process does."""
    runtime.world.after(delay_ms, action)


async def connect(runtime: Runtime) -> FrameClient:
    return await FrameClient.connect(runtime, "server", PORT)


def test_hosts_reach_each_other_by_name(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        connection = await connect(runtime)
        assert await connection.request(b"hello") == b"hello"
        assert connection.transport is not None
        assert connection.transport.get_extra_info("peername") == ("server", PORT)

    world.execute(client)


def test_unknown_hosts_foreign_addresses_and_dead_ports(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        with pytest.raises(OSError, match="not known"):
            await FrameClient.connect(runtime, "nowhere", PORT)
        with pytest.raises(ConnectionRefusedError):
            await FrameClient.connect(runtime, "server", 1)
        with pytest.raises(ConnectionRefusedError):
            await FrameClient.connect(runtime, "localhost", PORT)
        with pytest.raises(OSError, match="not an address"):
            await runtime.listen("server", PORT, Echo)

    world.execute(client)


def test_a_cut_delays_bytes_and_loses_none(world: World) -> None:
    async def client(runtime: SimRuntime) -> float:
        connection = await connect(runtime)
        await connection.request(b"before")
        runtime.world.network.cut("client", "server")
        later(runtime, 5_000, lambda: runtime.world.network.heal("client", "server"))
        began_ms = runtime.now_ms()
        assert await connection.request(b"during") == b"during"
        return runtime.now_ms() - began_ms

    assert 5_000 <= world.execute(client) < 15_000


def test_a_one_way_cut_stops_answers_only(world: World) -> None:
    class Counter(Echo):
        received = 0

        def buffer_updated(self, nbytes: int) -> None:
            Counter.received += nbytes
            super().buffer_updated(nbytes)

    async def count(runtime: Runtime) -> None:
        await runtime.listen("", PORT, Counter)
        await runtime.future()

    async def client(runtime: SimRuntime) -> None:
        connection = await FrameClient.connect(runtime, "counter", PORT)
        runtime.world.network.cut("counter", "client", one_way=True)
        connection.send(b"one way")
        answer = connection.receive()
        await runtime.sleep(3_000)
        assert Counter.received == 11
        assert not answer.done()
        runtime.world.network.heal("counter", "client", one_way=True)
        assert await answer == b"one way"

    world.host("counter").start(count)
    world.run(1)
    world.execute(client)


def test_a_long_cut_ends_the_connection_of_whoever_sends(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        sender, idler = await connect(runtime), await connect(runtime)
        runtime.world.network.isolate("server")
        with pytest.raises(ConnectionError):
            await sender.request(b"anyone?")
        assert isinstance(sender.lost_error, TimeoutError)
        assert not idler.is_lost
        with pytest.raises(TimeoutError):
            await connect(runtime)
        runtime.world.network.heal_all()
        assert await idler.request(b"still there") == b"still there"

    world.execute(client)


def test_groups_are_parted(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        runtime.world.network.partition(["client"], ["server"])
        with pytest.raises(TimeoutError):
            await connect(runtime)
        runtime.world.network.heal_all()
        await connect(runtime)

    world.execute(client)


def test_the_death_of_a_process_ends_its_connections(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        connection = await connect(runtime)
        later(runtime, 10, runtime.world.host("server").kill)
        await connection.closed()
        with pytest.raises(ConnectionRefusedError):
            await connect(runtime)
        runtime.world.host("server").restart()
        await runtime.sleep(100)
        assert await (await connect(runtime)).request(b"again") == b"again"

    world.execute(client)


def test_a_power_loss_is_silent_until_the_host_is_back(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        connection, idler = await connect(runtime), await connect(runtime)
        later(runtime, 0, runtime.world.host("server").power_loss)
        await runtime.sleep(1_000)
        assert not connection.is_lost
        connection.send(b"anyone?")
        runtime.world.host("server").restart(delay_ms=2_000)
        with pytest.raises(ConnectionResetError):
            await connection.receive()
        assert not idler.is_lost

    world.execute(client)


def test_reset_connections(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        connections = [await connect(runtime) for _ in range(4)]
        later(runtime, 0, lambda: runtime.world.network.reset_connections("server", count=3))
        await runtime.sleep(100)
        lost = [connection for connection in connections if connection.is_lost]
        assert len(lost) == 3
        assert all(isinstance(connection.lost_error, ConnectionResetError) for connection in lost)
        for connection in connections:
            if not connection.is_lost:
                assert await connection.request(b"spared") == b"spared"

    world.execute(client)


def test_a_slow_link_is_slow(world: World) -> None:
    async def client(runtime: SimRuntime) -> float:
        connection = await connect(runtime)
        runtime.world.network.slow("client", "server", 500.0)
        began_ms = runtime.now_ms()
        await connection.request(b"slow")
        return runtime.now_ms() - began_ms

    assert 1_000 <= world.execute(client) < 1_100


def test_a_paused_server_holds_back_its_clients(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        connection = await connect(runtime)
        runtime.world.host("server").pause()
        late = await connect(runtime)
        assert connection.transport is not None
        answers = []
        for _ in range(10):
            connection.send(b"x" * 100_000)
            answers.append(connection.receive())
        await runtime.sleep(1_000)
        assert connection.transport.get_write_buffer_size() > 0
        assert not answers[0].done()
        runtime.world.host("server").resume()
        for answer in answers:
            assert len(await answer) == 100_000
        assert await late.request(b"accepted late") == b"accepted late"

    world.execute(client)


def test_a_cancelled_connect_leaves_no_connection(world: World) -> None:
    async def client(runtime: SimRuntime) -> int:
        for delay_ms in range(5):
            task = runtime.spawn(connect(runtime), "connect")
            await runtime.sleep(delay_ms / 5)
            task.cancel()
        await runtime.sleep(100)
        server = runtime.world.host("server").process
        assert server is not None
        return len(server.transports) - len(runtime.process.transports)

    assert world.execute(client) == 0


def test_bytes_come_in_pieces_of_every_size() -> None:
    sizes: list[int] = []

    class Sizes(Echo):
        def buffer_updated(self, nbytes: int) -> None:
            sizes.append(nbytes)

    async def server(runtime: Runtime) -> None:
        await runtime.listen("", PORT, Sizes)
        await runtime.future()

    async def client(runtime: SimRuntime) -> None:
        connection = await connect(runtime)
        for _ in range(300):
            connection.send_raw(b"0123456789")
            await runtime.sleep(0.2)
        await runtime.sleep(100)

    with World(seed=1) as world:
        world.host("server").start(server)
        world.run(1)
        world.execute(client)
    assert sum(sizes) == 3000
    assert any(size < 10 for size in sizes), "split"
    assert any(size > 10 for size in sizes), "merged"

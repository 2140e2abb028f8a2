"""What both networks promise to a `BufferedProtocol`: the simulator must not be kinder than uvloop."""

from __future__ import annotations

import errno
from asyncio import BaseTransport, BufferedProtocol
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from penstock.runtime import Future, Runtime, Transport
from penstock.sim import FrameClient

RunOn = Callable[..., Any]

HOST = "127.0.0.1"


class Recorder(BufferedProtocol):
    """Keeps what happens to it. Subclasses answer."""

    def __init__(self, runtime: Runtime) -> None:
        self.transport: Transport
        self.runtime = runtime
        self.received = bytearray()
        self.happened: list[str] = []
        self.lost: Future[Exception | None] = runtime.future()
        self.buffer = bytearray(1000)

    def connection_made(self, transport: BaseTransport) -> None:
        self.transport = cast(Transport, transport)
        self.happened.append("made")

    def get_buffer(self, sizehint: int) -> Any:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += memoryview(self.buffer)[:nbytes]

    def eof_received(self) -> bool:
        self.happened.append("eof")
        return False

    def pause_writing(self) -> None:
        self.happened.append("pause")

    def resume_writing(self) -> None:
        self.happened.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.happened.append("lost")
        self.lost.set_result(exc)


class Echo(Recorder):
    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


class Pair:
    """Two connected recorders."""

    def __init__(self, near: Recorder, far: Recorder) -> None:
        self.near = near
        self.far = far


async def connect(runtime: Runtime, near: type[Recorder] = Recorder, far: type[Recorder] = Recorder) -> Pair:
    accepted: Future[Recorder] = runtime.future()

    def accept() -> Recorder:
        protocol = far(runtime)
        accepted.set_result(protocol)
        return protocol

    listener = await runtime.listen(HOST, 0, accept)
    client = await runtime.connect(HOST, listener.port, lambda: near(runtime))
    server = await accepted
    await until(runtime, lambda: "made" in server.happened)
    listener.close()
    return Pair(client, server)


async def until(runtime: Runtime, condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await runtime.sleep(1)
    raise AssertionError("it never happened")


def test_bytes_arrive_whole_and_in_order(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime, far=Echo)
        sent = bytearray()
        for number in range(500):
            piece = number.to_bytes(2, "big") * (1 + number % 40)
            sent += piece
            pair.near.transport.write(piece)
            if number % 50 == 0:
                await runtime.sleep(1)
        await until(runtime, lambda: len(pair.near.received) == len(sent))
        assert pair.near.received == sent

    run_on(main)


def test_the_protocol_is_connected_when_connect_returns(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        assert pair.near.happened == ["made"]
        assert not pair.near.transport.is_closing()
        assert isinstance(pair.near.transport.get_extra_info("peername")[1], int)
        assert pair.near.transport.get_extra_info("no such thing", 7) == 7

    run_on(main)


def test_a_port_in_use_is_said_so(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.listen(HOST, 0, lambda: Recorder(runtime))
        with pytest.raises(OSError) as caught:
            await runtime.listen(HOST, listener.port, lambda: Recorder(runtime))
        assert caught.value.errno == errno.EADDRINUSE

    run_on(main)


def test_a_port_can_be_used_again_after_its_listener_closed(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        first = await runtime.listen(HOST, 0, lambda: Recorder(runtime))
        client = await runtime.connect(HOST, first.port, lambda: Recorder(runtime))
        first.close()
        await runtime.sleep(5)
        second = await runtime.listen(HOST, first.port, lambda: Recorder(runtime))
        assert second.port == first.port
        assert not client.transport.is_closing()

    run_on(main)


@pytest.mark.parametrize(
    ("host", "port"),
    [("a" * 64, 9092), ("a..b", 9092), ("a\0b", 9092), ("\ud800", 9092), ("x" * 300, 9092), ("no such host", 9092),
     ("127.0.0.1", 65_536), ("127.0.0.1", -1), ("127.0.0.1", 2**31 - 1)],
)  # fmt: skip
def test_no_address_makes_connecting_fail_otherwise_than_by_a_connection_error(
    run_on: RunOn, host: str, port: int
) -> None:
    async def main(runtime: Runtime) -> None:
        with pytest.raises(ConnectionError):
            await runtime.connect(host, port, lambda: Recorder(runtime))

    run_on(main)


def test_connecting_where_nobody_listens_is_refused(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.listen(HOST, 0, lambda: Recorder(runtime))
        listener.close()
        await runtime.sleep(5)
        with pytest.raises(ConnectionRefusedError):
            await runtime.connect(HOST, listener.port, lambda: Recorder(runtime))

    run_on(main)


def test_closing_sends_what_was_written_and_ends_both_sides(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        data = b"z" * 3_000_000
        pair.near.transport.write(data)
        pair.near.transport.close()
        assert pair.near.transport.is_closing()
        assert await pair.far.lost is None
        assert await pair.near.lost is None
        assert len(pair.far.received) == len(data)
        assert pair.far.happened == ["made", "eof", "lost"]

    run_on(main)


def test_writing_after_the_end(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        transport = pair.near.transport
        transport.close()
        transport.write(b"ignored")
        await pair.near.lost
        await pair.far.lost
        await runtime.sleep(1)
        assert bytes(pair.far.received) == b""
        with pytest.raises(RuntimeError, match="closed"):
            transport.write(b"too late")
        with pytest.raises(RuntimeError, match="closed"):
            transport.set_write_buffer_limits(high=1)
        transport.close()
        transport.abort()
        transport.pause_reading()
        transport.resume_reading()
        assert transport.get_write_buffer_size() == 0

    run_on(main)


def test_writing_within_connection_lost_is_ignored(run_on: RunOn) -> None:
    class Stubborn(Recorder):
        def connection_lost(self, exc: Exception | None) -> None:
            self.transport.write(b"anyone?")
            super().connection_lost(exc)

    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime, near=Stubborn)
        pair.far.transport.close()
        assert await pair.near.lost is None
        assert runtime.unhandled_errors == 0

    run_on(main)


def test_back_pressure_pauses_and_resumes_the_writer(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.far.transport.pause_reading()
        written = 0
        while "pause" not in pair.near.happened:
            pair.near.transport.write(b"y" * 100_000)
            written += 100_000
            await runtime.sleep(0)
            assert written < 100_000_000
        await runtime.sleep(20)
        assert pair.near.transport.get_write_buffer_size() > 65536
        assert "resume" not in pair.near.happened
        assert len(pair.far.received) < written
        pair.far.transport.resume_reading()
        await until(runtime, lambda: len(pair.far.received) == written)
        await until(runtime, lambda: "resume" in pair.near.happened)
        assert pair.near.transport.get_write_buffer_size() == 0
        assert pair.near.happened == ["made", "pause", "resume"]

    run_on(main)


def test_a_paused_reader_gets_nothing_more(run_on: RunOn) -> None:
    class OneBite(Recorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime, far=OneBite)
        pair.near.transport.write(b"a" * 5000)
        await until(runtime, lambda: len(pair.far.received) > 0)
        await runtime.sleep(20)
        assert len(pair.far.received) <= 1000
        pair.near.transport.close()
        await runtime.sleep(20)
        assert "eof" not in pair.far.happened
        for _ in range(5000):
            pair.far.transport.resume_reading()
            await runtime.sleep(1)
            if "eof" in pair.far.happened:
                break
        assert len(pair.far.received) == 5000
        assert await pair.far.lost is None

    run_on(main)


def test_what_is_changed_before_it_is_sent_is_sent_changed(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.far.transport.pause_reading()
        filler = b"f" * 8_000_000
        pair.near.transport.write(filler)
        mine = bytearray(b"A" * 100)
        pair.near.transport.write(mine)
        mine[:] = b"B" * 100
        with pytest.raises(BufferError):
            mine.extend(b"more")
        pair.far.transport.resume_reading()
        await until(runtime, lambda: len(pair.far.received) == len(filler) + 100)
        assert pair.far.received[-100:] == b"B" * 100

    run_on(main)


def test_closing_with_unread_bytes_resets_the_peer(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.far.transport.pause_reading()
        pair.near.transport.write(b"never read")
        await runtime.sleep(50)
        pair.far.transport.close()
        assert isinstance(await pair.near.lost, ConnectionResetError)
        assert pair.near.happened == ["made", "lost"]

    run_on(main)


def test_abort_drops_what_was_not_sent(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        pair.far.transport.pause_reading()
        pair.near.transport.write(b"x" * 8_000_000)
        pair.near.transport.abort()
        assert await pair.near.lost is None
        pair.far.transport.resume_reading()
        await pair.far.lost
        assert len(pair.far.received) < 8_000_000

    run_on(main)


class Unable(Recorder):
    def get_buffer(self, sizehint: int) -> Any:
        raise ValueError("no buffer")


class Empty(Recorder):
    def get_buffer(self, sizehint: int) -> Any:
        return bytearray()


class Broken(Recorder):
    def buffer_updated(self, nbytes: int) -> None:
        raise ValueError("cannot take it")


@pytest.mark.parametrize("kind", [Unable, Empty, Broken])
def test_an_exception_in_a_protocol_ends_its_connection_and_no_other(run_on: RunOn, kind: type[Recorder]) -> None:
    async def main(runtime: Runtime) -> None:
        world = getattr(runtime, "world", None)
        if world is not None:
            world.tolerate_errors = True
        good = await connect(runtime, far=Echo)
        bad = await connect(runtime, far=kind)
        bad.near.transport.write(b"bite" * 1000)
        assert isinstance(await bad.far.lost, (ValueError, RuntimeError))
        assert isinstance(await bad.near.lost, (ConnectionResetError, type(None)))
        assert runtime.unhandled_errors == 1
        good.near.transport.write(b"still here")
        await until(runtime, lambda: bytes(good.near.received) == b"still here")

    run_on(main)


def test_an_exception_in_a_callback_is_counted_and_not_fatal(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> int:
        world = getattr(runtime, "world", None)
        if world is not None:
            world.tolerate_errors = True
        runtime.call_soon(int, "not a number")
        runtime.call_later(1, int, "nor this")
        await runtime.sleep(10)
        return runtime.unhandled_errors

    assert run_on(main) == 2


def test_the_frame_client_exchanges_frames(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.listen(HOST, 0, lambda: Echo(runtime))
        client = await FrameClient.connect(runtime, HOST, listener.port)
        assert await client.request(b"one") == b"one"
        client.send(b"two")
        client.send(b"")
        client.send(b"x" * 200_000)
        assert await client.receive() == b"two"
        assert await client.receive() == b""
        assert await client.receive() == b"x" * 200_000
        client.close()
        await client.closed()
        with pytest.raises(ConnectionError):
            await client.receive()
        with pytest.raises(ConnectionError):
            client.send(b"late")

    run_on(main)


def test_a_file_goes_straight_to_the_socket_as_far_as_it_takes_it(run_on: RunOn) -> None:
    content = b"".join(number.to_bytes(4, "big") for number in range(4_000_000))

    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open("big", create=True)
        file.pwrite(content, 0)
        pair = await connect(runtime)
        direct = runtime.direct_socket(pair.near.transport)
        assert direct is not None

        def send_from(position: int) -> int:
            while position < len(content):
                size = min(100_000, len(content) - position)
                taken = direct.send_file(file, position, size)
                if taken is None:
                    assert file.read(size, position), "now it is there"
                elif not taken:
                    break
                else:
                    position += taken
            return position

        pair.far.transport.pause_reading()
        assert direct.send(b"h") == 1
        sent = send_from(0)
        assert sent < len(content), "a peer that does not read takes no more than its buffers hold"
        assert send_from(sent) == sent
        pair.far.transport.resume_reading()
        while sent < len(content):
            await runtime.sleep(1)
            sent = send_from(sent)
        await until(runtime, lambda: len(pair.far.received) == len(content) + 1)
        assert pair.far.received == b"h" + content

    run_on(main)


def test_direct_sends_go_on_until_the_connection_is_known_to_be_lost(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connect(runtime)
        direct = runtime.direct_socket(pair.near.transport)
        assert direct is not None
        pair.far.transport.abort()
        with suppress(ConnectionError):
            while "lost" not in pair.near.happened:
                direct.send(b"x")
                await runtime.sleep(1)
        await pair.near.lost

    run_on(main)

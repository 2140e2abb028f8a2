"""The same connections on the production runtime: uvloop's transports differ from the simulator's in details."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from pathlib import Path

from penstock.runtime.production import ProductionRuntime, run
from penstock.telemetry.http.messages import HttpRequest, HttpResponse
from penstock.telemetry.http.routes import Routes
from penstock.telemetry.http.server import HttpServer, Limits

HELLO = b"GET /hello HTTP/1.1\r\n\r\n"
LIMITS = Limits(request_ms=200, idle_ms=10_000, drain_ms=2_000)


def on_uvloop(tmp_path: Path, talk: Callable[[int], object]) -> list[Exception]:
    """Run `talk(port)` in a thread against a server; returns what handlers raised. No callback may fail otherwise."""
    failures: list[Exception] = []

    async def main(runtime: ProductionRuntime) -> None:
        async def later(request: HttpRequest) -> HttpResponse:
            await runtime.sleep(20)
            return HttpResponse(bytes(300_000))

        routes = Routes()
        routes.add("GET", "/hello", lambda request: HttpResponse(b"hello"))
        routes.add("GET", "/later", later)
        server = HttpServer(runtime, routes, lambda what, error: failures.append(error), LIMITS)
        await server.listen("127.0.0.1", 0)
        await runtime.offload(talk, server.port)
        await server.stop()
        assert server.connection_count == 0
        assert runtime.unhandled_errors == 0

    run(main, root=str(tmp_path))
    return failures


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def all_of(peer: socket.socket) -> bytes:
    received = b""
    while piece := peer.recv(65536):
        received += piece
    return received


def test_requests_that_come_together_are_answered_in_order(tmp_path: Path) -> None:
    def talk(port: int) -> None:
        with connect(port) as peer:
            last = HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
            peer.sendall(HELLO * 50 + b"GET /later HTTP/1.1\r\n\r\n" + last)
            answers = all_of(peer)
        assert answers.count(b"HTTP/1.1 200 OK") == 52
        assert answers.endswith(b"hello")

    assert on_uvloop(tmp_path, talk) == []


def test_a_slow_peer_is_told_so_and_cut_off(tmp_path: Path) -> None:
    def talk(port: int) -> None:
        with connect(port) as peer:
            peer.sendall(b"GET /hel")
            assert all_of(peer).startswith(b"HTTP/1.1 408 ")

    assert on_uvloop(tmp_path, talk) == []


def test_peers_that_vanish_at_any_moment_disturb_nobody(tmp_path: Path) -> None:
    def talk(port: int) -> None:
        later = b"GET /later HTTP/1.1\r\n\r\n"
        for sent in (b"", b"GET", HELLO, HELLO * 200, later, later + HELLO):
            for resets in (False, True):
                with connect(port) as peer:
                    if resets:
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    peer.sendall(sent)
        with connect(port) as peer:
            peer.sendall(b"GET /later HTTP/1.0\r\n\r\n")
            assert len(all_of(peer)) > 300_000

    assert on_uvloop(tmp_path, talk) == []

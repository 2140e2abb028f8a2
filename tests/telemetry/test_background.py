"""The same server on a thread, with real sockets."""

from __future__ import annotations

import http.client
import logging
import socket
import subprocess
import sys
import threading

import pytest

from penstock.telemetry.background import BackgroundServer
from penstock.telemetry.endpoint import metrics_routes
from penstock.telemetry.exposition import CONTENT_TYPE
from penstock.telemetry.http.messages import HttpRequest, HttpResponse
from penstock.telemetry.http.routes import Routes
from penstock.telemetry.samples import gauge
from support.prometheus import parse

HOST = "127.0.0.1"


def test_samples_are_looked_up_at_each_scrape_on_one_connection() -> None:
    values = iter(range(1, 10))
    routes = metrics_routes(lambda: [gauge("now", "Counts the scrapes", next(values))])
    with BackgroundServer(HOST, 0, routes) as server:
        connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
        for expected in (1, 2, 3):
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert parse(answer.read().decode())["now"].series["now", ()] == expected
        connection.close()


def test_large_bodies_go_both_ways_and_coroutines_may_wait() -> None:
    async def echo(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.body)

    routes = Routes()
    routes.add("POST", "/echo", echo, body_bytes_max=4_000_000)
    body = bytes(range(256)) * 12_000
    with BackgroundServer(HOST, 0, routes) as server:
        connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
        connection.request("POST", "/echo", body)
        assert connection.getresponse().read() == body
        connection.close()


def test_a_handler_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    routes = Routes()
    routes.add("GET", "/", lambda request: HttpResponse(str(1 // 0).encode()))
    with BackgroundServer(HOST, 0, routes) as server, caplog.at_level(logging.ERROR):
        connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
        connection.request("GET", "/")
        assert connection.getresponse().status == 500
        connection.close()
    assert "ZeroDivisionError" in caplog.text


def test_closing_ends_the_thread_the_port_and_idle_connections() -> None:
    server = BackgroundServer(HOST, 0, metrics_routes(list))
    with socket.create_connection((HOST, server.port), timeout=10) as idle:
        idle.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200 OK")
        server.close()
        server.close()
        assert idle.recv(4096) == b""
    assert not any(thread.name == "penstock-http" for thread in threading.enumerate())
    with pytest.raises(ConnectionError):
        socket.create_connection((HOST, server.port), timeout=10)


def test_an_address_in_use_is_an_os_error_and_leaves_no_thread() -> None:
    with BackgroundServer(HOST, 0, Routes()) as server:
        before = threading.active_count()
        with pytest.raises(OSError, match="in use"):
            BackgroundServer(HOST, server.port, Routes())
        assert threading.active_count() == before


def test_a_broker_loads_no_threads_or_libraries_for_it() -> None:
    modules = "penstock.telemetry.endpoint, penstock.telemetry.http.server"
    heavy = ("http.server", "socketserver", "email", "urllib.request", "urllib.parse", "penstock.runtime.background")
    program = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

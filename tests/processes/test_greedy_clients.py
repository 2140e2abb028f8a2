"""A real broker beside clients that take all they can get: its memory stays bounded, and others are served."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from struct import pack

import bench.memory
import pytest
from bench import processes, wire
from bench.fairness import at_it, polite, prepare, quantile
from bench.greed import KINDS

from penstock.runtime.memory import PAGES_BYTES_MIN, byte_buffer
from support.penstock import PenstockServer
from support.waiting import wait_until

MB = 1_000_000
BUDGET_MB = 60
SETTINGS = {"queued.max.request.bytes": str(BUDGET_MB * MB), "socket.request.max.bytes": str(16 * MB)}
SLACK_MB = 15


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PenstockServer]:
    with PenstockServer(SETTINGS, directory=tmp_path) as server:
        yield server


@pytest.mark.parametrize("declared_bytes", [16 * MB, 9 * MB])
def test_requests_that_arrive_take_no_more_memory_than_their_budget(
    broker: PenstockServer, declared_bytes: int
) -> None:
    """Thirty clients send 8 MB each of a request that they do not finish: 240 MB where the budget says 60."""
    begun = pack(">ihhih", declared_bytes, 0, 9, 1, -1)
    part = begun.ljust(8 * MB, b"\0")
    before_mb = peak_mb = processes.memory(broker.pid).rss_mb
    with ExitStack() as connections:
        unsent = []
        for _ in range(30):
            connection = connections.enter_context(wire.connect(broker.bootstrap))
            connection.setblocking(False)
            unsent.append((connection, memoryview(part)))
        end_s = time.monotonic() + 3
        while unsent and time.monotonic() < end_s:
            left = []
            for connection, data in unsent:
                sent = 0
                with suppress(BlockingIOError):
                    sent = connection.send(data)
                if sent < len(data):
                    left.append((connection, data[sent:]))
            unsent = left
            peak_mb = max(peak_mb, processes.memory(broker.pid).rss_mb)
        assert peak_mb > before_mb + 15, "it reads what it has room for"
        with wire.connect(broker.bootstrap) as other:
            wire.say_api_versions(other)
    wait_until(lambda: processes.memory(broker.pid).rss_mb < before_mb + SLACK_MB)
    assert peak_mb < before_mb + BUDGET_MB + SLACK_MB


def test_a_large_buffer_costs_what_was_written_into_it() -> None:
    def rss_mb() -> float:
        return processes.memory(os.getpid()).rss_mb

    before_mb = rss_mb()
    buffers = [byte_buffer(50 * MB) for _ in range(20)]
    assert rss_mb() < before_mb + 10
    for buffer in buffers:
        buffer[0 : 5 * MB] = bytes(5 * MB)
    assert before_mb + 90 < rss_mb() < before_mb + 120
    del buffer
    buffers.clear()
    assert rss_mb() < before_mb + 15
    assert isinstance(byte_buffer(PAGES_BYTES_MIN - 1), bytearray)


@pytest.mark.long
@pytest.mark.parametrize("mix", ["pipelined-metadata", "all-topics", "joins", "unread-topics+half-open+churn"])
def test_a_polite_client_is_served_beside_greedy_ones(broker: PenstockServer, mix: str) -> None:
    """By the broker's processor time: how busy the machine is besides does not count."""
    assert all(kind in KINDS for kind in mix.split("+"))
    prepare(broker.bootstrap, 1_000)
    with at_it(broker.bootstrap, mix.split("+")), wire.connect(broker.bootstrap) as connection:
        waits = polite(connection, broker.pid, 4)
    assert quantile(sorted(cpu_ms for _, cpu_ms in waits), 0.99) < 50


ATTACKS = ("all-topics", "named-topics", "offset-fetch", "unread-offsets", "records", "unread-fetches", "commits")


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_broker_under_attack_takes_no_more_memory_than_it_says(attack: str) -> None:
    """Short versions of `python -m bench.memory`, with few partitions."""
    with PenstockServer(bench.memory.SETTINGS.get(attack, {})) as server:
        prepare(server.bootstrap, 300)
        found = bench.memory.under(server, attack, 2.5, 0.0)
    assert found.peak_mb < found.bound_mb
